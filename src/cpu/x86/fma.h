/* What the x86 kernels of the fma order share. Panels hold binary32: k after k, a fixed number of
 * lines each. */
#ifndef DETGEMM_X86_FMA_H
#define DETGEMM_X86_FMA_H

#include "../cpu.h"

#if defined(__x86_64__)

dg_tile_fn dg_fma_6x16_avx2, dg_fma_3x32_avx2, dg_fma_1x32_avx2;
dg_tile_fn dg_fma_14x32_avx512, dg_fma_8x32_avx512, dg_fma_1x64_avx512;
dg_direct_fn dg_fma_direct_3x32_avx2, dg_fma_direct_1x32_avx2;
dg_direct_fn dg_fma_direct_8x32_avx512, dg_fma_direct_1x64_avx512;
dg_across_fn dg_fma_across_avx2, dg_fma_across_avx512;
dg_pack_fn dg_fma_pack_1_avx2, dg_fma_pack_4_avx2, dg_fma_pack_8_avx2, dg_fma_pack_16_avx2,
    dg_fma_pack_32_avx2, dg_fma_pack_64_avx2;
dg_round_fn dg_round_avx2;

#endif
#endif
