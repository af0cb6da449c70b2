/* What the machine can do: FMA rate out of registers, and bytes read from memory. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

enum { CHAINS = 12, ROUNDS = 1000000, MAX_THREADS = 256 };

/* Each loop runs 12 independent chains of FMAs, enough for two units of latency 5 (or 4), and
 * returns the FLOPs done. The sink keeps the compiler from dropping the work. */
#define FMA_LOOP(vector, set, fma, lanes)                                                 \
  vector acc[CHAINS], x = set(0.999999f), y = set(1e-7f);                                 \
  for (int i = 0; i < CHAINS; i++) acc[i] = set((float)i);                                \
  for (int r = 0; r < ROUNDS; r++) {                                                      \
    _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++) acc[i] = fma(acc[i], x, y); \
  }                                                                                       \
  for (int i = 0; i < CHAINS; i++)                                                        \
    memcpy((char *)sink + i * sizeof(vector), &acc[i], sizeof(vector));                   \
  return 2.0 * (lanes)*CHAINS * ROUNDS

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static double loop_avx2(float *sink) {
  FMA_LOOP(__m256, _mm256_set1_ps, _mm256_fmadd_ps, 8);
}

__attribute__((target("avx512f"))) static double loop_avx512(float *sink) {
  FMA_LOOP(__m512, _mm512_set1_ps, _mm512_fmadd_ps, 16);
}
#elif defined(__aarch64__)
static float32x4_t neon_fma(float32x4_t a, float32x4_t x, float32x4_t y) {
  return vfmaq_f32(y, a, x);
}
static double loop_neon(float *sink) { FMA_LOOP(float32x4_t, vdupq_n_f32, neon_fma, 4); }
#endif

static float same(float x) { return x; }
static float scalar_fma(float a, float x, float y) { return __builtin_fmaf(a, x, y); }
static double loop_scalar(float *sink) { FMA_LOOP(float, same, scalar_fma, 1); }

static double fma_loop(float *sink) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return loop_avx512(sink);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return loop_avx2(sink);
#elif defined(__aarch64__)
  return loop_neon(sink);
#endif
  return loop_scalar(sink);
}

/* One thread's work: rounds of it until the time is up. */
typedef struct worker {
  double (*work)(struct worker *w);
  const uint64_t *data;
  size_t words;
  double seconds, done; /* done: FLOPs or bytes per second */
  uint64_t sum;
  float sink[CHAINS * 16];
} worker;

static double fma_work(worker *w) { return fma_loop(w->sink); }

typedef uint64_t words4 __attribute__((vector_size(32), aligned(8), may_alias));

static double read_work(worker *w) {
  words4 sums[4] = {{0}};
  for (size_t i = 0; i + 16 <= w->words; i += 16)
    for (int j = 0; j < 4; j++) {
      words4 v;
      memcpy(&v, w->data + i + 4 * j, sizeof v);
      sums[j] += v;
    }
  for (int j = 0; j < 4; j++) w->sum += sums[j][0] + sums[j][1] + sums[j][2] + sums[j][3];
  return (double)(w->words / 16 * 16 * 8);
}

static void *run_worker(void *context) {
  worker *w = context;
  double work = 0, best = 0;
  const double begin = now();
  for (double last = begin, time; last - begin < w->seconds; last = time) {
    work = w->work(w);
    time = now();
    if (time > last && work / (time - last) > best) best = work / (time - last);
  }
  w->done = best;
  return NULL;
}

/* The sum over the threads of each one's best round. */
static double run_all(int threads, const worker *prototype, size_t words_each) {
  pthread_t ids[MAX_THREADS];
  worker *workers = calloc((size_t)threads, sizeof *workers);
  double sum = 0;
  int started = 0;
  if (workers == NULL) return 0;
  for (int i = 0; i < threads; i++) {
    workers[i] = *prototype;
    workers[i].words = words_each;
    if (prototype->data) workers[i].data = prototype->data + (size_t)i * words_each;
  }
  for (int i = 1; i < threads; i++)
    if (pthread_create(&ids[started], NULL, run_worker, &workers[i]) == 0) started++;
  run_worker(&workers[0]);
  for (int i = 0; i < started; i++) pthread_join(ids[i], NULL);
  for (int i = 0; i < threads; i++) sum += workers[i].done;
  free(workers);
  return sum;
}

static int clamp_threads(int threads) { return threads > MAX_THREADS ? MAX_THREADS : threads; }

double measure_fma_peak(int threads) {
  const worker prototype = {.work = fma_work, .seconds = 0.3};
  return run_all(clamp_threads(threads), &prototype, 0);
}

double measure_bandwidth(int threads) {
  const size_t words = (size_t)1 << 25; /* 256 MB */
  uint64_t *data = malloc(words * sizeof *data);
  if (data == NULL) return 0;
  memset(data, 1, words * sizeof *data);
  threads = clamp_threads(threads);
  const worker prototype = {.work = read_work, .seconds = 0.5, .data = data};
  const double bandwidth = run_all(threads, &prototype, words / (size_t)threads);
  free(data);
  return bandwidth;
}
