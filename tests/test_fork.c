/* A child forked after the parent has used the library can use the CPU: with threads, on the
 * parent's handle and on its own, also forked while other threads are inside the library. A child
 * that hangs is killed by its alarm. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "simple.h"
#include "support.h"

static simple *s;
static dg_device *shared;
static atomic_bool stop;

/* Runs body in a child that has half a minute. */
static void in_child(const char *what, bool (*body)(void)) {
  int result;
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    _exit(body() ? 0 : 1);
  }
  if (child < 0 || waitpid(child, &result, 0) != child) test_failed("%s: cannot fork", what);
  else if (WIFSIGNALED(result)) test_failed("%s: signal %d", what, WTERMSIG(result));
  else if (WEXITSTATUS(result)) test_failed("%s", what);
  else test_passed();
}

static bool use_inherited(void) {
  return dg_device_set_threads(shared, 4) == DG_OK && simple_right(s, shared);
}

static bool use_own(void) {
  dg_device *own;
  if (dg_device_open("cpu", &own) != DG_OK) return false;
  dg_device_set_threads(own, 3);
  const bool right = simple_right(s, own) && simple_right(s, own);
  dg_device_close(own);
  return right;
}

/* A child's child, after the child has used threads too. */
static bool use_in_grandchild(void) {
  int result;
  if (!use_inherited() || !use_own()) return false;
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(use_inherited() && use_own() ? 0 : 1);
  }
  return waitpid(child, &result, 0) == child && WIFEXITED(result) && WEXITSTATUS(result) == 0;
}

static void *open_first(void *ignored) {
  (void)ignored;
  use_own();
  return NULL;
}

/* Forked in the middle of another thread's first opening, while it probes the kernels. */
static bool use_forked_in_first_opening(void) {
  const struct timespec some = {0, 2000000};
  pthread_t thread;
  int result;
  if (pthread_create(&thread, NULL, open_first, NULL) != 0) return false;
  nanosleep(&some, NULL);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(use_own() ? 0 : 1);
  }
  pthread_join(thread, NULL);
  return waitpid(child, &result, 0) == child && WIFEXITED(result) && WEXITSTATUS(result) == 0;
}

static void *keep_using(void *ignored) {
  (void)ignored;
  while (!atomic_load(&stop)) use_own();
  return NULL;
}

int main(void) {
  enum { BUSY = 2, FORKS = 30 };
  pthread_t threads[BUSY];
  s = malloc(sizeof *s);
  if (s == NULL) return 1;
  simple_make(s, 1);
  in_child("in the middle of another thread's first opening", use_forked_in_first_opening);
  if (dg_device_open("cpu", &shared) != DG_OK) return 1;
  in_child("before the parent's first product", use_inherited);
  dg_device_set_threads(shared, 4);
  if (simple_right(s, shared)) test_passed();
  else test_failed("parent");
  in_child("on the parent's handle", use_inherited);
  in_child("on a handle of its own", use_own);
  in_child("in a grandchild", use_in_grandchild);
  for (int i = 0; i < BUSY; i++) pthread_create(&threads[i], NULL, keep_using, NULL);
  for (int i = 0; i < FORKS; i++) in_child("while other threads compute", use_own);
  atomic_store(&stop, true);
  for (int i = 0; i < BUSY; i++) pthread_join(threads[i], NULL);
  if (simple_right(s, shared)) test_passed();
  else test_failed("parent after its children");
  dg_device_close(shared);
  free(s);
  return counts_end();
}
