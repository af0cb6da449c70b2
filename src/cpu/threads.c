/* Threads over independent tasks. No task shares a sum with another, so the number of threads and
 * who runs what can change no bit. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../fpenv.h"
#include "cpu.h"

#ifdef _OPENMP
#include <omp.h>
#endif

typedef struct work {
  dg_task_fn *task;
  void *context;
  int64_t count;
  atomic_llong next;
  atomic_int workers;
} work;

static void take(work *w) {
  const int worker = atomic_fetch_add(&w->workers, 1);
  dg_fpenv saved = dg_fpenv_enter();
  for (int64_t i; (i = atomic_fetch_add(&w->next, 1)) < w->count;) w->task(w->context, worker, i);
  dg_fpenv_leave(saved);
}

static void *take_thread(void *w) {
  take(w);
  return NULL;
}

/* The process that loaded the library. In a forked child the pool of GNU OpenMP is gone, and the
 * next parallel region would wait for it for ever. */
static pid_t loader;

__attribute__((constructor)) static void remember_process(void) { loader = getpid(); }

/* Plain threads, started and joined per call. A thread that cannot be had is done without. */
static void run_threads(work *w, int threads) {
  pthread_t *handles = malloc((size_t)threads * sizeof *handles);
  int started = 0;
  while (handles && started < threads - 1 &&
         pthread_create(&handles[started], NULL, take_thread, w) == 0)
    started++;
  take(w);
  for (int i = 0; i < started; i++) pthread_join(handles[i], NULL);
  free(handles);
}

#ifdef _OPENMP
/* The stack that OpenMP gives its threads, in bytes; 0: the default. */
static size_t stack_bytes;

/* OMP_STACKSIZE as OpenMP reads it when it is loaded: a number and B, K, M or G, by default K. */
static size_t wanted_stack(void) {
  const char *text = getenv("OMP_STACKSIZE");
  char *unit;
  if (text == NULL) return 0;
  const unsigned long number = strtoul(text, &unit, 10);
  unit += strspn(unit, " \t");
  int shift = 10;
  switch (*unit) {
    case 'B':
    case 'b': shift = 0; break;
    case 'M':
    case 'm': shift = 20; break;
    case 'G':
    case 'g': shift = 30; break;
    default: break;
  }
  return number <= SIZE_MAX >> shift ? (size_t)number << shift : 0;
}

__attribute__((constructor)) static void remember_stack(void) { stack_bytes = wanted_stack(); }

static void *wait_for_gate(void *gate) {
  pthread_mutex_lock(gate);
  pthread_mutex_unlock(gate);
  return NULL;
}

/* Whether that many threads can be had. GNU OpenMP ends the process when it cannot start one, so
 * the first time a thread calls with more than before, as many are started at once and joined, with
 * stacks of the same size: too small or too large a one is refused as well. */
static bool can_start(int threads) {
  static _Thread_local int started_before = 1;
  pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
  pthread_attr_t attributes;
  if (threads <= started_before) return true;
  pthread_t *handles = malloc((size_t)threads * sizeof *handles);
  int started = 0;
  pthread_attr_init(&attributes);
  if (stack_bytes) (void)pthread_attr_setstacksize(&attributes, stack_bytes);
  pthread_mutex_lock(&gate);
  while (handles && started < threads - 1 &&
         pthread_create(&handles[started], &attributes, wait_for_gate, &gate) == 0)
    started++;
  pthread_mutex_unlock(&gate);
  for (int i = 0; i < started; i++) pthread_join(handles[i], NULL);
  pthread_attr_destroy(&attributes);
  free(handles);
  if (started + 1 == threads) started_before = threads;
  return started + 1 == threads;
}
#endif

void dg_parallel(int threads, int64_t count, dg_task_fn *task, void *context) {
  work w = {.task = task, .context = context, .count = count};
  atomic_init(&w.next, 0);
  atomic_init(&w.workers, 0);
  if (threads > count) threads = (int)count;
  if (threads <= 1) {
    take(&w);
    return;
  }
#ifdef _OPENMP
  if (getpid() == loader && can_start(threads)) {
#pragma omp parallel num_threads(threads)
    take(&w);
    return;
  }
#endif
  run_threads(&w, threads);
}

int dg_default_threads(void) {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  enum { MOST = 65536 };
  const char *wanted = getenv("OMP_NUM_THREADS"); /* a list gives nested levels; the first counts */
  const long number = wanted ? strtol(wanted, NULL, 10) : 0;
  if (number > 0) return number < MOST ? (int)number : MOST;
#ifdef CPU_COUNT
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
#endif
  const long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? (int)n : 1;
#endif
}
