/* The kernels of the CUDA back end in one sequence. */
#include "cuda.h"

static const struct {
  const dg_gpu_kernel *rows;
  const int *count;
} files[] = {
#define ROWS(file) {dg_cuda_##file##_rows, &dg_cuda_##file##_count},
    DG_CUDA_FILES(ROWS)
#undef ROWS
};

const dg_gpu_kernel *dg_cuda_row(int index) {
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    if (index < *files[i].count) return &files[i].rows[index];
    index -= *files[i].count;
  }
  return NULL;
}
