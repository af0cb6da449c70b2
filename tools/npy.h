/* Reads and writes NumPy's .npy files, versions 1 to 3. BF16 is '<V2', which is what NumPy writes
 * for ml_dtypes.bfloat16. */
#ifndef DETGEMM_NPY_H
#define DETGEMM_NPY_H

#include "tensor.h"

/* Reads the bytes of a file; u2_is_bf16: '<u2' elements are BF16 bits too. C and Fortran order and
 * both byte orders are taken. Bytes after the array are left alone, as NumPy does. On failure why
 * holds one line. Pure: reads nothing but the bytes. */
bool npy_read(const void *file, size_t bytes, bool u2_is_bf16, tensor *found, char why[TENSOR_WHY]);

/* The bytes before the data of a C-order file of t. NULL: no memory. The caller frees it. */
void *npy_head(const tensor *t, size_t *bytes);

#endif
