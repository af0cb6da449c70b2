/* Turns the tensors of a product into the library's views, and runs it on any device. */
#ifndef DETGEMM_PRODUCT_H
#define DETGEMM_PRODUCT_H

#include "device_memory.h"
#include "tensor.h"
#include "tool.h"

typedef enum operation { OP_FORWARD, OP_GRAD_A, OP_GRAD_B, OP_GRAD_B_T } operation;

/* The operands as the user names them: A B, dC B, A dC, A dC. */
typedef struct product_inputs {
  operation op;
  bool rhs_transposed; /* the right side B is stored as [N,K] */
  const tensor *left, *right, *start, *bias;
} product_inputs;

/* Fills args (all but order) with views of host memory, and out with the shape and strides of the
 * result, whose memory is still to come. Complains and returns false where shapes do not fit. */
bool product_views(const product_inputs *in, dg_dtype out_dtype, dg_gemm_args *args, tensor *out);

/* What a run reports. */
typedef struct product_run {
  double seconds; /* the median */
  dg_kernel_info kernel;
} product_run;

/* Computes host args on a device, repeat times (the same bits each), and leaves the result in
 * args->out.data. Complains and returns false on failure. */
bool product_compute(dg_device *device, device_memory *memory, const dg_gemm_args *args, int repeat,
                     product_run *run);

#endif
