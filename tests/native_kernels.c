/* Runs the portable kernels natively: a block's threads are contexts on stacks of their own, which
 * hand over at barriers: a jump where they have been before, which needs no system call. */
#include "native_kernels.h"

#include <fenv.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "../src/gpu/cuda/fma.cu"
#include "../src/gpu/fma_grouped.inc"

/* Those that MUSA, HIP and OpenCL have and CUDA has not. */
#define FMA_NAME dg_fma_128x128_shallow
#define FMA_TILE FMA_128X128_SHALLOW
#include "../src/gpu/fma_gemm.inc"

#define FMA_NAME dg_fma_stream_1x32_short
#define FMA_TILE FMA_STREAM_1X32_SHORT
#include "../src/gpu/fma_stream.inc"

#define FMA_NAME dg_fma_stream_8x32_short
#define FMA_TILE FMA_STREAM_8X32_SHORT
#include "../src/gpu/fma_stream.inc"

#define FMA_NAME dg_fma_stream_32x32_short
#define FMA_TILE FMA_STREAM_32X32_SHORT
#include "../src/gpu/fma_stream.inc"

typedef void kernel(dg_problem p, dg_gpu_tuning t);

static const struct {
  const char *symbol;
  kernel *run;
} kernels[] = {
#define KERNEL(name) \
  { #name, name }
    KERNEL(dg_fma_128x128),      KERNEL(dg_fma_128x128_shallow),
    KERNEL(dg_fma_64x64),        KERNEL(dg_fma_16x64),
    KERNEL(dg_fma_stream_1x32),  KERNEL(dg_fma_stream_1x32_short),
    KERNEL(dg_fma_stream_8x32),  KERNEL(dg_fma_stream_8x32_short),
    KERNEL(dg_fma_stream_16x32), KERNEL(dg_fma_stream_32x32),
    KERNEL(dg_fma_stream_64x32), KERNEL(dg_fma_stream_32x32_short),
    KERNEL(dg_fma_naive),
};

enum { MAX_THREADS = 256, STACK = 64 << 10 };
static ucontext_t beginnings[MAX_THREADS];
static jmp_buf scheduler, places[MAX_THREADS];
static enum { NEW, WAITING, FINISHED } states[MAX_THREADS];
static char *stacks, *block_memory;
static int current;
static int64_t group;
static kernel *running; /* NULL: dg_fma_grouped */
static dg_problem problem;
static dg_grouped grouped;
static dg_gpu_tuning tuning;

int dg_native_thread(void) { return current; }
int64_t dg_native_group(void) { return group; }
float *dg_native_block_memory(void) { return (float *)(void *)block_memory; }

void dg_native_barrier(void) {
  states[current] = WAITING;
  if (_setjmp(places[current]) == 0) _longjmp(scheduler, 1);
}

static void thread_body(void) {
  if (running) running(problem, tuning);
  else dg_fma_grouped(grouped, tuning);
  states[current] = FINISHED;
  _longjmp(scheduler, 1);
}

static void make_thread(int i) {
  getcontext(&beginnings[i]);
  beginnings[i].uc_stack.ss_sp = stacks + (size_t)i * STACK;
  beginnings[i].uc_stack.ss_size = STACK;
  states[i] = NEW;
  makecontext(&beginnings[i], thread_body, 0);
}

/* Runs the current thread up to its next barrier or its end. */
static void go_on(void) {
  if (_setjmp(scheduler)) return;
  if (states[current] == WAITING) _longjmp(places[current], 1);
  setcontext(&beginnings[current]);
}

static void run_block(int count) {
  for (int i = 0; i < count; i++) make_thread(i);
  for (int alive = count; alive > 0;) {
    alive = 0;
    for (current = 0; current < count; current++) {
      if (states[current] == FINISHED) continue;
      go_on();
      alive += states[current] != FINISHED;
    }
    if (alive > 0 && alive < count) {
      fprintf(stderr, "a barrier was not reached by all threads\n");
      abort();
    }
  }
}

static kernel *find(const char *symbol) {
  for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++)
    if (strcmp(kernels[i].symbol, symbol) == 0) return kernels[i].run;
  return NULL;
}

static bool is_grouped(const char *symbol) { return strcmp(symbol, "dg_fma_grouped") == 0; }

bool native_has(const char *symbol) { return find(symbol) || is_grouped(symbol); }

void native_run(const fake_launch *launch) {
  if (!native_has(launch->symbol) || launch->block[0] > MAX_THREADS) {
    fprintf(stderr, "%s is no kernel that runs natively\n", launch->symbol);
    abort();
  }
  if (stacks == NULL) stacks = malloc((size_t)MAX_THREADS * STACK);
  block_memory = aligned_alloc(64, (launch->shared_bytes + 127u) / 64 * 64);
  if (stacks == NULL || block_memory == NULL) abort();
  memset(block_memory, 0xff, launch->shared_bytes); /* NaN: nobody may read what nobody wrote */
  tuning = *(const dg_gpu_tuning *)launch->parameters[1];
  running = find(launch->symbol);
  if (running) problem = *(const dg_problem *)launch->parameters[0];
  else grouped = *(const dg_grouped *)launch->parameters[0];
  fenv_t callers; /* which a device knows nothing of */
  feholdexcept(&callers);
  fesetenv(FE_DFL_ENV);
  for (group = 0; group < (int64_t)launch->grid[0]; group++) run_block((int)launch->block[0]);
  fesetenv(&callers);
  free(block_memory);
}
