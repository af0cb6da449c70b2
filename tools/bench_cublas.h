/* cuBLAS, found at run time, as the peer of the CUDA benchmark. */
#ifndef DETGEMM_BENCH_CUBLAS_H
#define DETGEMM_BENCH_CUBLAS_H

#include "bench.h"

typedef struct cublas cublas;

/* Finds cuBLAS and makes it run on stream. Complains and returns NULL where there is none. */
cublas *cublas_open(device_memory *memory, void *stream);
void cublas_close(cublas *c);

/* One product: FP32 operands and result without TF32, or BF16 with FP32 sums. */
bool cublas_product(const cublas *c, const bench_row *row, bool wide, const void *a, const void *b,
                    void *out);

#endif
