/* Conversions between the element types, the one rounding, and the canonical NaN, in integer
 * arithmetic, so that no floating-point environment and no compiler flag can change them. */
#ifndef DETGEMM_NUM_H
#define DETGEMM_NUM_H

#include <float.h>
#include <stdint.h>
#include <string.h>

#include "detgemm.h"

#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) || \
    defined(__NO_SIGNED_ZEROS__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "detgemm defines every bit of its results; build it without -ffast-math and its parts"
#endif
#if FLT_EVAL_METHOD != 0 || FLT_RADIX != 2 || FLT_MANT_DIG != 24
#error "detgemm needs float arithmetic in IEEE 754 binary32 (on 32-bit x86: -msse2 -mfpmath=sse)"
#endif

#define DG_NAN_F32 0x7fc00000u
#define DG_NAN_BF16 0x7fc0u
#define DG_NAN_F16 0x7e00u

static inline uint32_t dg_f32_bits(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}

static inline float dg_f32_from_bits(uint32_t u) {
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

static inline uint32_t dg_canonical_f32(uint32_t u) {
  return (u & 0x7fffffffu) > 0x7f800000u ? DG_NAN_F32 : u;
}

static inline uint32_t dg_bf16_to_f32(uint16_t h) { return (uint32_t)h << 16; }

/* Nearest, ties to even; a carry out of the mantissa is the next exponent, up to infinity. */
static inline uint16_t dg_f32_to_bf16(uint32_t u) {
  if ((u & 0x7fffffffu) > 0x7f800000u) return DG_NAN_BF16;
  return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

static inline uint32_t dg_f16_to_f32(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
  uint32_t exponent = (h >> 10) & 0x1fu, mantissa = h & 0x3ffu;
  if (exponent == 0x1f) return sign | 0x7f800000u | (mantissa << 13);
  if (exponent == 0) {
    if (mantissa == 0) return sign;
    int shift = 0; /* normalise: every binary16 subnormal is a normal binary32 */
    while (!(mantissa & 0x400u)) mantissa <<= 1, shift++;
    exponent = (uint32_t)(1 - shift);
    mantissa &= 0x3ffu;
  }
  return sign | ((exponent + 112u) << 23) | (mantissa << 13);
}

static inline uint16_t dg_f32_to_f16(uint32_t u) {
  uint16_t sign = (uint16_t)((u >> 16) & 0x8000u);
  uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return DG_NAN_F16;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u; /* 65520 and more round to infinity */
  if (magnitude < 0x33000000u) return sign;            /* less than half the least subnormal */
  uint32_t exponent = magnitude >> 23, mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  /* keep the bits above 2^-24 (subnormal) or above 10 fraction bits (normal) */
  int drop = exponent < 113u ? 126 - (int)exponent : 13;
  uint32_t kept = mantissa >> drop, rest = mantissa & ((1u << drop) - 1u), half = 1u << (drop - 1);
  kept += rest > half || (rest == half && (kept & 1u));
  if (exponent >= 113u) kept += (exponent - 113u) << 10; /* kept holds the hidden bit: +1 there */
  return (uint16_t)(sign | kept);
}

static inline int64_t dg_dtype_bytes(int dtype) { return dtype == DG_F32 ? 4 : 2; }

/* The element at p, of any alignment, as binary32 bits (exact). */
static inline uint32_t dg_load(const void *p, int dtype) {
  uint32_t u;
  uint16_t h;
  if (dtype == DG_F32) {
    memcpy(&u, p, sizeof u);
    return u;
  }
  memcpy(&h, p, sizeof h);
  return dtype == DG_BF16 ? dg_bf16_to_f32(h) : dg_f16_to_f32(h);
}

/* Rounds the binary32 bits u to dtype, NaN canonical, and writes it at p, of any alignment. */
static inline void dg_store(void *p, int dtype, uint32_t u) {
  if (dtype == DG_F32) {
    u = dg_canonical_f32(u);
    memcpy(p, &u, sizeof u);
    return;
  }
  uint16_t h = dtype == DG_BF16 ? dg_f32_to_bf16(u) : dg_f32_to_f16(u);
  memcpy(p, &h, sizeof h);
}

#endif
