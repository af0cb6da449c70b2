/* Where the system grants a process no more threads, a product is computed by those there are. GNU
 * OpenMP would end the process. pthread_create() is this program's own: OpenMP calls it too. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "simple.h"
#include "support.h"

typedef int create_function(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

static atomic_int granted;

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *),
                   void *context) {
  create_function *create;
  void *symbol = dlsym(RTLD_NEXT, "pthread_create");
  memcpy(&create, &symbol, sizeof create);
  if (atomic_fetch_sub(&granted, 1) <= 0) return EAGAIN;
  return create(thread, attributes, body, context);
}

int main(void) {
  static const int limits[] = {0, 1, 2, 0, 1000};
  simple *s = malloc(sizeof *s);
  dg_device *cpu;
  if (s == NULL) return 1;
  simple_make(s, 1);
  if (dg_device_open("cpu", &cpu) != DG_OK || dg_device_set_threads(cpu, 5) != DG_OK) return 1;
  for (int i = 0; i < 5; i++) {
    atomic_store(&granted, limits[i]);
    if (simple_right(s, cpu)) test_passed();
    else test_failed("with %d threads granted", limits[i]);
    if (limits[i] == 1000 && atomic_load(&granted) == 1000) test_failed("no thread was asked for");
  }
  dg_device_close(cpu);
  free(s);
  return counts_end();
}
