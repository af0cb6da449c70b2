/* The CPU back end: its rows, what this processor can run of them, and the choice. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu.h"

const dg_cpu_kernel *dg_cpu_row(int index) {
#if defined(__x86_64__)
  if (index < dg_cpu_x86_count) return &dg_cpu_x86_rows[index];
  index -= dg_cpu_x86_count;
#elif defined(__aarch64__)
  if (index < dg_cpu_arm_count) return &dg_cpu_arm_rows[index];
  index -= dg_cpu_arm_count;
#endif
  return index < dg_cpu_generic_count ? &dg_cpu_generic_rows[index] : NULL;
}

static int row_count(void) {
  int count = 0;
  while (dg_cpu_row(count)) count++;
  return count;
}

/* The first row of the order that is meant for so few rows, else the first there is. */
static dg_status choose(const dg_device *device, const dg_problem *p, int *kernel) {
  const int64_t rows = dg_cpu_exchange(p) ? p->n : p->m;
  for (int any = 0; any < 2; any++)
    for (int i = 0; i < device->kernel_count; i++) {
      const int most = dg_cpu_row(i)->most_rows;
      if (device->kernels[i].withheld == NULL && (int)device->kernels[i].order == p->order &&
          (any || most == 0 || rows <= most)) {
        *kernel = i;
        return DG_OK;
      }
    }
  return dg_fail(DG_ERROR_UNSUPPORTED,
                 "no %s kernel is left on %s; see what `detgemm info` says of each, and unset "
                 "DETGEMM_KERNEL and DETGEMM_CPU",
                 p->order == DG_ORDER_FMA ? "fma" : "tc16", device->name);
}

/* ---- opening ---- */

static const struct {
  const char *name;
  unsigned features;
} levels[] = {{"generic", 0},
              {"avx2", DG_CPU_AVX2},
              {"avx512", DG_CPU_AVX2 | DG_CPU_AVX512},
              {"neon", DG_CPU_NEON}};

/* What DETGEMM_CPU leaves of the processor's features. */
static dg_status allowed(unsigned detected, unsigned *features) {
  const char *wanted = getenv("DETGEMM_CPU");
  *features = detected;
  if (wanted == NULL || *wanted == '\0') return DG_OK;
  for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
    if (strcmp(levels[i].name, wanted) == 0) {
      *features = levels[i].features;
      if ((detected & *features) == *features) return DG_OK;
      return dg_fail(DG_ERROR_UNSUPPORTED,
                     "DETGEMM_CPU=%s: this processor lacks it; unset it or use \"generic\"",
                     wanted);
    }
  return dg_fail(DG_ERROR_ARGUMENT,
                 "DETGEMM_CPU=\"%.40s\" is not known; use generic, avx2, avx512 or neon", wanted);
}

static void describe(const dg_device *device, int index, dg_kernel_info *info) {
  (void)device;
  *info = (dg_kernel_info){.name = dg_cpu_row(index)->name,
                           .order = (dg_order)dg_cpu_row(index)->order};
}

/* The verdict on every row this processor can run, reached once per process. */
enum { MAX_ROWS = 64 };
static dg_verdict verdicts[MAX_ROWS];
static pthread_mutex_t verdict_lock = PTHREAD_MUTEX_INITIALIZER;

/* A fork waits for a probe under way in another thread, so that the child finds the lock open. */
static void lock_verdicts(void) { pthread_mutex_lock(&verdict_lock); }
static void unlock_verdicts(void) { pthread_mutex_unlock(&verdict_lock); }

__attribute__((constructor)) static void prepare_for_forks(void) {
  pthread_atfork(lock_verdicts, unlock_verdicts, unlock_verdicts);
}

static dg_status allocate(void *context, void **data, size_t bytes) {
  (void)context;
  *data = malloc(bytes);
  return *data ? DG_OK : dg_fail(DG_ERROR_MEMORY, "no memory for the conformance probe");
}

static dg_status copy(void *context, void *to, const void *from, size_t bytes) {
  (void)context;
  memcpy(to, from, bytes);
  return DG_OK;
}

static void release(void *context, void *data) {
  (void)context;
  free(data);
}

static dg_status open_cpu(dg_device *device, int index) {
  (void)index;
  const unsigned detected = dg_cpu_detect();
  unsigned features;
  dg_status status = allowed(detected, &features);
  if (status != DG_OK) return status;
  status = dg_device_list_kernels(device, row_count(), describe);
  if (status != DG_OK) return status;
  snprintf(device->description, sizeof device->description, "%s%s%s%s, %d threads",
           features ? "" : "portable C", features & DG_CPU_AVX2 ? "AVX2 and FMA" : "",
           features & DG_CPU_AVX512 ? ", AVX-512" : "", features & DG_CPU_NEON ? "NEON" : "",
           dg_default_threads());
  for (int i = 0; i < device->kernel_count; i++) {
    dg_kernel_info *info = &device->kernels[i];
    if ((dg_cpu_row(i)->needs & detected) != dg_cpu_row(i)->needs)
      info->withheld = "this processor lacks its instruction set";
    else if ((dg_cpu_row(i)->needs & features) != dg_cpu_row(i)->needs)
      info->withheld = "excluded by DETGEMM_CPU";
  }
  lock_verdicts();
  status =
      dg_probe(device, &(dg_probe_memory){allocate, copy, copy, release, NULL, false}, verdicts);
  unlock_verdicts();
  return status;
}

int dg_cpu_allowed_threads(const dg_device *device) {
  const int wanted = device->threads; /* read once: another thread may set it */
  return wanted ? wanted : dg_default_threads();
}

static dg_status run(dg_device *device, const dg_problem *p, int kernel, void *stream) {
  (void)stream;
  return dg_cpu_run(&(dg_cpu_product){*p, dg_cpu_row(kernel), dg_cpu_allowed_threads(device)});
}

static void close_cpu(dg_device *device) { (void)device; }

static int count_cpu(void) { return 1; }

const dg_backend dg_cpu_backend = {
    .name = "cpu",
    .count = count_cpu,
    .open = open_cpu,
    .close = close_cpu,
    .choose = choose,
    .run = run,
    .run_grouped = dg_cpu_run_grouped,
};
