#include "bench_cublas.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { WORKSPACE = 64 << 20, R_32F = 0, R_16BF = 14, COMPUTE_32F = 68, DEFAULT_ALGORITHM = -1 };

/* All return a cublasStatus_t. */
#define CUBLAS_FUNCTIONS(F)                                                               \
  F(cublasCreate_v2, (void **))                                                           \
  F(cublasDestroy_v2, (void *))                                                           \
  F(cublasSetStream_v2, (void *, void *))                                                 \
  F(cublasSetWorkspace_v2, (void *, void *, size_t))                                      \
  F(cublasGemmEx, (void *, int, int, int, int, int, const void *, const void *, int, int, \
                   const void *, int, int, const void *, void *, int, int, int, int))

struct cublas {
  device_memory *memory;
  void *library, *handle, *workspace;
#define CUBLAS_FIELD(name, parameters) int(*name) parameters;
  CUBLAS_FUNCTIONS(CUBLAS_FIELD)
#undef CUBLAS_FIELD
};

static bool load(cublas *c) {
  static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};
  for (int i = 0; c->library == NULL && i < 3; i++) c->library = dlopen(names[i], RTLD_NOW);
  if (c->library == NULL) return false;
  void *symbol;
#define CUBLAS_LOAD(name, parameters) \
  symbol = dlsym(c->library, #name);  \
  if (symbol == NULL) return false;   \
  memcpy(&c->name, &symbol, sizeof symbol);
  CUBLAS_FUNCTIONS(CUBLAS_LOAD)
#undef CUBLAS_LOAD
  return true;
}

void cublas_close(cublas *c) {
  if (c == NULL) return;
  if (c->handle) c->cublasDestroy_v2(c->handle);
  if (c->workspace) c->memory->platform->release(c->memory, c->workspace);
  free(c);
}

cublas *cublas_open(device_memory *memory, void *stream) {
  cublas *c = calloc(1, sizeof *c);
  if (c != NULL) {
    c->memory = memory;
    if (load(c) && c->cublasCreate_v2(&c->handle) == 0) {
      c->workspace = memory->platform->alloc(memory, WORKSPACE);
      if (c->workspace && c->cublasSetStream_v2(c->handle, stream) == 0 &&
          c->cublasSetWorkspace_v2(c->handle, c->workspace, WORKSPACE) == 0)
        return c;
    }
  }
  complain(
      "no usable cuBLAS here (is libcublas.so.13 or .12 in LD_LIBRARY_PATH?): no ratios to it");
  cublas_close(c);
  return NULL;
}

/* Row-major C = A B is column-major C^T = B^T A^T. COMPUTE_32F uses no TF32 by default. */
bool cublas_product(const cublas *c, const bench_row *row, bool wide, const void *a, const void *b,
                    void *out) {
  const bench_product p = bench_product_of(row);
  const int m = (int)p.rows, n = (int)p.cols, k = (int)p.sums, type = wide ? R_32F : R_16BF;
  const float one = 1, zero = 0;
  const int status =
      c->cublasGemmEx(c->handle, p.b_transposed, p.a_transposed, n, m, k, &one, b, type,
                      p.b_transposed ? k : n, a, type, p.a_transposed ? m : k, &zero, out,
                      row->out == DG_F32 ? R_32F : type, n, COMPUTE_32F, DEFAULT_ALGORITHM);
  if (status == 0) return true;
  complain("cublasGemmEx failed with status %d", status);
  return false;
}
