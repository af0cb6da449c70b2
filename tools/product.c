#include "product.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The last two dimensions as a matrix, one before them as the batch. */
static dg_view matrix(const tensor *t) {
  dg_view v = {.data = (void *)(uintptr_t)t->data, .dtype = (dg_dtype)t->dtype};
  const int r = t->rank - 2;
  v.rows = t->shape[r];
  v.cols = t->shape[r + 1];
  v.row_stride = t->stride[r];
  v.col_stride = t->stride[r + 1];
  v.batch_stride = r && t->shape[0] != 1 ? t->stride[0] : 0;
  return v;
}

static bool check_rank(const char *what, const tensor *t) {
  char shape[128];
  if (t->rank == 2 || t->rank == 3) return true;
  complain("%s is %s; it must have 2 dimensions, or 3 for a batch", what,
           tensor_shape_text(t, shape));
  return false;
}

/* The batch is what 3-D tensors say; 2-D ones and batches of 1 serve every product. */
static bool join_batch(const char *what, const tensor *t, int64_t *batch) {
  if (t->rank < 3 || t->shape[0] == 1 || t->shape[0] == *batch) return true;
  if (*batch != -1) {
    complain("%s has a batch of %" PRId64 ", another operand one of %" PRId64, what, t->shape[0],
             *batch);
    return false;
  }
  *batch = t->shape[0];
  return true;
}

static bool check_reduced(const product_inputs *in, const dg_view *a, const dg_view *b) {
  char left[128], right[128];
  if (a->cols == b->rows) return true;
  complain("the operands %s and %s do not fit: the sum runs over %" PRId64
           " on the left and %" PRId64 " on the right",
           tensor_shape_text(in->left, left), tensor_shape_text(in->right, right), a->cols,
           b->rows);
  return false;
}

static bool add_start(const product_inputs *in, const tensor *out, dg_gemm_args *args) {
  char want[128], got[128];
  if (in->start == NULL) return true;
  const int skip = out->rank - in->start->rank; /* a 2-D start serves the whole batch */
  if (in->start->dtype != DG_F32 || skip < 0 || in->start->rank < 2 ||
      memcmp(in->start->shape, out->shape + skip, (size_t)in->start->rank * sizeof(int64_t)) != 0) {
    complain("start is %s %s; it must be F32 %s", dtype_name(in->start->dtype),
             tensor_shape_text(in->start, got), tensor_shape_text(out, want));
    return false;
  }
  args->start = matrix(in->start);
  if (in->op == OP_GRAD_B_T) args->start = dg_transposed(args->start);
  return true;
}

static bool add_bias(const product_inputs *in, dg_gemm_args *args) {
  char got[128];
  if (in->bias == NULL) return true;
  if (in->op != OP_FORWARD) {
    complain("a bias goes with --op forward only");
    return false;
  }
  if (in->bias->rank != 1 || in->bias->shape[0] != args->out.cols) {
    complain("bias is %s; it must be [%" PRId64 "]", tensor_shape_text(in->bias, got),
             args->out.cols);
    return false;
  }
  args->bias = dg_row_major(in->bias->data, (dg_dtype)in->bias->dtype, 1, args->out.cols);
  args->bias.col_stride = in->bias->stride[0];
  args->bias.batch_stride = 0;
  return true;
}

static bool shape_output(const product_inputs *in, dg_dtype dtype, const dg_gemm_args *args,
                         tensor *out) {
  int64_t bytes = dtype_bytes(dtype);
  const bool transposed = in->op == OP_GRAD_B_T;
  memset(out, 0, sizeof *out);
  out->dtype = dtype;
  if (in->left->rank == 3 || in->right->rank == 3) out->shape[out->rank++] = args->batch;
  out->shape[out->rank++] = transposed ? args->b.cols : args->a.rows;
  out->shape[out->rank++] = transposed ? args->a.rows : args->b.cols;
  for (int i = 0; i < out->rank; i++)
    if (__builtin_mul_overflow(bytes, out->shape[i] ? out->shape[i] : 1, &bytes)) {
      complain("the result is too large");
      return false;
    }
  tensor_set_strides(out, false);
  return true;
}

bool product_views(const product_inputs *in, dg_dtype out_dtype, dg_gemm_args *args, tensor *out) {
  static const char *const names[][2] = {{"A", "B"}, {"dC", "B"}, {"A", "dC"}, {"A", "dC"}};
  int64_t batch = -1;
  *args = dg_gemm_args_init();
  if (!check_rank(names[in->op][0], in->left) || !check_rank(names[in->op][1], in->right) ||
      !join_batch(names[in->op][0], in->left, &batch) ||
      !join_batch(names[in->op][1], in->right, &batch))
    return false;
  args->batch = batch < 0 ? 1 : batch;
  args->a = matrix(in->left);
  args->b = matrix(in->right);
  if (in->op == OP_GRAD_B || in->op == OP_GRAD_B_T) args->a = dg_transposed(args->a);
  if ((in->op == OP_GRAD_A) != in->rhs_transposed) args->b = dg_transposed(args->b);
  if (!check_reduced(in, &args->a, &args->b) || !shape_output(in, out_dtype, args, out))
    return false;
  args->out = matrix(out);
  if (in->op == OP_GRAD_B_T) args->out = dg_transposed(args->out);
  return add_start(in, out, args) && add_bias(in, args);
}

/* The bytes from a view's first element to its last; the tool's views have no negative strides. */
static size_t view_bytes(const dg_view *v, int64_t batch) {
  if (v->rows == 0 || v->cols == 0 || batch == 0) return 0;
  const int64_t last =
      (batch - 1) * v->batch_stride + (v->rows - 1) * v->row_stride + (v->cols - 1) * v->col_stride;
  return (size_t)((last + 1) * dtype_bytes(v->dtype));
}

static int by_value(const void *x, const void *y) {
  const double a = *(const double *)x, b = *(const double *)y;
  return (a > b) - (a < b);
}

static bool run_repeated(dg_device *device, device_memory *memory, const dg_gemm_args *args,
                         int repeat, product_run *run) {
  double *times = malloc((size_t)repeat * sizeof *times);
  bool good = times != NULL;
  for (int i = 0; good && i < repeat; i++) {
    const double begin = now();
    if (dg_gemm(device, args) != DG_OK) {
      complain("%s", dg_last_error());
      good = false;
    }
    good = good && memory->platform->sync(memory);
    times[i] = now() - begin;
  }
  if (good) {
    qsort(times, (size_t)repeat, sizeof *times, by_value);
    run->seconds = times[repeat / 2];
  }
  free(times);
  return good;
}

/* Moves the inputs to the device, computes, and moves the result back. */
static bool compute_there(dg_device *device, device_memory *memory, const dg_gemm_args *args,
                          int repeat, product_run *run) {
  dg_gemm_args there = *args;
  dg_view *views[] = {&there.a, &there.b, &there.out, &there.start, &there.bias};
  void *copies[5] = {NULL};
  bool good = true;
  for (int i = 0; good && i < 5; i++) {
    if (views[i]->data == NULL) continue;
    copies[i] = device_memory_copy(memory, views[i]->data, view_bytes(views[i], args->batch));
    good = copies[i] != NULL;
    views[i]->data = copies[i];
  }
  good = good && run_repeated(device, memory, &there, repeat, run) &&
         memory->platform->to_host(memory, args->out.data, there.out.data,
                                   view_bytes(&args->out, args->batch));
  for (int i = 0; i < 5; i++)
    if (copies[i]) memory->platform->release(memory, copies[i]);
  return good;
}

bool product_compute(dg_device *device, device_memory *memory, const dg_gemm_args *args, int repeat,
                     product_run *run) {
  if (dg_gemm_kernel(device, args, &run->kernel) != DG_OK) {
    complain("%s", dg_last_error());
    return false;
  }
  if (device_memory_is_host(memory)) return run_repeated(device, memory, args, repeat, run);
  return compute_there(device, memory, args, repeat, run);
}
