/* How the CPU makes the orders: the kernel row, the packed panels, and the executor's parts.
 *
 * The kernel contract. A kernel is pure: it reads two packed panels and updates one full tile of
 * FP32 state. The accumulator starts at the tile (never "+ C at the end": that would change bits
 * where K is cut). No allocation, threads, globals, output rounding or change of the
 * floating-point environment (the tc16 kernels may switch the rounding mode and must restore it).
 * Vector lanes run over N or M, never over K. The executor hands in tiles of full size only; rows
 * and columns past the edge hold packed zeros and their results are dropped. */
#ifndef DETGEMM_CPU_H
#define DETGEMM_CPU_H

#include "../internal.h"

/* Instruction sets, as bits. A row may run where all the bits it needs are there. */
enum { DG_CPU_AVX2 = 1, DG_CPU_AVX512 = 2, DG_CPU_NEON = 4 };

/* features.c of each architecture: what this processor and its operating system offer. */
unsigned dg_cpu_detect(void);

/* A strip of an operand seen by a packer: element (i, k) is at data + i * is + k * ks elements,
 * where i runs along the panel's width (rows of A, columns of B) and k along the sum. */
typedef struct dg_strip {
  const char *data;
  int64_t is, ks;
  int dtype;
} dg_strip;

/* Packs k elements of `count` <= width lines into one panel; lines past count become zeros. k is
 * filled up to the row's k_step with terms that change no accumulator. */
typedef void dg_pack_fn(const dg_strip *strip, int64_t count, int64_t k, void *panel);

/* Continues the first rows x cols of one mr x nr tile (row-major, contiguous, on a multiple of 64
 * bytes) over k terms of two panels. The rest of the tile may be written too. */
typedef void dg_tile_fn(int64_t k, const void *a, const void *b, float *tile, int rows, int cols);

/* Like dg_tile_fn for all columns of the tile, with columns of B read where they lie: one of b's
 * strides is 1. */
typedef void dg_direct_fn(int64_t k, const void *a, const dg_strip *b, float *tile, int rows);

/* Continues one row of `cols` sums, which lie side by side as those of B do: its is is 1. `a` is a
 * panel of one line. Sums up to the next multiple of the row's nr may be written too. */
typedef void dg_across_fn(int64_t k, const void *a, const dg_strip *b, float *state, int64_t cols);

/* out[j] = x[j] + bias[j] (bias NULL: x[j]) for count elements, rounded once to dtype, NaN
 * canonical. out has any alignment. */
typedef void dg_round_fn(const float *x, const float *bias, int64_t count, int dtype, void *out);

typedef struct dg_cpu_kernel {
  const char *name;     /* <order>_<tile>_<isa> */
  int order;            /* a dg_order */
  unsigned needs;       /* DG_CPU_ bits */
  int mr, nr;           /* the tile */
  int k_step;           /* the sum may be cut here: 1 for fma, 16 for tc16 */
  int a_bytes, b_bytes; /* a panel's bytes per k_step */
  dg_pack_fn *pack_a, *pack_b;
  dg_tile_fn *run;
  dg_round_fn *round;
  int most_rows;        /* chosen where the product has no more rows than this; 0: for any number */
  dg_direct_fn *direct; /* or NULL */
  dg_across_fn *across; /* or NULL; used for a product of one row */
} dg_cpu_kernel;

dg_round_fn dg_round_generic;

/* The rows of each folder, fastest first within an order; generic.c ends the list. */
extern const dg_cpu_kernel dg_cpu_generic_rows[];
extern const int dg_cpu_generic_count;
#if defined(__x86_64__)
extern const dg_cpu_kernel dg_cpu_x86_rows[];
extern const int dg_cpu_x86_count;
#elif defined(__aarch64__)
extern const dg_cpu_kernel dg_cpu_arm_rows[];
extern const int dg_cpu_arm_count;
#endif

/* How a product is cut. A task is a block of mb x nb of the output. */
typedef struct dg_cpu_plan {
  const dg_cpu_kernel *kernel;
  int64_t mb, nb;             /* nb is a multiple of nr */
  int64_t blocks_m, blocks_n; /* of each product of the batch */
  int64_t depth;              /* k of A packed at a time, for all rows of the block */
  int64_t kb;                 /* k of B packed at a time, for one tile's columns; divides depth */
  int threads;
  bool direct; /* B is not packed, but for the columns at the edge */
  bool across; /* B is not packed, and all columns of a block are computed by one call */
} dg_cpu_plan;

/* plan.c: whether out^T = b^T a^T is the better way to compute p. */
bool dg_cpu_exchange(const dg_problem *p);
dg_cpu_plan dg_cpu_plan_make(const dg_problem *p, const dg_cpu_kernel *kernel, int threads);

/* plan.c: how many threads so many multiplications are worth. */
int dg_cpu_threads(uint64_t multiplications, int threads);
uint64_t dg_cpu_work(const dg_problem *p);

/* A product to compute, with that row, cut for so many threads. */
typedef struct dg_cpu_product {
  dg_problem p; /* not empty */
  const dg_cpu_kernel *kernel;
  int threads;
} dg_cpu_product;

/* run.c: computes one product, or a number of them in one parallel region. */
dg_status dg_cpu_run(const dg_cpu_product *x);
dg_status dg_cpu_run_many(const dg_cpu_product *list, int64_t count, int threads);

/* threads.c: calls task(context, worker, i) for i = 0 .. count-1 on at most `threads` threads, each
 * in the orders' floating-point environment and with its own worker number below `threads`. Works
 * in a forked child, where OpenMP's pool is gone. */
typedef void dg_task_fn(void *context, int worker, int64_t i);
void dg_parallel(int threads, int64_t count, dg_task_fn *task, void *context);
int dg_default_threads(void);

/* grouped.c: dg_backend.run_grouped. */
dg_status dg_cpu_run_grouped(dg_device *device, const dg_grouped *g, void *stream);

/* backend.c: the row of that index, and the threads that a call on the device may use. */
const dg_cpu_kernel *dg_cpu_row(int index);
int dg_cpu_allowed_threads(const dg_device *device);
extern const dg_backend dg_cpu_backend;

#endif
