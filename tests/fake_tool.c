/* What the tool asks of a driver beside what the library does: in a double everything has happened
 * when it was asked for, so graphs are empty and only time passes. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include FAKE_NAMES

#define EXPORT __attribute__((visibility("default")))

EXPORT int FAKE_TOOL(CtxSynchronize)(void) { return 0; }
EXPORT int FAKE_TOOL(StreamSynchronize)(void *stream) { return (void)stream, 0; }

EXPORT int FAKE_TOOL(MemcpyDtoDAsync)(void *to, const void *from, size_t bytes, void *stream) {
  (void)stream;
  memmove(to, from, bytes);
  return 0;
}

EXPORT int FAKE_TOOL(StreamBeginCapture)(void *stream, int mode) { return (void)stream, mode < 0; }

EXPORT int FAKE_TOOL(StreamEndCapture)(void *stream, void **graph) {
  (void)stream;
  *graph = malloc(1);
  return *graph == NULL;
}

EXPORT int FAKE_TOOL(GraphInstantiateWithFlags)(void **run, void *graph, unsigned long long flags) {
  (void)flags;
  *run = graph ? malloc(1) : NULL;
  return *run == NULL;
}

EXPORT int FAKE_TOOL(GraphLaunch)(void *run, void *stream) { return (void)stream, run == NULL; }
EXPORT int FAKE_TOOL(GraphExecDestroy)(void *run) { return free(run), 0; }
EXPORT int FAKE_TOOL(GraphDestroy)(void *graph) { return free(graph), 0; }

EXPORT int FAKE_EVENT_CREATE(void **event, unsigned flags) {
  (void)flags;
  *event = calloc(1, sizeof(struct timespec));
  return *event == NULL;
}

EXPORT int FAKE_TOOL(EventDestroy)(void *event) { return free(event), 0; }
EXPORT int FAKE_TOOL(EventSynchronize)(void *event) { return event == NULL; }

EXPORT int FAKE_TOOL(EventRecord)(void *event, void *stream) {
  (void)stream;
  return clock_gettime(CLOCK_MONOTONIC, event);
}

EXPORT int FAKE_TOOL(EventElapsedTime)(float *milliseconds, const struct timespec *from,
                                       const struct timespec *to) {
  const double seconds = (double)(to->tv_sec - from->tv_sec);
  *milliseconds = (float)(1e3 * seconds + 1e-6 * (double)(to->tv_nsec - from->tv_nsec));
  return 0;
}
