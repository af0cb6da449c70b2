/* Kernels under test, random numbers, counting. */
#include "support.h"

#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int passed, failed, skipped;

__attribute__((format(printf, 2, 0))) static void print(const char *kind, const char *format,
                                                        va_list arguments) {
  printf("%s: ", kind);
  vprintf(format, arguments);
  putchar('\n');
}

void test_failed(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  print("failed", format, arguments);
  va_end(arguments);
  failed++;
}

void test_skipped(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  print("skipped", format, arguments);
  va_end(arguments);
  skipped++;
}

void test_passed(void) { passed++; }

int counts_end(void) {
  printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
  return failed || !passed;
}

uint64_t random_next(uint64_t *state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

int64_t random_below(uint64_t *state, int64_t limit) {
  return (int64_t)(random_next(state) % (uint64_t)limit);
}

static dg_device *open_or_exit(const char *name) {
  dg_device *device;
  if (dg_device_open(name, &device) == DG_OK) return device;
  fprintf(stderr, "cannot open %s: %s\n", name, dg_last_error());
  exit(1);
}

int subjects_open(const char *name, const char *pattern, subject list[MAX_SUBJECTS]) {
  dg_device *all = open_or_exit(name);
  const char *inherited = getenv("DETGEMM_KERNEL");
  char *saved = inherited ? strdup(inherited) : NULL;
  int count = 0;
  for (int i = 0; i < dg_kernel_count(all) && count < MAX_SUBJECTS; i++) {
    dg_kernel_info info;
    if (dg_kernel_at(all, i, &info) != DG_OK) continue;
    if (pattern && fnmatch(pattern, info.name, 0) != 0) continue;
    if (info.withheld && strstr(info.withheld, "bits")) {
      test_failed("%s: %s", info.name, info.withheld);
      continue;
    }
    if (info.withheld) {
      test_skipped("%s: %s", info.name, info.withheld);
      continue;
    }
    setenv("DETGEMM_KERNEL", info.name, 1);
    subject *s = &list[count++];
    snprintf(s->name, sizeof s->name, "%s", info.name);
    s->order = info.order;
    s->device = open_or_exit(name);
  }
  if (saved) setenv("DETGEMM_KERNEL", saved, 1);
  else unsetenv("DETGEMM_KERNEL");
  free(saved);
  dg_device_close(all);
  return count;
}

void subjects_close(subject *list, int count) {
  for (int i = 0; i < count; i++) dg_device_close(list[i].device);
}

dg_status subject_run(const subject *s, const dg_gemm_args *args) {
  return s->device ? dg_gemm(s->device, args) : dg_reference(args);
}
