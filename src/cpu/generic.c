/* Portable kernels of both orders. Always there, chosen last. */
#include "../num.h"
#include "../order.h"
#include "cpu.h"

enum { MR = 4, NR = 4 };

static void pack_fma(const dg_strip *s, int64_t count, int64_t k, void *panel) {
  const int64_t size = dg_dtype_bytes(s->dtype);
  float *out = panel;
  for (int64_t kk = 0; kk < k; kk++)
    for (int64_t i = 0; i < MR; i++)
      *out++ = i < count
                   ? dg_f32_from_bits(dg_load(s->data + size * (i * s->is + kk * s->ks), s->dtype))
                   : 0.0F;
}

static void tile_fma(int64_t k, const void *a, const void *b, float *tile, int rows, int cols) {
  const float *x = a, *y = b;
  for (int64_t kk = 0; kk < k; kk++, x += MR, y += NR)
    for (int i = 0; i < rows; i++)
      for (int j = 0; j < cols; j++) tile[i * NR + j] = dg_fma_step(x[i], y[j], tile[i * NR + j]);
}

/* A panel holds, per step of 16, the 16 decoded factors of each line. */
static void pack_tc16(const dg_strip *s, int64_t count, int64_t k, void *panel) {
  dg_tc16_factor *out = panel;
  for (int64_t k0 = 0; k0 < k; k0 += 16)
    for (int64_t i = 0; i < MR; i++)
      for (int64_t kk = k0; kk < k0 + 16; kk++) {
        uint16_t bits = 0;
        if (i < count && kk < k) memcpy(&bits, s->data + 2 * (i * s->is + kk * s->ks), 2);
        *out++ = dg_tc16_decode(bits, s->dtype);
      }
}

static void tile_tc16(int64_t k, const void *a, const void *b, float *tile, int rows, int cols) {
  const dg_tc16_factor *x = a, *y = b;
  for (int64_t k0 = 0; k0 < k; k0 += 16, x += 16 * MR, y += 16 * NR)
    for (int i = 0; i < rows; i++)
      for (int j = 0; j < cols; j++)
        tile[i * NR + j] =
            dg_f32_from_bits(dg_tc16_step(x + 16 * i, y + 16 * j, dg_f32_bits(tile[i * NR + j])));
}

void dg_round_generic(const float *x, const float *bias, int64_t count, int dtype, void *out) {
  const int64_t size = dg_dtype_bytes(dtype);
  for (int64_t j = 0; j < count; j++)
    dg_store((char *)out + size * j, dtype, dg_f32_bits(bias ? x[j] + bias[j] : x[j]));
}

enum { FACTORS = 16 * (int)sizeof(dg_tc16_factor) };

const dg_cpu_kernel dg_cpu_generic_rows[] = {
    {"fma_4x4_generic", DG_ORDER_FMA, 0, MR, NR, 1, 4 * MR, 4 * NR, pack_fma, pack_fma, tile_fma,
     dg_round_generic, 0, NULL, NULL},
    {"tc16_4x4_generic", DG_ORDER_TC16, 0, MR, NR, 16, FACTORS *MR, FACTORS *NR, pack_tc16,
     pack_tc16, tile_tc16, dg_round_generic, 0, NULL, NULL},
};
const int dg_cpu_generic_count = sizeof dg_cpu_generic_rows / sizeof dg_cpu_generic_rows[0];
