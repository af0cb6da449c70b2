/* Each allocation of the library fails in turn, each in a process of its own: the call says so,
 * writes nothing, leaves nothing behind that would change later calls, and no kernel is withheld
 * for want of memory. The allocation functions are wrapped by the linker. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "simple.h"
#include "support.h"

static int until_failure = -1; /* allocations still granted; -1: all */
static bool has_failed;

static size_t most; /* the greatest request */

static bool refuse(size_t bytes) {
  if (bytes > most) most = bytes;
  if (until_failure < 0 || until_failure-- > 0) return false;
  has_failed = true;
  return true;
}

#define WRAP(name, parameters, arguments, bytes) \
  void *__real_##name parameters;                \
  void *__wrap_##name parameters;                \
  void *__wrap_##name parameters { return refuse(bytes) ? NULL : __real_##name arguments; }
WRAP(malloc, (size_t size), (size), size)
WRAP(calloc, (size_t count, size_t size), (count, size), count *size)
WRAP(realloc, (void *old, size_t size), (old, size), size)
WRAP(aligned_alloc, (size_t alignment, size_t size), (alignment, size), size)

static simple *s;
static int *usable; /* kernels, found by the run without failures; shared between processes */

static int count_usable(const dg_device *device) {
  int count = 0;
  for (int i = 0; i < dg_kernel_count(device); i++) {
    dg_kernel_info info;
    if (dg_kernel_at(device, i, &info) == DG_OK && info.withheld == NULL) count++;
  }
  return count;
}

static bool untouched(const uint32_t *out) {
  for (int i = 0; i < SIMPLE_M * SIMPLE_N; i++)
    if (out[i] != 0xa5a5a5a5u) return false;
  return true;
}

/* A product that may fail for want of memory only, and then leaves the output alone. */
static const char *try_product(dg_device *device, dg_order order) {
  static uint32_t out[SIMPLE_M * SIMPLE_N];
  memset(out, 0xa5, sizeof out);
  const dg_status status = simple_run(s, device, order, out);
  if (status == DG_OK)
    return memcmp(out, s->want[order - DG_ORDER_FMA], sizeof out) ? "other bits" : NULL;
  if (status != DG_ERROR_MEMORY) return "a status other than DG_ERROR_MEMORY";
  if (!has_failed) return "DG_ERROR_MEMORY without reason";
  return untouched(out) ? NULL : "output written by a call that failed";
}

/* In a process of its own. NULL: as it should be. */
static const char *with_failure(int which) {
  dg_device *device;
  until_failure = which;
  dg_status status = dg_device_open("cpu", &device);
  if (status != DG_OK && status != DG_ERROR_MEMORY) return "open: not DG_ERROR_MEMORY";
  if (status != DG_OK && (device != NULL || !has_failed)) return "open: failed oddly";
  if (status != DG_OK) {
    until_failure = -1;
    if (dg_device_open("cpu", &device) != DG_OK) return "open does not recover";
  }
  if (which == -1) *usable = count_usable(device);
  else if (count_usable(device) != *usable) return "kernels are withheld for want of memory";
  dg_device_set_threads(device, 4);
  const char *why = try_product(device, DG_ORDER_FMA);
  if (why == NULL) why = try_product(device, DG_ORDER_TC16);
  until_failure = -1;
  if (why == NULL && !simple_right(s, device)) why = "products do not recover";
  dg_device_close(device);
  return why;
}

/* Whether the run got as far as its failing allocation. */
static bool run_apart(int which) {
  enum { RIGHT, WRONG, PAST };
  int result;
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const char *why = with_failure(which);
    if (why) printf("allocation %d: %s (%s)\n", which, why, dg_last_error());
    fflush(stdout);
    _exit(why ? WRONG : has_failed ? RIGHT : PAST);
  }
  waitpid(child, &result, 0);
  if (!WIFEXITED(result))
    test_failed("allocation %d: killed by signal %d", which, WTERMSIG(result));
  else if (WEXITSTATUS(result) == WRONG) test_failed("allocation %d", which);
  else test_passed();
  return !WIFEXITED(result) || WEXITSTATUS(result) != PAST;
}

/* Work memory is bounded by the threads, not by the product: a few MB each. The inputs are one row
 * and one column again and again. */
static void work_memory_is_bounded(void) {
  enum { SIDE = 1500, DEPTH = 600, THREADS = 3, LIMIT = 8 << 20 };
  static uint16_t row[DEPTH], out[SIDE * SIDE];
  dg_device *device;
  if (dg_device_open("cpu", &device) != DG_OK) return test_failed("open");
  dg_device_set_threads(device, THREADS);
  for (int order = DG_ORDER_FMA; order <= DG_ORDER_TC16; order++) {
    dg_gemm_args args = dg_gemm_args_init();
    args.order = (dg_order)order;
    args.a = dg_row_major(row, DG_BF16, SIDE, DEPTH);
    args.b = dg_row_major(row, DG_BF16, DEPTH, SIDE);
    args.a.row_stride = args.b.col_stride = 0;
    args.b.row_stride = 1;
    args.out = dg_row_major(out, DG_BF16, SIDE, SIDE);
    most = 0;
    if (dg_gemm(device, &args) != DG_OK) test_failed("%s", dg_last_error());
    else if (most > (size_t)LIMIT * THREADS) test_failed("%zu bytes of work memory", most);
    else test_passed();
  }
  dg_device_close(device);
}

int main(void) {
  int which = 0;
  s = malloc(sizeof *s);
  usable = mmap(NULL, sizeof *usable, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (s == NULL || usable == MAP_FAILED) return 1;
  simple_make(s, 1);
  run_apart(-1);
  while (which < 500 && run_apart(which)) which++;
  if (which < 5) test_failed("only %d allocations failed", which);
  work_memory_is_bounded();
  free(s);
  return counts_end();
}
