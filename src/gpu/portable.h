/* One kernel source for CUDA, MUSA, HIP, OpenCL C and plain C: what these languages spell
 * differently. Kernels written with it use no warp size, no shuffles, no templates and no a*b+c:
 * the only multiply-add is DG_FMA. */
#ifndef DETGEMM_PORTABLE_H
#define DETGEMM_PORTABLE_H

#include "../problem.h"
#include "tuning.h"

#if defined(__OPENCL_VERSION__)
#pragma OPENCL FP_CONTRACT OFF
#define DG_INLINE static inline
#define DG_GLOBAL __global
#define DG_BLOCK __local
#define DG_BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#define DG_THREAD ((int)get_local_id(0))
#define DG_GROUP ((long)get_group_id(0))
#define DG_FMA(a, b, c) fma(a, b, c)
#define DG_BITS(x) as_uint(x)
#define DG_FLOAT(x) as_float(x)
typedef float2 dg_float2;
typedef float4 dg_float4;
typedef uint2 dg_uint2;
typedef uint4 dg_uint4;
/* Buffers come as arguments of their own, since no structure may hold a pointer; an operand's data
 * is then an offset in bytes. */
#define DG_KERNEL(first, name, threads, blocks)                              \
  __kernel __attribute__((reqd_work_group_size(threads, 1, 1))) void name(   \
      __global char *a_data, __global char *b_data, __global char *out_data, \
      __global char *start_data, __global char *bias_data, const first, const dg_gpu_tuning t)
#define DG_GROUPED_KERNEL(name, threads, blocks)                                              \
  __kernel __attribute__((reqd_work_group_size(threads, 1, 1))) void name(                    \
      __global char *a_data, __global char *b_data, __global char *out_data,                  \
      __global char *start_data, __global char *bias_data, __global const char *offsets_data, \
      const dg_grouped g, const dg_gpu_tuning t)
#define DG_DATA(operand) (operand##_data + p.operand.data)
#define DG_OFFSETS(g) (offsets_data ? offsets_data + (g).offsets : (__global const char *)0)
/* For a function that uses DG_DATA, behind its last parameter and argument. */
#define DG_DATA_PARAMETERS                                                 \
  , __global char *a_data, __global char *b_data, __global char *out_data, \
      __global char *start_data, __global char *bias_data
#define DG_DATA_ARGUMENTS , a_data, b_data, out_data, start_data, bias_data
#define DG_MOVE(address, bytes) ((address) += (bytes))
#define DG_BLOCK_MEMORY(name, floats) __local float name[floats] __attribute__((aligned(16)))

#else

typedef struct dg_float2 {
  float x, y;
} __attribute__((aligned(8))) dg_float2;
typedef struct dg_float4 {
  float x, y, z, w;
} __attribute__((aligned(16))) dg_float4;
typedef struct dg_uint2 {
  uint32_t x, y;
} __attribute__((aligned(8))) dg_uint2;
typedef struct dg_uint4 {
  uint32_t x, y, z, w;
} __attribute__((aligned(16))) dg_uint4;
#define DG_GLOBAL
#define DG_BLOCK
#define DG_DATA(operand) ((char *)p.operand.data)
#define DG_OFFSETS(g) ((const char *)(g).offsets)
#define DG_DATA_PARAMETERS
#define DG_DATA_ARGUMENTS
#define DG_MOVE(address, bytes) ((address) = (address) ? (char *)(address) + (bytes) : (char *)0)
#define DG_GROUPED_KERNEL(name, threads, blocks) DG_KERNEL(dg_grouped g, name, threads, blocks)

#if defined(__HIP__) /* clang without the HIP headers: builtins */
#define DG_INLINE static __attribute__((device, always_inline))
#define DG_BARRIER()                                                                    \
  (__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"), __builtin_amdgcn_s_barrier(), \
   __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"))
#define DG_THREAD ((int)__builtin_amdgcn_workitem_id_x())
#define DG_GROUP ((int64_t)__builtin_amdgcn_workgroup_id_x())
#define DG_FMA(a, b, c) __builtin_fmaf(a, b, c)
#define DG_BITS(x) __builtin_bit_cast(uint32_t, x)
#define DG_FLOAT(x) __builtin_bit_cast(float, x)
#define DG_KERNEL(first, name, threads, blocks)                                           \
  extern "C" __attribute__((global)) void __attribute__((launch_bounds(threads, blocks))) \
  name(const first, const dg_gpu_tuning t)
#define DG_BLOCK_MEMORY(name, floats) \
  extern __attribute__((shared)) __attribute__((aligned(16))) float name[]

#elif defined(__CUDACC__) || defined(__MUSACC__)
#define DG_INLINE static __device__ __forceinline__
#if defined(__MUSA_ARCH__) && __MUSA_ARCH__ >= 310
#define DG_BARRIER() __syncthreads_lm()
#else
#define DG_BARRIER() __syncthreads()
#endif
#define DG_THREAD ((int)threadIdx.x)
#define DG_GROUP ((int64_t)blockIdx.x)
#define DG_FMA(a, b, c) fmaf(a, b, c)
#define DG_BITS(x) __float_as_uint(x)
#define DG_FLOAT(x) __uint_as_float(x)
#if defined(__NVCC__)
#define DG_PARAMETER const __grid_constant__
#else
#define DG_PARAMETER const
#endif
#define DG_KERNEL(first, name, threads, blocks)                 \
  extern "C" __global__ void __launch_bounds__(threads, blocks) \
      name(DG_PARAMETER first, DG_PARAMETER dg_gpu_tuning t)
#define DG_BLOCK_MEMORY(name, floats) extern __shared__ __align__(16) float name[]

#else /* plain C: tests run the kernels natively; they provide the dg_native_ functions */
#include <math.h>
#include <string.h>
int dg_native_thread(void);
int64_t dg_native_group(void);
void dg_native_barrier(void);
float *dg_native_block_memory(void);
#define DG_INLINE static inline
#define DG_BARRIER() dg_native_barrier()
#define DG_THREAD dg_native_thread()
#define DG_GROUP dg_native_group()
#define DG_FMA(a, b, c) fmaf(a, b, c)
static inline uint32_t dg_bits(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}
static inline float dg_float(uint32_t u) {
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}
#define DG_BITS(x) dg_bits(x)
#define DG_FLOAT(x) dg_float(x)
#define DG_KERNEL(first, name, threads, blocks) \
  void name(first, dg_gpu_tuning t);            \
  void name(first, dg_gpu_tuning t)
#define DG_BLOCK_MEMORY(name, floats) float *const name = dg_native_block_memory()
#endif
#endif

/* Copies of 16 bytes into block memory that run while the thread goes on, where the device has
 * them: those before a DG_COPIES_COMMIT() are one group, and DG_COPIES_WAIT(n) waits for all groups
 * but the last n. A DG_BARRIER() must follow. */
#if defined(__NVCC__) && !defined(__MUSACC__)
#define DG_COPY_16(to, from)                                                                     \
  asm volatile(                                                                                  \
      "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), \
      "l"(from))
#define DG_COPIES_COMMIT() asm volatile("cp.async.commit_group;")
#define DG_COPIES_WAIT(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")
#else
#define DG_COPY_16(to, from) *(DG_BLOCK dg_uint4 *)(to) = *(DG_GLOBAL const dg_uint4 *)(from)
#define DG_COPIES_COMMIT()
#define DG_COPIES_WAIT(n)
#endif

#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__) && !defined(__OPENCL_VERSION__)
#define DG_UNROLL _Pragma("GCC unroll 16")
#define DG_UNROLL_BY_4 _Pragma("GCC unroll 4")
#else
#define DG_UNROLL_BY_4 _Pragma("unroll 4")
#define DG_UNROLL _Pragma("unroll")
#endif

#endif
