/* The conformance probe: before a row is used, it computes small products full of edge cases, and
 * every bit is compared with the scalar reference. So an unknown device, compiler flag or driver
 * gives a reason the user can read, never other bits. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "num.h"
#include "order.h"

/* Prime-ish sizes: tiles of every size have an edge, and K has a tail in both orders. */
enum { M = 19, N = 37, K = 83, CASES = 4 };

static uint32_t random_bits(uint64_t *state) { /* splitmix64, high half */
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (uint32_t)((z ^ (z >> 31)) >> 32);
}

/* BF16 inputs by case: around one; products near the least subnormal; near overflow with
 * cancellation; every bit pattern, infinities and NaN among them in a few rows. */
static uint16_t input(int which, int64_t index, uint64_t *state) {
  const uint32_t r = random_bits(state);
  const uint16_t sign_mantissa = (uint16_t)(r & 0x807fu);
  const uint16_t spread = (uint16_t)((r >> 16) % 12u);
  switch (which) {
    case 0: return sign_mantissa | (uint16_t)((120u + spread) << 7);
    case 1: return sign_mantissa | (uint16_t)((spread < 2 ? spread : 52u + spread) << 7);
    case 2: return sign_mantissa | (uint16_t)((186u + spread / 3u) << 7);
    default:
      if (index % 7 == 0) return (uint16_t)(r >> 8);
      return r % 5u ? sign_mantissa | (uint16_t)((100u + r / 64u % 60u) << 7)
                    : (uint16_t)(r & 0x8000u);
  }
}

/* What the reference must make of each case: 64-bit FNV-1a digests, by order and case. They find a
 * build whose compiler flags changed the reference itself. */
static const uint64_t canary[2][CASES] = {
    {0x8417f0e52de87d1au, 0xff9a3ff4131f7cc1u, 0xdc633505c0b2dc6bu, 0xb261d774f0eaf57du},
    {0x080b0f410eed3fc5u, 0x3c79f22eeb20f66fu, 0xbdc7dae46f569738u, 0x88654295be020761u}};

static uint64_t digest(const uint32_t *words, int count) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (int i = 0; i < count; i++)
    for (int byte = 0; byte < 4; byte++)
      hash = (hash ^ (words[i] >> (8 * byte) & 0xffu)) * 0x100000001b3u;
  return hash;
}

typedef struct buffers {
  uint16_t a[M * K], b[K * N];
  float start[M * N];
  uint32_t expected[M * N], got[M * N];
} buffers;

static dg_operand rows(void *data, int64_t pitch, int dtype) {
  return (dg_operand){.data = data, .rs = pitch, .cs = 1, .dtype = dtype};
}

static dg_problem problem(buffers *x, int order) {
  return (dg_problem){.m = M,
                      .n = N,
                      .k = K,
                      .batch = 1,
                      .order = order,
                      .a = rows(x->a, K, DG_BF16),
                      .b = rows(x->b, N, DG_BF16),
                      .out = rows(x->expected, N, DG_F32),
                      .start = rows(x->start, N, DG_F32)};
}

static void fill(buffers *x, int which) {
  uint64_t state = 2026 + (uint64_t)which;
  for (int64_t i = 0; i < M * K; i++) x->a[i] = input(which, i / K, &state);
  for (int64_t i = 0; i < K * N; i++) x->b[i] = input(which, i % N, &state);
  for (int64_t i = 0; i < M * N; i++) {
    const uint32_t r = random_bits(&state);
    const uint32_t wide = which == 1 ? r & 0x80ffffffu : (r & 0xbfffffffu);
    x->start[i] = dg_f32_from_bits(i % 11 == 0 ? r & 0x80000000u : wide);
  }
}

/* Runs the row on device copies of x; the result comes back in x->got. */
static dg_status run_row(dg_device *device, int kernel, const dg_probe_memory *memory, buffers *x,
                         dg_problem p) {
  void *a = memory->to_device(memory->context, x->a, sizeof x->a);
  void *b = memory->to_device(memory->context, x->b, sizeof x->b);
  void *start = memory->to_device(memory->context, x->start, sizeof x->start);
  memset(x->got, 0xa5, sizeof x->got);
  void *out = memory->to_device(memory->context, x->got, sizeof x->got);
  dg_status status = DG_ERROR_MEMORY;
  if (a && b && start && out) {
    p.a.data = a;
    p.b.data = b;
    p.start.data = start;
    p.out.data = out;
    status = device->backend->run(device, &p, kernel, NULL);
    if (status == DG_OK) status = memory->to_host(memory->context, x->got, out, sizeof x->got);
  }
  void *all[] = {a, b, start, out};
  for (int i = 0; i < 4; i++)
    if (all[i]) memory->release(memory->context, all[i]);
  return status;
}

static bool same(const buffers *x, int which, char *why, size_t size) {
  for (int i = 0; i < M * N; i++)
    if (x->got[i] != x->expected[i]) {
      snprintf(why, size,
               "gave other bits than the reference in probe %d at row %d, column %d: %08" PRIx32
               " instead of %08" PRIx32,
               which, i / N, i % N, x->got[i], x->expected[i]);
      return false;
    }
  return true;
}

const char *dg_probe(dg_device *device, int kernel, const dg_probe_memory *memory, char *why,
                     size_t size) {
  buffers *x = malloc(sizeof *x);
  why[0] = '\0';
  if (x == NULL) snprintf(why, size, "no memory for the conformance probe");
  for (int which = 0; x && which < CASES; which++) {
    fill(x, which);
    const dg_problem p = problem(x, (int)device->kernels[kernel].order);
    dg_reference_run(&p);
    if (digest(x->expected, M * N) != canary[p.order - DG_ORDER_FMA][which])
      snprintf(why, size,
               "cannot be judged: this build's scalar reference gives other bits than its order "
               "(probe %d); rebuild without unsafe floating-point flags",
               which);
    else if (run_row(device, kernel, memory, x, p) != DG_OK)
      snprintf(why, size, "failed in the conformance probe: %.100s", dg_last_error());
    else if (same(x, which, why, size)) continue;
    break;
  }
  free(x);
  return why[0] ? why : NULL;
}
