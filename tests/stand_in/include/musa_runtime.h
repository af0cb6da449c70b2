/* Stands in for Moore Threads' header where MUSA sources are compiled by another CUDA-like
 * compiler: nvcc has all these names built in, clang without any headers has none. */
#if !defined(__NVCC__)
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))

struct stand_in_index {
  int x;
};
#define threadIdx (stand_in_index{__nvvm_read_ptx_sreg_tid_x()})
#define blockIdx (stand_in_index{__nvvm_read_ptx_sreg_ctaid_x()})

/* MP_31's own spelling is another barrier, so that the code shows which was used. */
#define __syncthreads() __nvvm_bar_sync(0)
#if __MUSA_ARCH__ >= 310
#define __syncthreads_lm() __nvvm_bar_sync(1)
#endif

#define fmaf(a, b, c) __builtin_fmaf(a, b, c)
#define __float_as_uint(x) __builtin_bit_cast(unsigned, x)
#define __uint_as_float(x) __builtin_bit_cast(float, x)
#endif
