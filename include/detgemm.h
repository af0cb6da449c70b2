/* detgemm: matrix products whose bits are defined by a written order.
 *
 * The promise. An element of a result depends on nothing but its row of A, its column of B, its
 * start value and the order asked for. Not on M, N, strides, alignment, batch, position, threads,
 * device, compiler or the caller's floating-point environment. docs/orders.md defines the two
 * orders bit by bit. An order never changes; a changed one would get a new name. What cannot be
 * computed in the order asked for is an error, never another order in silence.
 *
 * Conventions. A view is a strided matrix in memory; strides count elements and may be zero (inputs
 * only) or negative. On the CPU data needs no alignment at all, on a GPU that of its element. Every
 * function returns a status; dg_last_error() explains the last failure on the calling thread. On
 * failure nothing has been written to the output. The library never prints and never aborts. Any
 * number of threads may call at once, also on one device handle.
 */
#ifndef DETGEMM_H
#define DETGEMM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef DG_API
#define DG_API
#endif

/* Both languages without a warning; undefined at the end. */
#ifdef __cplusplus
#define DG_ZEROS \
  {}
#define DG_WRITABLE(pointer) const_cast<void *>(pointer)
#else
#define DG_ZEROS \
  { 0 }
#define DG_WRITABLE(pointer) ((void *)(uintptr_t)(pointer))
#endif

/* The version of the library, and the number that changes when a program built against an older
 * header can no longer be linked. The shared library's soname is the ABI number. */
#define DG_VERSION_MAJOR 0
#define DG_VERSION_MINOR 1
#define DG_VERSION_PATCH 0
#define DG_ABI 0

/* Status codes. The values are pinned. */
typedef enum dg_status {
  DG_OK = 0,
  DG_ERROR_ARGUMENT = 1,    /* a wrong value, shape, stride, dtype, overlap or null */
  DG_ERROR_UNSUPPORTED = 2, /* right in itself, but not to be had on this device in this order */
  DG_ERROR_MEMORY = 3,      /* work memory could not be allocated */
  DG_ERROR_DEVICE = 4,      /* no such device, or its driver reported an error */
} dg_status;

/* Element types. BF16 is what the library is for. */
typedef enum dg_dtype {
  DG_BF16 = 1, /* 1 sign, 8 exponent, 7 mantissa bits */
  DG_F16 = 2,  /* IEEE 754 binary16 */
  DG_F32 = 3,  /* IEEE 754 binary32; as A and B for the fma order only */
} dg_dtype;

/* The order of summation (docs/orders.md). */
typedef enum dg_order {
  DG_ORDER_FMA = 1,  /* one fused multiply-add in binary32 per k, k ascending; every device */
  DG_ORDER_TC16 = 2, /* the Hopper tensor core: 16 products and the accumulator at a time */
} dg_order;

/* A strided matrix, or a batch of them. Element (i, j) of product z is at
 * data + z * batch_stride + i * row_stride + j * col_stride, counted in elements of dtype. */
typedef struct dg_view {
  void *data; /* inputs are only read; may be NULL where the view has no elements */
  int64_t rows, cols;
  int64_t row_stride, col_stride;
  int64_t batch_stride; /* ignored where the batch count is 1 */
  dg_dtype dtype;
} dg_view;

/* The arguments of dg_gemm: out[M,N] = round(bias + (start + sum over k of a[M,K] b[K,N])).
 * Begin with dg_gemm_args_init(), so that later fields keep their defaults. */
typedef struct dg_gemm_args {
  size_t size;    /* sizeof(dg_gemm_args) */
  dg_order order; /* no default: an order is always chosen */
  dg_view a;      /* [M,K]; BF16, F16, or F32 (fma only) */
  dg_view b;      /* [K,N]; the dtype of a. A [N,K] weight is this view with its strides swapped */
  dg_view out;    /* [M,N]; BF16, F16 or F32; no two elements may coincide or overlap an input */
  dg_view start;  /* [M,N] F32, the state to continue from; data NULL: +0. It may be exactly out */
  dg_view bias;   /* [1,N] BF16, F16 or F32, added in FP32 before the one rounding; NULL: none */
  int64_t batch;  /* how many products; 1 by default; 0 does nothing */
  void *stream;   /* the device's raw stream (cudaStream_t, musaStream_t, ...); NULL: its default */
} dg_gemm_args;

/* Arguments with every default set: batch 1, no start, no bias, default stream. */
static inline dg_gemm_args dg_gemm_args_init(void) {
  dg_gemm_args args = DG_ZEROS;
  args.size = sizeof args;
  args.batch = 1;
  return args;
}

/* A row-major matrix without gaps between its rows. */
static inline dg_view dg_row_major(const void *data, dg_dtype dtype, int64_t rows, int64_t cols) {
  dg_view view = DG_ZEROS;
  view.data = DG_WRITABLE(data);
  view.rows = rows;
  view.cols = cols;
  view.row_stride = cols;
  view.col_stride = 1;
  view.batch_stride = rows * cols;
  view.dtype = dtype;
  return view;
}

/* The same elements with rows and columns exchanged. Nothing is copied. */
static inline dg_view dg_transposed(dg_view view) {
  dg_view t = view;
  t.rows = view.cols;
  t.cols = view.rows;
  t.row_stride = view.col_stride;
  t.col_stride = view.row_stride;
  return t;
}

/* An opened device. */
typedef struct dg_device dg_device;

/* Opens a device by name: "cpu", "cuda:0", ... (a name without a number means 0).
 *
 * A device proves itself here, once per process: every kernel family it offers is compared with
 * the scalar reference, and one that differs in a bit is withheld with a reason (dg_kernel_at).
 * Environment, read here: DETGEMM_CPU=generic|avx2|avx512|neon limits the CPU's instruction set;
 * DETGEMM_KERNEL=PATTERN (a shell wildcard) limits the kernels to those whose name matches.
 * Returns DG_ERROR_ARGUMENT for a name that names no back end or an environment value that is not
 * known, DG_ERROR_DEVICE where the device, its driver or its back end is not there,
 * DG_ERROR_MEMORY, DG_ERROR_UNSUPPORTED where this build of the library is itself unsound (unsafe
 * compiler flags). *device is NULL then. */
DG_API dg_status dg_device_open(const char *name, dg_device **device);

/* Closes a device. NULL is allowed. No call on it may be under way. */
DG_API void dg_device_close(dg_device *device);

/* Sets how many threads a call on this handle may use: 1 or more, or 0 for the default
 * (OMP_NUM_THREADS, else the processors this process may run on). It never changes a bit. Devices
 * other than the CPU take the value and ignore it. */
DG_API dg_status dg_device_set_threads(dg_device *device, int threads);

/* The canonical name, such as "cuda:0", and one line about the hardware. They live as long as the
 * handle. */
DG_API const char *dg_device_name(const dg_device *device);
DG_API const char *dg_device_description(const dg_device *device);

/* How many devices this process could open, and the name of the i-th (NULL past the end), for
 * example "cpu", "cuda:0". A name is valid until the next such call of the thread. */
DG_API int dg_device_count(void);
DG_API const char *dg_device_name_at(int index);

/* The product. See dg_gemm_args. On a GPU the call is asynchronous on args->stream, pointers are
 * device pointers, nothing is allocated or synchronised, and stream capture is allowed.
 * Returns DG_ERROR_ARGUMENT, DG_ERROR_UNSUPPORTED, DG_ERROR_MEMORY or DG_ERROR_DEVICE; the output
 * is untouched then. */
DG_API dg_status dg_gemm(dg_device *device, const dg_gemm_args *args);

/* The named operations: dg_gemm without start, bias and batch. FP32 output is a matter of the
 * output view's dtype. stream as in dg_gemm_args.
 *
 *   dg_forward      out[M,N] = a[M,K] b[K,N]          summed over K
 *   dg_forward_nt   out[M,N] = a[M,K] w[N,K]^T        summed over K
 *   dg_grad_a       da[M,K]  = dc[M,N] b[K,N]^T       summed over N
 *   dg_grad_b       db[K,N]  = a[M,K]^T dc[M,N]       summed over M, tokens ascending
 *   dg_grad_b_t     dw[N,K]  = the same bits as dg_grad_b, written transposed
 */
DG_API dg_status dg_forward(dg_device *device, void *stream, dg_order order, dg_view a, dg_view b,
                            dg_view out);
DG_API dg_status dg_forward_nt(dg_device *device, void *stream, dg_order order, dg_view a,
                               dg_view w, dg_view out);
DG_API dg_status dg_grad_a(dg_device *device, void *stream, dg_order order, dg_view dc, dg_view b,
                           dg_view da);
DG_API dg_status dg_grad_b(dg_device *device, void *stream, dg_order order, dg_view a, dg_view dc,
                           dg_view db);
DG_API dg_status dg_grad_b_t(dg_device *device, void *stream, dg_order order, dg_view a, dg_view dc,
                             dg_view dw);

/* ---- grouped products: mixtures of experts ---- */

/* Rows of a matrix dealt out to groups (experts): group e has rows offsets[e] to offsets[e+1] - 1,
 * which may be none. Rows before the first and after the last offset belong to nobody. On a GPU the
 * offsets are in device memory, like the data. */
typedef struct dg_groups {
  int64_t count;       /* E, 0 or more */
  const void *offsets; /* E + 1 ascending numbers from 0 to the number of rows */
  int offset_bytes;    /* 4: int32_t, 8: int64_t */
} dg_groups;

/* Which dimension the offsets cut. The two serve all operations of a layer of experts; T counts the
 * rows (tokens) of all groups together:
 *
 *                  group e computes                              a       b            out
 *   DG_SPLIT_M     out[rows of e] = a[rows of e] b[e]            [T,K]   E x [K,N]    [T,N]
 *   DG_SPLIT_K     out[e] = a[:, rows of e] b[rows of e]         [M,T]   [T,N]        E x [M,N]
 *
 * DG_SPLIT_M is the forward product and, with each b[e] transposed, the gradient of the tokens;
 * DG_SPLIT_K with a transposed is the gradient of the weights: dW[e] = dC[rows of e]^T A[rows of
 * e]. */
typedef enum dg_split {
  DG_SPLIT_M = 1,
  DG_SPLIT_K = 2,
} dg_split;

/* The arguments of dg_gemm_grouped. The views are those of dg_gemm_args; "E x" marks the ones with
 * a matrix per group, batch_stride apart. Begin with dg_grouped_args_init(). */
typedef struct dg_grouped_args {
  size_t size;    /* sizeof(dg_grouped_args) */
  dg_order order; /* no default */
  dg_split split; /* no default */
  dg_groups groups;
  dg_view a, b, out; /* see dg_split */
  dg_view start;     /* F32, shaped like out; data NULL: +0. It may be exactly out */
  dg_view bias;      /* E x [1,N], or one for all: batch_stride 0; data NULL: none */
  void *stream;
} dg_grouped_args;

static inline dg_grouped_args dg_grouped_args_init(void) {
  dg_grouped_args args = DG_ZEROS;
  args.size = sizeof args;
  return args;
}

/* The product of every group, in one call. Each has the bits of dg_gemm on its rows alone, so they
 * do not depend on the other groups or on how many rows they have. Under DG_SPLIT_M a group without
 * rows writes nothing, and rows of nobody are left as they are; under DG_SPLIT_K a group without
 * rows gives its start, or zeros. In the tc16 order the 16 k of a step are counted from the group's
 * first row.
 *
 * On the CPU offsets that descend, are negative or exceed the rows are DG_ERROR_ARGUMENT, and
 * nothing is written. A GPU reads the offsets only when the kernel runs, so that nothing has to
 * wait for them: there such offsets give results without meaning, but a group never reaches outside
 * the views. DG_ERROR_UNSUPPORTED where the device has no grouped products; otherwise as dg_gemm.
 */
DG_API dg_status dg_gemm_grouped(dg_device *device, const dg_grouped_args *args);

/* The named operations, over weights w of E x [N,K] (stacked torch.nn.Linear weights; another
 * layout is another pair of strides):
 *
 *   dg_grouped_forward   out[T,N] = a[T,K] w[e]^T      summed over K
 *   dg_grouped_grad_a    da[T,K]  = dc[T,N] w[e]       summed over N
 *   dg_grouped_grad_b    dw[e][N,K] = dc^T a           summed over the rows of e, ascending
 */
DG_API dg_status dg_grouped_forward(dg_device *device, void *stream, dg_order order,
                                    dg_groups groups, dg_view a, dg_view w, dg_view out);
DG_API dg_status dg_grouped_grad_a(dg_device *device, void *stream, dg_order order,
                                   dg_groups groups, dg_view dc, dg_view w, dg_view da);
DG_API dg_status dg_grouped_grad_b(dg_device *device, void *stream, dg_order order,
                                   dg_groups groups, dg_view a, dg_view dc, dg_view dw);

/* A kernel of a device. The strings live as long as the process. */
typedef struct dg_kernel_info {
  const char *name;     /* <order>_<tile>_<instruction set>, for example fma_6x16_avx2 */
  dg_order order;       /* whose bits it gives */
  const char *withheld; /* why it is not used here, or NULL */
} dg_kernel_info;

/* The kernels of a device in table order, withheld ones included. DG_ERROR_ARGUMENT past the end.
 */
DG_API int dg_kernel_count(const dg_device *device);
DG_API dg_status dg_kernel_at(const dg_device *device, int index, dg_kernel_info *info);

/* Which kernel dg_gemm would use for these arguments. Computes nothing, reads and writes no data.
 */
DG_API dg_status dg_gemm_kernel(dg_device *device, const dg_gemm_args *args, dg_kernel_info *info);

/* One sentence on the last failure of the calling thread: the argument, its value, the limit and
 * what would work. Empty when no call has failed. Valid until the thread's next failing call. */
DG_API const char *dg_last_error(void);

/* "ok", "bad argument", ...; and the version as "0.1.0". Static strings. */
DG_API const char *dg_status_string(dg_status status);
DG_API const char *dg_version(void);

/* The ABI number of the library at run time; compare with DG_ABI. */
DG_API int dg_abi(void);

/* OpenCL only. On an OpenCL device a data pointer is memory of this process, plain or SVM, or an
 * address that stands for a place in a cl_mem: dg_opencl_attach() retains the buffer and gives the
 * address of its first byte, for pointer arithmetic and for views only, never to be dereferenced,
 * until dg_opencl_detach(). stream is a cl_command_queue, in order and of the device, in whose
 * context the buffers and SVM live; NULL is a queue and a context of the library's own, which suits
 * plain memory only. A call that touches plain memory returns when its results are there; others
 * are asynchronous. Plain memory that the output's rows span is written back as a whole.
 * Return DG_ERROR_ARGUMENT, DG_ERROR_MEMORY or DG_ERROR_DEVICE. */
DG_API dg_status dg_opencl_attach(void *mem, void **address);
DG_API dg_status dg_opencl_detach(void *address);

/* The scalar definition of an order, on host memory: slow on purpose, one element at a time, and
 * what every kernel is compared with. Same arguments and errors as dg_gemm and
 * dg_gemm_grouped; args->stream is ignored. Not for production use. */
DG_API dg_status dg_reference(const dg_gemm_args *args);
DG_API dg_status dg_reference_grouped(const dg_grouped_args *args);

#undef DG_ZEROS
#undef DG_WRITABLE

#ifdef __cplusplus
}
#endif

#endif
