/* A tensor in memory, as the readers find it and the commands use it. */
#ifndef DETGEMM_TENSOR_H
#define DETGEMM_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TENSOR_MAX_RANK = 8, TENSOR_WHY = 256 };

typedef struct tensor {
  const void *data;                /* the first element; no alignment */
  int dtype;                       /* a dg_dtype */
  int rank;                        /* 0 for a single number */
  int64_t shape[TENSOR_MAX_RANK];  /* each 0 or more; their product times 4 fits int64_t */
  int64_t stride[TENSOR_MAX_RANK]; /* in elements */
  bool contiguous;                 /* C order without gaps */
  bool swapped;                    /* the bytes of an element are not in this machine's order */
} tensor;

/* How many elements. The readers have checked that it fits. */
int64_t tensor_count(const tensor *t);

/* The strides of C order (last index fastest) or Fortran order. */
void tensor_set_strides(tensor *t, bool fortran);

/* Whether rank and shape are the same; and the shape as text, "[2, 3]". */
bool tensor_same_shape(const tensor *x, const tensor *y);
const char *tensor_shape_text(const tensor *t, char text[128]);

/* The offset in elements of the index-th element in C order. */
int64_t tensor_offset(const tensor *t, int64_t index);

/* The bits of one element in this machine's order, and their value. */
uint32_t tensor_bits(const tensor *t, int64_t index);
double tensor_value(uint32_t bits, int dtype);

/* FP32 bits of an element, and the nearest BF16 (ties to even, a NaN stays one). */
uint32_t bits_to_f32(uint32_t bits, int dtype);
uint16_t f32_to_bf16(uint32_t bits);

/* A tensor in a file, memory-mapped; copy is set where the elements had to be converted. */
typedef struct tensor_file {
  tensor t;
  void *map;
  size_t map_bytes;
  void *copy;
} tensor_file;

/* Opens "file.safetensors:tensor" (":tensor" may be left out where there is only one) or
 * "file.npy". npy_u2_is_bf16: 16-bit unsigned npy elements are BF16 bits. Complains and returns
 * false on any fault; f is zeroed then. */
bool tensor_open(tensor_file *f, const char *spec, bool npy_u2_is_bf16);
void tensor_close(tensor_file *f);

/* Rounds F16 and F32 elements to BF16. false: no memory (complained). */
bool tensor_cast_bf16(tensor_file *f);

#endif
