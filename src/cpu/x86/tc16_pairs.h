/* The fast way of the tc16 order from BF16 columns where they lie, for any vector length; exact for
 * the reasons given in ../tc16.h. A vector of pairs holds two neighbours in k of a vector of
 * columns: those of even k in the low halves of its words, those of odd k in the high ones. A step
 * is 8 such vectors.
 *
 * The file that includes this defines INLINE, TARGET, LANES, NR, MR, the vectors fvec and ivec, OP
 * (an intrinsic of their length), AND, FLOATS and INTS (casts), LOAD, NONE (whether all bits are
 * 0), quarter (16 bytes in every lane of 128 bits), cut and finish, part and join (between two
 * vectors of neighbouring columns and the columns whose pairs unpacking the low and the high halves
 * gives), transpose: TURNED words of LANES lines to pairs, and fast, its way for packed columns. */

enum { FIELD = 0x7f800000, TOP_E = 127 + DG_TC16_FAST_MAX, LEAST_E = 127 + DG_TC16_FAST_MIN };

/* 16 k of LANES columns: the values, and 4 k at a time of the exponents, as differences from
 * 127 + DOWN. Zeros have 255; so have some outside the window, where it does not matter. */
typedef struct expanded {
  fvec value[16];
  ivec down[4];
} expanded;

/* Returns whether all of them are zero or in the window. */
INLINE bool expand(const ivec x[8], expanded *y) {
  const ivec one = OP(set1_epi16)(1);
  ivec least = OP(set1_epi16)(-1), most = OP(set1_epi8)(0);
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    const ivec m0 = OP(slli_epi16)(x[2 * i], 1), m1 = OP(slli_epi16)(x[2 * i + 1], 1);
    const ivec e = OP(packus_epi16)(OP(srli_epi16)(m0, 8), OP(srli_epi16)(m1, 8));
    const ivec down = OP(sub_epi8)(OP(set1_epi8)((char)(127 + DG_TC16_DOWN)), e);
    least = OP(min_epu16)(least, OP(min_epu16)(OP(sub_epi16)(m0, one), OP(sub_epi16)(m1, one)));
    most = OP(max_epu8)(most, e);
    y->down[i] = OP(adds_epu8)(down, AND(down, OP(set1_epi8)((char)0x80)));
  }
#pragma GCC unroll 8
  for (int w = 0; w < 8; w++) {
    y->value[2 * w] = FLOATS(OP(slli_epi32)(x[w], 16));
    y->value[2 * w + 1] = FLOATS(AND(x[w], OP(set1_epi32)((int)0xffff0000u)));
  }
  return NONE(OP(subs_epu16)(OP(set1_epi16)(LEAST_E * 256 - 1), least)) &&
         NONE(OP(subs_epu8)(most, OP(set1_epi8)((char)TOP_E)));
}

/* 2^(25-E) for one row. */
INLINE fvec scale_of(const uint32_t *up, const ivec down[4], fvec acc) {
  const ivec spread = quarter(_mm_setr_epi8(0, 4, 0, 4, 0, 4, 0, 4, 8, 12, 8, 12, 8, 12, 8, 12));
  const ivec pick = quarter(_mm_setr_epi32(0x00808080, 0x02808080, 0x04808080, 0x06808080));
  ivec top = OP(set1_epi8)(DG_TC16_LEAST_X);
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    const ivec four = quarter(_mm_loadu_si128((const void *)(up + 4 * i)));
    top = OP(max_epu8)(top, OP(subs_epu8)(OP(shuffle_epi8)(four, spread), down[i]));
  }
  top = OP(max_epu8)(top, OP(srli_epi16)(top, 8));
  top = OP(max_epu8)(top, OP(shuffle_epi32)(top, 0x4e));
  const ivec x = OP(srli_epi32)(OP(shuffle_epi8)(top, pick), 1);
  const ivec c = AND(INTS(acc), OP(set1_epi32)(FIELD));
  return FLOATS(OP(sub_epi32)(OP(set1_epi32)((int)(279u << 23)), OP(max_epi32)(x, c)));
}

INLINE fvec add_step(const dg_tc16_row *a, const expanded *y, fvec acc) {
  const fvec s = scale_of(a->up, y->down, acc);
  ivec sum = cut(acc, s);
#pragma GCC unroll 16
  for (int k = 0; k < 16; k++)
    sum = OP(add_epi32)(sum, cut(OP(mul_ps)(OP(set1_ps)(a->value[k]), y->value[k]), s));
  return finish(sum, s);
}

/* The sums of LANES columns. */
typedef struct lane_sums {
  float state[MR][LANES];
  int fast_steps; /* that the state allows before it must be looked at again */
} lane_sums;

/* A step in the wide way. */
TARGET __attribute__((noinline)) static void wide_step(const void *a, const expanded *y,
                                                       lane_sums *sums, int rows,
                                                       const dg_tc16_ways *ways) {
  _Alignas(64) char panel[DG_TC16_B_BYTES(LANES)];
  float *value = (float *)(void *)(panel + sizeof(dg_tc16_head) + 16 * LANES);
  *(dg_tc16_head *)(void *)panel = (dg_tc16_head){.marks = DG_TC16_WIDE, .e_min = -126};
  for (int k = 0; k < 16; k++) OP(storeu_ps)(value + LANES * k, y->value[k]);
  ways->wide(a, panel, sums->state[0], rows, LANES);
  sums->fast_steps = 0;
}

INLINE void pairs_step(const void *a, const ivec x[8], lane_sums *sums, int rows,
                       const dg_tc16_ways *ways) {
  const dg_tc16_row *row = dg_tc16_rows(a);
  expanded y;
  const bool fits = expand(x, &y) && ((const dg_tc16_head *)a)->marks == 0;
  if (fits && sums->fast_steps == 0 && ways->calm(sums->state[0], rows * LANES))
    sums->fast_steps = DG_TC16_FAST_STEPS;
  if (!fits || sums->fast_steps == 0) {
    wide_step(a, &y, sums, rows, ways);
    return;
  }
  sums->fast_steps--;
  for (int i = 0; i < rows; i++) {
    const fvec acc = OP(load_ps)(sums->state[i]);
    OP(store_ps)(sums->state[i], add_step(&row[i], &y, acc));
  }
}

/* ---- columns whose k lie side by side ---- */

INLINE void pairs_along(int64_t k, const char *a, const char *b, int64_t pitch, float *tile,
                        int rows, const dg_tc16_ways *ways) {
  const int bytes = DG_TC16_A_BYTES(ways->mr);
  _Alignas(64) lane_sums sums;
  ivec x[TURNED / 2];
  sums.fast_steps = 0;
  for (int i = 0; i < rows; i++) OP(store_ps)(sums.state[i], OP(loadu_ps)(tile + NR * i));
  for (; k > 0; k -= TURNED, b += 2 * TURNED) {
    uint16_t end[LANES][TURNED];
    if (k < TURNED)
      for (int i = 0; i < LANES; i++) {
        memset(end[i], 0, sizeof end[i]);
        memcpy(end[i], b + pitch * i, (size_t)(2 * k));
      }
    if (k < TURNED) transpose((const char *)end, 2 * TURNED, x);
    else transpose(b, pitch, x);
    for (int s = 0; s < TURNED && s < k; s += 16, a += bytes)
      pairs_step(a, x + s / 2, &sums, rows, ways);
  }
  for (int i = 0; i < rows; i++) OP(storeu_ps)(tile + NR * i, OP(load_ps)(sums.state[i]));
}

/* ---- columns side by side ---- */

/* Two vectors of columns; their neighbours, which come next, are asked for. */
INLINE void pairs_across(int64_t k, const char *a, const dg_strip *b, float *tile, int rows,
                         const dg_tc16_ways *ways) {
  const int bytes = DG_TC16_A_BYTES(ways->mr);
  _Alignas(64) lane_sums low, high;
  low.fast_steps = high.fast_steps = 0;
  for (int i = 0; i < rows; i++) part(tile + NR * i, low.state[i], high.state[i]);
  const char *from = b->data;
  for (; k > 0; k -= 16, a += bytes) {
    ivec x[8], y[8];
#pragma GCC unroll 8
    for (int w = 0; w < 8; w++) {
      ivec line[2];
#pragma GCC unroll 2
      for (int h = 0; h < 2; h++, from += 2 * b->ks) {
        line[h] = OP(set1_epi8)(0);
        if (2 * w + h >= k) continue;
        line[h] = LOAD(from);
        _mm_prefetch(from + 2 * NR, _MM_HINT_T0);
      }
      x[w] = OP(unpacklo_epi16)(line[0], line[1]);
      y[w] = OP(unpackhi_epi16)(line[0], line[1]);
    }
    pairs_step(a, x, &low, rows, ways);
    pairs_step(a, y, &high, rows, ways);
  }
  for (int i = 0; i < rows; i++) join(low.state[i], high.state[i], tile + NR * i);
}

TARGET static void pairs(int64_t k, const void *a, const dg_strip *b, float *tile, int rows,
                         const dg_tc16_ways *ways) {
  dg_strip s = *b;
  for (int j = 0; b->is == 1 && j < NR; j += 2 * LANES) {
    s.data = b->data + 2 * j;
    pairs_across(k, a, &s, tile + j, rows, ways);
  }
  for (int j = 0; b->is != 1 && j < NR; j += LANES)
    pairs_along(k, a, b->data + 2 * b->is * j, 2 * b->is, tile + j, rows, ways);
}

/* ---- the kernels of the file that includes this ---- */

#define KERNEL(rows, tile)                                                                         \
  static const dg_tc16_ways ways_##rows = {.mr = rows,                                             \
                                           .nr = NR,                                               \
                                           .calm = dg_tc16_calm_avx2,                              \
                                           .fast = fast,                                           \
                                           .wide = dg_tc16_wide_avx2,                              \
                                           .pairs = pairs};                                        \
  void dg_tc16_##tile(int64_t k, const void *a, const void *b, float *state, int many, int cols) { \
    (void)cols;                                                                                    \
    dg_tc16_run_avx2(k, a, b, state, many, &ways_##rows);                                          \
  }
#define DIRECT(rows, tile)                                                              \
  void dg_tc16_direct_##tile(int64_t k, const void *a, const dg_strip *b, float *state, \
                             int many) {                                                \
    dg_tc16_direct_avx2(k, a, b, state, many, &ways_##rows);                            \
  }
