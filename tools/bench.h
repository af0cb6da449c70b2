/* The parts of detgemm bench. */
#ifndef DETGEMM_BENCH_H
#define DETGEMM_BENCH_H

#include "device_memory.h"
#include "tool.h"

typedef enum bench_op { BOP_FORWARD, BOP_NT, BOP_GRAD_A, BOP_GRAD_B, BOPS } bench_op;

/* One line of a table. m, n, k are those of the forward product. */
typedef struct bench_row {
  dg_order order;
  bench_op op;
  int64_t m, n, k;
  int threads;         /* CPU only */
  dg_dtype out;        /* of the result; 0: BF16 */
  bool start;          /* continues from an FP32 state */
  double seconds;      /* medians */
  double peer_seconds; /* 0: no peer */
  double fma_seconds;  /* of the same product in the fma order; 0: not measured */
  double host_seconds; /* of the calling thread, on a GPU; 0: not measured */
  char kernel[64];
} bench_row;

/* The one strided product behind a row: its sizes, and which side is stored transposed. */
typedef struct bench_product {
  int64_t rows, cols, sums;
  bool a_transposed, b_transposed;
} bench_product;
bench_product bench_product_of(const bench_row *row);
const char *bench_op_name(bench_op op);

/* The operation with what is special about the row: "nt", "nt+f32", "nt+start". */
const char *bench_row_name(const bench_row *row, char text[32]);

/* Arguments for a row with BF16 operands at the given addresses. */
dg_gemm_args bench_args(const bench_row *row, const void *a, const void *b, void *out);

/* The weights (right side) that calls rotate over, so that they come from memory. */
int bench_rotation(const bench_row *row, int64_t bytes_in_all);

/* Random BF16 numbers around one, and the same as FP32. */
void bench_fill(uint16_t *data, int64_t count);
void bench_widen(float *to, const uint16_t *from, int64_t count);

double bench_median(double *values, int count);

/* What a row is measured with. */
typedef struct bench_engine {
  dg_device *device;
  device_memory *memory;
  const char *peer; /* its name in print, or NULL: none */
  double peak;      /* FLOP/s of plain FP32 FMA; 0: unknown */
  double tensor;    /* FLOP/s of the tensor cores; 0: unknown or none */
  double bandwidth; /* bytes/s */
  bool (*measure)(struct bench_engine *engine, bench_row *row);
  void (*close)(struct bench_engine *engine);
  void *state;
} bench_engine;

/* peer: "openblas", "cublas" or "none". A peer that is not there is said so on stderr. */
bool bench_cpu_open(bench_engine *engine, const char *peer, int threads);
bool bench_cuda_open(bench_engine *engine, const char *peer, unsigned orders);

/* FLOP/s of a register-only FMA loop and bytes/s read from memory, on that many threads. */
double measure_fma_peak(int threads);
double measure_bandwidth(int threads);

/* A bar chart of the ratios to the peer. Complains and returns false on failure. */
bool bench_chart(const char *path, const bench_row *rows, int count, const char *peer,
                 const char *machine);

#endif
