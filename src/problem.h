/* What every operation becomes: one strided product. Plain data, so that GPU kernels take it by
 * value; it is included by C and by CUDA sources. */
#ifndef DETGEMM_PROBLEM_H
#define DETGEMM_PROBLEM_H

#if defined(__OPENCL_VERSION__) /* its structures hold no pointers: the data comes beside them */
typedef int int32_t;
typedef long int64_t;
typedef uint uint32_t;
typedef ulong dg_address;
typedef ulong dg_const_address;
#else
#include <stdint.h>
typedef void *dg_address;
typedef const void *dg_const_address;
#endif

/* Element (i, j) of product z is at data + z * bs + i * rs + j * cs, in elements of dtype. The
 * stride of a dimension of one element is 0. */
typedef struct dg_operand {
  dg_address data; /* NULL: absent (start: +0, bias: none) */
  int64_t rs, cs, bs;
  int32_t dtype; /* a dg_dtype */
  int32_t reserved;
} dg_operand;

/* out[m,n] = round(start[m,n] + sum over k of a[m,k] b[k,n], then + bias), batch times. bias is one
 * value per row or per column: one of its strides is zero. m and n may have been exchanged
 * against the caller's (problem.c), which changes no bit: both orders are symmetric in a and b. */
typedef struct dg_problem {
  int64_t m, n, k, batch;
  dg_operand a;   /* rs: stride of m, cs: stride of k */
  dg_operand b;   /* rs: stride of k, cs: stride of n */
  dg_operand out; /* rs: stride of m, cs: stride of n; likewise start and bias */
  dg_operand start;
  dg_operand bias;
  int32_t order; /* a dg_order */
  int32_t reserved;
} dg_problem;

/* A grouped product: one problem over all rows, cut at the offsets into one product per group. What
 * belongs to a group rather than to its rows steps by its bs from group to group:
 *   DG_SPLIT_M: p.m is cut; b and bias step
 *   DG_SPLIT_K: p.k is cut; out, start and bias step
 * p.batch is 1 and not the number of groups. */
typedef struct dg_grouped {
  dg_problem p;
  int64_t groups;
  dg_const_address offsets; /* groups + 1 of them, where the device can read them */
  int32_t offset_bytes;     /* 4 or 8 */
  int32_t split;            /* a dg_split */
} dg_grouped;

#endif
