/* What the x86 kernels of the tc16 order share; what is named avx2 needs AVX2, FMA and F16C only.
 *
 * A panel of B is a row of groups of 32 columns. The slots of a group: byte 16 l + 4 v + d of the
 * 32 exponents and value 8 v + 4 l + d (l < 2, v < 4, d < 4) belong to one column, so that four
 * in-lane shuffles spread the exponents over four vectors. With several groups, vector v of each
 * lie side by side. */
#ifndef DETGEMM_X86_TC16_H
#define DETGEMM_X86_TC16_H

#include "../tc16.h"

#if defined(__x86_64__)

/* The kernels, for the rows of table.c. */
dg_tile_fn dg_tc16_8x32_avx2, dg_tc16_1x32_avx2, dg_tc16_16x32_avx2;
dg_tile_fn dg_tc16_8x64_avx512, dg_tc16_1x64_avx512, dg_tc16_16x64_avx512;
dg_direct_fn dg_tc16_direct_1x32_avx2, dg_tc16_direct_16x32_avx2;
dg_direct_fn dg_tc16_direct_1x64_avx512, dg_tc16_direct_16x64_avx512;
dg_pack_fn dg_tc16_pack_a16_avx2, dg_tc16_pack_a8_avx2, dg_tc16_pack_a1_avx2, dg_tc16_pack_b32_avx2,
    dg_tc16_pack_b64_avx2;

void dg_tc16_pack_a_avx2(const dg_strip *s, int64_t count, int64_t k, void *panel, int rows);
void dg_tc16_pack_b_avx2(const dg_strip *s, int64_t count, int64_t k, void *panel, int groups);

bool dg_tc16_calm_avx2(const float *state, int count);
dg_tc16_way dg_tc16_wide_avx2;

/* Continues the first rows of a row-major tile: its values in slots, rounding toward zero,
 * dg_tc16_steps. */
void dg_tc16_run_avx2(int64_t k, const void *a, const void *b, float *tile, int rows,
                      const dg_tc16_ways *ways);

/* The same with the columns read where they lie, packed a little at a time into the first cache. */
void dg_tc16_direct_avx2(int64_t k, const void *a, const dg_strip *b, float *tile, int rows,
                         const dg_tc16_ways *ways);

#endif
#endif
