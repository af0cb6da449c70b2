/* The canary: a few products by the scalar reference, whose digests are known. Everything is judged
 * by the reference, so a build whose compiler flags changed the reference must not be used, and not
 * every such flag defines a macro that num.h could refuse. */
#include <stdatomic.h>

#include "internal.h"
#include "num.h"
#include "order.h"

enum { M = 6, N = 7, K = 83 };
enum { PLAIN, TINY, OVERFLOW, CASES };

static uint32_t random_bits(uint64_t *state) { /* splitmix64, high half */
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (uint32_t)((z ^ (z >> 31)) >> 32);
}

/* BF16 by case: around one; products around the least subnormal, so that -0 occurs; near overflow,
 * with cancellation. */
static uint16_t input(int which, uint64_t *state) {
  static const unsigned least[CASES] = {120, 50, 186};
  const uint32_t r = random_bits(state);
  return (uint16_t)((r & 0x807fu) | (least[which] + (r >> 16) % 12u) << 7);
}

static uint64_t digest(const uint32_t *words, int count) { /* FNV-1a */
  uint64_t hash = 0xcbf29ce484222325u;
  for (int i = 0; i < count; i++)
    for (int byte = 0; byte < 4; byte++)
      hash = (hash ^ (words[i] >> (8 * byte) & 0xffu)) * 0x100000001b3u;
  return hash;
}

static uint64_t product(int order, int which) {
  uint16_t a[M * K], b[K * N];
  uint32_t bias[N], out[M * N];
  uint64_t state = (uint64_t)which;
  for (int i = 0; i < M * K; i++) a[i] = input(which, &state);
  for (int i = 0; i < K * N; i++) b[i] = input(which, &state);
  for (int i = 0; i < N; i++) bias[i] = which == TINY ? 0 : (uint32_t)input(which, &state) << 16;
  const dg_problem p = {.m = M,
                        .n = N,
                        .k = K,
                        .batch = 1,
                        .order = order,
                        .a = {.data = a, .rs = K, .cs = 1, .dtype = DG_BF16},
                        .b = {.data = b, .rs = N, .cs = 1, .dtype = DG_BF16},
                        .bias = {.data = bias, .cs = 1, .dtype = DG_F32},
                        .out = {.data = out, .rs = N, .cs = 1, .dtype = DG_F32}};
  dg_reference_run(&p);
  return digest(out, M * N);
}

static bool sings(void) {
  static const uint64_t known[2][CASES] = {
      {0x45ad99cde4dc8c54u, 0x44416e46df2355fau, 0x369cbe6f11d50235u},
      {0xd67fd1148c0dfd0eu, 0x7d802fdc9fd2e91cu, 0x46764c5ec7905835u}};
  for (int order = DG_ORDER_FMA; order <= DG_ORDER_TC16; order++)
    for (int which = 0; which < CASES; which++)
      if (product(order, which) != known[order - DG_ORDER_FMA][which]) return false;
  return true;
}

dg_status dg_canary(void) {
  static atomic_int verdict; /* 0: not asked yet, 1: sound, 2: not; the same whoever finds it */
  if (atomic_load(&verdict) == 0) atomic_store(&verdict, sings() ? 1 : 2);
  if (atomic_load(&verdict) == 1) return DG_OK;
  return dg_fail(DG_ERROR_UNSUPPORTED,
                 "this build's scalar reference gives other bits than its orders define; rebuild "
                 "detgemm without unsafe floating-point flags");
}
