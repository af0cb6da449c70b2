/* Many threads call at once: on one handle, on handles of their own, opening and closing, changing
 * the number of threads, failing on purpose. Also what the thread sanitiser looks at. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simple.h"
#include "support.h"

enum { CALLERS = 8, ROUNDS = 12 };

static simple *s;
static dg_device *shared;
static atomic_int wrong[4];

static void note(int what, bool right) {
  if (!right) atomic_fetch_add(&wrong[what], 1);
}

static void *call(void *number) {
  const int caller = *(const int *)number;
  char wanted[64];
  dg_kernel_info info;
  for (int round = 0; round < ROUNDS; round++) {
    dg_device *own;
    note(0, dg_device_set_threads(shared, 1 + (caller + round) % 3) == DG_OK);
    note(0, simple_right(s, shared));
    note(1, dg_device_open("cpu", &own) == DG_OK && dg_device_set_threads(own, 2) == DG_OK &&
                simple_right(s, own));
    note(2, dg_kernel_at(own, 0, &info) == DG_OK && dg_device_name_at(0) != NULL);
    dg_device_close(own);
    snprintf(wanted, sizeof wanted, "threads is -%d;", caller + 1);
    note(3, dg_device_set_threads(shared, -caller - 1) == DG_ERROR_ARGUMENT);
    note(3, strstr(dg_last_error(), wanted) != NULL);
  }
  return NULL;
}

int main(void) {
  static const char *const what[] = {"one handle", "handles of their own", "listing",
                                     "errors per thread"};
  pthread_t threads[CALLERS];
  int numbers[CALLERS];
  s = malloc(sizeof *s);
  if (s == NULL) return 1;
  simple_make(s, 1);
  if (dg_device_open("cpu", &shared) != DG_OK) return 1;
  for (int i = 0; i < CALLERS; i++) {
    numbers[i] = i;
    if (pthread_create(&threads[i], NULL, call, &numbers[i]) != 0) return 1;
  }
  for (int i = 0; i < CALLERS; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < 4; i++)
    if (atomic_load(&wrong[i])) test_failed("%s: %d wrong", what[i], atomic_load(&wrong[i]));
    else test_passed();
  dg_device_close(shared);
  free(s);
  return counts_end();
}
