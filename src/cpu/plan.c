/* How a product is cut into tasks and depths. Speed only: no cut can change a bit. */
#include "cpu.h"

/* What a thread's work area holds: of B one tile's columns, to stay in the first cache; of A a
 * block's rows, to stay in the second; and the block's state. */
enum { B_BYTES = 32 << 10, A_BYTES = 640 << 10, STATE_BYTES = 3 << 20 };

/* The depth of a step over columns of B that are not packed: where its rows lie apart, so few that
 * they are as many streams as a processor follows (but two steps of tc16, whose calls cost more);
 * else the longer the better. */
enum { DIRECT_ACROSS = 16, DIRECT_ALONG = 2048 };

static int64_t direct_depth(const dg_problem *p, int64_t step, bool across) {
  if (p->b.cs != 1 || across) return DIRECT_ALONG;
  return step > 1 ? 2 * step : DIRECT_ACROSS;
}

/* Multiplications that pay for one more thread. */
enum { LEAST_WORK = 1 << 20 };

static int64_t min64(int64_t x, int64_t y) { return x < y ? x : y; }
static int64_t max64(int64_t x, int64_t y) { return x > y ? x : y; }
static int64_t ceil_div(int64_t x, int64_t y) { return (x + y - 1) / y; }
static int64_t round_up(int64_t x, int64_t y) { return ceil_div(x, y) * y; }

bool dg_cpu_exchange(const dg_problem *p) {
  enum { WIDE = 32, DECODE = 16 };
  const bool narrow = p->n < WIDE && p->n < p->m;
  const bool upright = p->out.rs == 1 && p->out.cs != 1 && p->m > DECODE;
  return narrow || upright;
}

/* Integers only: the caller's floating-point environment is not ours yet. */
static uint64_t times(uint64_t x, uint64_t y) {
  uint64_t product;
  return __builtin_mul_overflow(x, y, &product) ? UINT64_MAX : product;
}

uint64_t dg_cpu_work(const dg_problem *p) {
  return times(times((uint64_t)p->batch, (uint64_t)p->m), times((uint64_t)p->n, (uint64_t)p->k));
}

int dg_cpu_threads(uint64_t multiplications, int threads) {
  const uint64_t pays = multiplications / LEAST_WORK;
  return pays < (uint64_t)threads ? 1 + (int)pays : threads;
}

/* The time of a cut, in 64ths of a multiplication: every task packs its rows of A and columns of B,
 * and a thread that is held up costs less where there are more tasks. */
static uint64_t cost(const dg_cpu_plan *x, int64_t batch) {
  enum { PACKING = 8, HELD_UP = 1 };
  const uint64_t tasks =
      times(times((uint64_t)batch, (uint64_t)x->blocks_m), (uint64_t)x->blocks_n);
  const uint64_t threads = (uint64_t)x->threads, waves = tasks / threads + (tasks % threads != 0);
  return times(times(64, waves) + HELD_UP, (uint64_t)(x->mb * x->nb + PACKING * (x->mb + x->nb)));
}

static void cut(dg_cpu_plan *x, const dg_problem *p, int64_t parts_m, int64_t parts_n) {
  x->mb = ceil_div(p->m, parts_m);
  if (parts_m > 1) x->mb = round_up(x->mb, x->kernel->mr);
  x->nb = round_up(ceil_div(p->n, parts_n), x->kernel->nr);
  x->blocks_m = ceil_div(p->m, x->mb);
  x->blocks_n = ceil_div(p->n, x->nb);
}

dg_cpu_plan dg_cpu_plan_make(const dg_problem *p, const dg_cpu_kernel *kernel, int threads) {
  enum { TRIES = 32 };
  const int64_t step = kernel->k_step;
  dg_cpu_plan best = {.kernel = kernel};
  best.threads = dg_cpu_threads(dg_cpu_work(p), threads);
  best.direct = kernel->direct != NULL && (p->b.cs == 1 || p->b.rs == 1);
  best.across = best.direct && kernel->across != NULL && p->b.cs == 1 && p->m == 1;
  best.kb = min64(max64(B_BYTES / kernel->b_bytes, 1) * step, round_up(p->k, step));
  if (best.direct) best.kb = min64(direct_depth(p, step, best.across), round_up(p->k, step));
  best.kb = max64(best.kb, step);

  const int64_t panel = best.kb / step * kernel->a_bytes;
  const int64_t most_m = max64(A_BYTES / panel, 1) * kernel->mr;
  const int64_t rows = min64(most_m, p->m);
  const int64_t most_n = max64(STATE_BYTES / 4 / rows / kernel->nr, 1) * kernel->nr;
  const int64_t least_m = ceil_div(p->m, most_m), least_n = ceil_div(p->n, most_n);
  dg_cpu_plan x = best;
  uint64_t least = UINT64_MAX;
  for (int64_t i = least_m; i < least_m + min64(best.threads, TRIES); i++)
    for (int64_t j = least_n; j < least_n + min64(4 * best.threads, TRIES); j++) {
      cut(&x, p, i, j);
      const uint64_t time = cost(&x, p->batch);
      if (time >= least && best.mb) continue;
      least = time;
      best = x;
    }
  const int64_t panels = ceil_div(best.mb, kernel->mr);
  best.depth = max64(A_BYTES / (panels * panel), 1) * best.kb;
  if (best.direct && p->b.cs == 1) best.depth = best.kb;
  best.depth = min64(best.depth, round_up(max64(p->k, 1), best.kb));
  return best;
}
