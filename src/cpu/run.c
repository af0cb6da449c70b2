/* The CPU back end: opens, chooses a row, and runs the product block by block.
 *
 * A task is one block of the output (mb x nb) of one product. Its FP32 state lives in a work area,
 * tile after tile, and is continued over packed depths of kb; the output is rounded once, at the
 * end. So kernels see full tiles only and the work area does not grow with M, N or K. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../num.h"
#include "cpu.h"

static const dg_cpu_kernel *row(int index) {
#if defined(__x86_64__)
  if (index < dg_cpu_x86_count) return &dg_cpu_x86_rows[index];
  index -= dg_cpu_x86_count;
#elif defined(__aarch64__)
  if (index < dg_cpu_arm_count) return &dg_cpu_arm_rows[index];
  index -= dg_cpu_arm_count;
#endif
  return index < dg_cpu_generic_count ? &dg_cpu_generic_rows[index] : NULL;
}

static int row_count(void) {
  int count = 0;
  while (row(count)) count++;
  return count;
}

typedef struct call {
  const dg_problem *p;
  const dg_cpu_kernel *kernel;
  int64_t mb, nb, kb; /* block and packed depth, multiples of mr, nr and k_step */
  int64_t blocks_m, blocks_n;
  size_t state_bytes, a_bytes, b_bytes; /* of one worker's area, in this order */
  char *memory;
} call;

static int64_t ceil_div(int64_t x, int64_t y) { return (x + y - 1) / y; }
static int64_t min64(int64_t x, int64_t y) { return x < y ? x : y; }
static int64_t round_up(int64_t x, int64_t y) { return ceil_div(x, y) * y; }

static char *at(const dg_operand *x, int64_t z, int64_t i, int64_t j) {
  return (char *)x->data + dg_dtype_bytes(x->dtype) * (z * x->bs + i * x->rs + j * x->cs);
}

/* The tiles of a block, and what part of each lies inside the output. */
typedef struct tile {
  float *state;
  int64_t i, j, rows, cols; /* position in the output, and how much of the tile is inside */
} tile;

static tile tile_at(const call *c, float *state, int64_t i0, int64_t j0, int64_t t) {
  const dg_cpu_kernel *k = c->kernel;
  const int64_t columns = c->nb / k->nr;
  tile x = {.state = state + t * k->mr * k->nr,
            .i = i0 + t / columns * k->mr,
            .j = j0 + t % columns * k->nr};
  x.rows = min64(k->mr, c->p->m - x.i);
  x.cols = min64(k->nr, c->p->n - x.j);
  return x;
}

static void load_start(const call *c, int64_t z, tile t) {
  const dg_operand *start = &c->p->start;
  memset(t.state, 0, sizeof(float) * (size_t)(c->kernel->mr * c->kernel->nr));
  if (start->data == NULL) return;
  for (int64_t i = 0; i < t.rows; i++)
    for (int64_t j = 0; j < t.cols; j++)
      memcpy(&t.state[i * c->kernel->nr + j], at(start, z, t.i + i, t.j + j), 4);
}

static void finish(const call *c, int64_t z, tile t) {
  const dg_operand *bias = &c->p->bias, *out = &c->p->out;
  for (int64_t i = 0; i < t.rows; i++)
    for (int64_t j = 0; j < t.cols; j++) {
      float x = t.state[i * c->kernel->nr + j];
      if (bias->data) x += dg_f32_from_bits(dg_load(at(bias, z, t.i + i, t.j + j), bias->dtype));
      dg_store(at(out, z, t.i + i, t.j + j), out->dtype, dg_f32_bits(x));
    }
}

static void pack(dg_pack_fn *fn, dg_strip s, int64_t width, int64_t lines, int64_t k,
                 size_t panel_bytes, char *panel) {
  const int64_t size = dg_dtype_bytes(s.dtype);
  for (int64_t i = 0; i < lines; i += width, panel += panel_bytes) {
    fn(&s, min64(width, lines - i), k, panel);
    s.data += size * width * s.is;
  }
}

static void run_block(void *context, int worker, int64_t index) {
  const call *c = context;
  const dg_cpu_kernel *kernel = c->kernel;
  const dg_problem *p = c->p;
  const int64_t z = index / (c->blocks_m * c->blocks_n);
  const int64_t i0 = index / c->blocks_n % c->blocks_m * c->mb, j0 = index % c->blocks_n * c->nb;
  const int64_t rows = min64(c->mb, p->m - i0), cols = min64(c->nb, p->n - j0);
  const int64_t columns = c->nb / kernel->nr;
  char *area = c->memory + (size_t)worker * (c->state_bytes + c->a_bytes + c->b_bytes);
  float *state = (float *)(void *)area;
  char *a = area + c->state_bytes, *b = a + c->a_bytes;

  for (int64_t i = 0; i * kernel->mr < rows; i++)
    for (int64_t j = 0; j * kernel->nr < cols; j++)
      load_start(c, z, tile_at(c, state, i0, j0, i * columns + j));
  for (int64_t k0 = 0; k0 < p->k; k0 += c->kb) {
    const int64_t k = min64(c->kb, p->k - k0), steps = ceil_div(k, kernel->k_step);
    const size_t a_panel = (size_t)(steps * kernel->a_bytes);
    const size_t b_panel = (size_t)(steps * kernel->b_bytes);
    pack(kernel->pack_a, (dg_strip){at(&p->a, z, i0, k0), p->a.rs, p->a.cs, p->a.dtype}, kernel->mr,
         rows, k, a_panel, a);
    pack(kernel->pack_b, (dg_strip){at(&p->b, z, k0, j0), p->b.cs, p->b.rs, p->b.dtype}, kernel->nr,
         cols, k, b_panel, b);
    for (int64_t j = 0; j * kernel->nr < cols; j++)
      for (int64_t i = 0; i * kernel->mr < rows; i++)
        kernel->run(k, a + (size_t)i * a_panel, b + (size_t)j * b_panel,
                    tile_at(c, state, i0, j0, i * columns + j).state, kernel->mr, kernel->nr);
  }
  for (int64_t i = 0; i * kernel->mr < rows; i++)
    for (int64_t j = 0; j * kernel->nr < cols; j++)
      finish(c, z, tile_at(c, state, i0, j0, i * columns + j));
}

static dg_status run(dg_device *device, const dg_problem *p, int index, void *stream) {
  (void)stream;
  const dg_cpu_kernel *k = row(index);
  const int wanted = device->threads; /* read once: another thread may set it */
  const int threads = wanted ? wanted : dg_default_threads();
  call c = {.p = p, .kernel = k};
  c.mb = round_up(min64(p->m, 128), k->mr);
  c.nb = round_up(min64(p->n, 128), k->nr);
  c.kb = round_up(min64(p->k, 256), k->k_step);
  c.blocks_m = ceil_div(p->m, c.mb);
  c.blocks_n = ceil_div(p->n, c.nb);
  const int64_t steps = c.kb / k->k_step;
  c.state_bytes = (size_t)round_up(c.mb * c.nb * 4, 64);
  c.a_bytes = (size_t)round_up(c.mb / k->mr * steps * k->a_bytes, 64);
  c.b_bytes = (size_t)round_up(c.nb / k->nr * steps * k->b_bytes, 64);
  const size_t bytes = (c.state_bytes + c.a_bytes + c.b_bytes) * (size_t)threads;
  c.memory = aligned_alloc(64, bytes);
  if (c.memory == NULL)
    return dg_fail(DG_ERROR_MEMORY, "no memory for %zu bytes of work area; use fewer threads",
                   bytes);
  dg_parallel(threads, p->batch * c.blocks_m * c.blocks_n, run_block, &c);
  free(c.memory);
  return DG_OK;
}

/* The first row of the order that is meant for so few rows, else the first there is. */
static dg_status choose(const dg_device *device, const dg_problem *p, int *kernel) {
  for (int any = 0; any < 2; any++)
    for (int i = 0; i < device->kernel_count; i++) {
      const int most = row(i)->most_rows;
      if (device->kernels[i].withheld == NULL && (int)device->kernels[i].order == p->order &&
          (any || most == 0 || p->m <= most)) {
        *kernel = i;
        return DG_OK;
      }
    }
  return dg_fail(DG_ERROR_UNSUPPORTED,
                 "no %s kernel is left on %s; see what `detgemm info` says of each, and unset "
                 "DETGEMM_KERNEL and DETGEMM_CPU",
                 p->order == DG_ORDER_FMA ? "fma" : "tc16", device->name);
}

/* ---- opening ---- */

static const struct {
  const char *name;
  unsigned features;
} levels[] = {{"generic", 0},
              {"avx2", DG_CPU_AVX2},
              {"avx512", DG_CPU_AVX2 | DG_CPU_AVX512},
              {"neon", DG_CPU_NEON}};

/* What DETGEMM_CPU leaves of the processor's features. */
static dg_status allowed(unsigned detected, unsigned *features) {
  const char *wanted = getenv("DETGEMM_CPU");
  *features = detected;
  if (wanted == NULL || *wanted == '\0') return DG_OK;
  for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
    if (strcmp(levels[i].name, wanted) == 0) {
      *features = levels[i].features;
      if ((detected & *features) == *features) return DG_OK;
      return dg_fail(DG_ERROR_UNSUPPORTED,
                     "DETGEMM_CPU=%s: this processor lacks it; unset it or use \"generic\"",
                     wanted);
    }
  return dg_fail(DG_ERROR_ARGUMENT,
                 "DETGEMM_CPU=\"%.40s\" is not known; use generic, avx2, avx512 or neon", wanted);
}

static void describe(const dg_device *device, int index, dg_kernel_info *info) {
  (void)device;
  *info = (dg_kernel_info){.name = row(index)->name, .order = (dg_order)row(index)->order};
}

/* The verdict on every row this processor can run, reached once per process. */
enum { MAX_ROWS = 64 };
static dg_verdict verdicts[MAX_ROWS];
static pthread_mutex_t verdict_lock = PTHREAD_MUTEX_INITIALIZER;

/* A fork waits for a probe under way in another thread, so that the child finds the lock open. */
static void lock_verdicts(void) { pthread_mutex_lock(&verdict_lock); }
static void unlock_verdicts(void) { pthread_mutex_unlock(&verdict_lock); }

__attribute__((constructor)) static void prepare_for_forks(void) {
  pthread_atfork(lock_verdicts, unlock_verdicts, unlock_verdicts);
}

static dg_status allocate(void *context, void **data, size_t bytes) {
  (void)context;
  *data = malloc(bytes);
  return *data ? DG_OK : dg_fail(DG_ERROR_MEMORY, "no memory for the conformance probe");
}

static dg_status copy(void *context, void *to, const void *from, size_t bytes) {
  (void)context;
  memcpy(to, from, bytes);
  return DG_OK;
}

static void release(void *context, void *data) {
  (void)context;
  free(data);
}

static dg_status open_cpu(dg_device *device, int index) {
  (void)index;
  const unsigned detected = dg_cpu_detect();
  unsigned features;
  dg_status status = allowed(detected, &features);
  if (status != DG_OK) return status;
  status = dg_device_list_kernels(device, row_count(), describe);
  if (status != DG_OK) return status;
  snprintf(device->description, sizeof device->description, "%s%s%s%s, %d threads",
           features ? "" : "portable C", features & DG_CPU_AVX2 ? "AVX2 and FMA" : "",
           features & DG_CPU_AVX512 ? ", AVX-512" : "", features & DG_CPU_NEON ? "NEON" : "",
           dg_default_threads());
  for (int i = 0; i < device->kernel_count; i++) {
    dg_kernel_info *info = &device->kernels[i];
    if ((row(i)->needs & detected) != row(i)->needs)
      info->withheld = "this processor lacks its instruction set";
    else if ((row(i)->needs & features) != row(i)->needs)
      info->withheld = "excluded by DETGEMM_CPU";
  }
  lock_verdicts();
  status =
      dg_probe(device, &(dg_probe_memory){allocate, copy, copy, release, NULL, false}, verdicts);
  unlock_verdicts();
  return status;
}

static void close_cpu(dg_device *device) { (void)device; }

static int count_cpu(void) { return 1; }

const dg_backend dg_cpu_backend = {
    .name = "cpu",
    .count = count_cpu,
    .open = open_cpu,
    .close = close_cpu,
    .choose = choose,
    .run = run,
};
