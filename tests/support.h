/* What the test programs share: the kernels under test, random numbers, and counting. */
#ifndef DETGEMM_TESTS_SUPPORT_H
#define DETGEMM_TESTS_SUPPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "detgemm.h"

/* One way of computing: a device on which only one kernel is allowed, or the scalar reference. */
typedef struct subject {
  char name[64];
  dg_device *device; /* NULL: dg_reference */
  dg_order order;
} subject;

/* Opens the device once per usable kernel whose name matches pattern (NULL: all), with that kernel
 * forced. Kernels that failed their probe are failures, ones this machine cannot run are noted as
 * skipped. Returns how many there are; exits where the device cannot be opened. */
enum { MAX_SUBJECTS = 64 };
int subjects_open(const char *device, const char *pattern, subject list[MAX_SUBJECTS]);
void subjects_close(subject *list, int count);
dg_status subject_run(const subject *s, const dg_gemm_args *args);

/* splitmix64: the same numbers everywhere. */
uint64_t random_next(uint64_t *state);
int64_t random_below(uint64_t *state, int64_t limit);

/* Counts; a failure is printed. counts_end prints "N passed, N failed, N skipped" and returns the
 * exit status. */
__attribute__((format(printf, 1, 2))) void test_failed(const char *format, ...);
__attribute__((format(printf, 1, 2))) void test_skipped(const char *format, ...);
void test_passed(void);
int counts_end(void);

#endif
