/* The test double of libOpenCL.so.1; see fake_opencl.h. */
#include "fake_opencl.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/num.h"
#include "../src/opencl/opencl.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT fake_opencl fake_opencl_state;
EXPORT fake_opencl fake_opencl_state = {.platforms = 1,
                                        .devices = 2,
                                        .type = 4, /* a GPU */
                                        .config = 0x3f,
                                        .local_bytes = 48 << 10,
                                        .compiler = 1,
                                        .little_endian = 1,
                                        .units = 4,
                                        .version = "OpenCL 1.2 double",
                                        .build_log = "",
                                        .fail_at = -1};
static fake_opencl *const fake = &fake_opencl_state;

enum { SUCCESS = 0, BUILD_FAILURE = -11, INVALID_VALUE = -30, INVALID_HANDLE = -34 };
enum { INVALID_ARG_SIZE = -51, INVALID_KERNEL_ARGS = -52, NO_PLATFORMS = -1001 };
enum { MAX_DEVICES = 4, MAX_ARGUMENTS = 8 };
typedef enum kind { CONTEXT, QUEUE, PROGRAM, KERNEL, BUFFER } object_kind;

typedef struct object {
  uint64_t magic;
  object_kind kind;
  int references;
  struct object *context;
  void *device; /* of a queue */
  bool built;   /* a program */
  struct object *program;
  char symbol[64];
  struct {
    size_t size;
    bool null;
    union {
      dg_grouped g;
      dg_gpu_tuning tuning;
      void *handle;
    } value;
  } arguments[MAX_ARGUMENTS];
  char *data, *host; /* a buffer's memory, and where it is brought back to */
  size_t bytes;
  uint64_t flags;
  int mapped;
} object;

static const uint64_t magic = 0x6f70656e636c2121u;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char device_ids[MAX_DEVICES], platform_ids[MAX_DEVICES];

/* ---- the frame of every call ---- */

static int misuse(const char *call, const char *what, int error) {
  if (fake->misuse[0] == '\0') snprintf(fake->misuse, sizeof fake->misuse, "%s: %s", call, what);
  return error;
}

/* Whether this call is to fail. */
static bool fails(const char *call) {
  fake->calls++;
  const bool now = fake->fail_at == 0 || (fake->fail_call && strcmp(fake->fail_call, call) == 0);
  if (fake->fail_at > 0) fake->fail_at--;
  if (!now) return false;
  if (fake->failed_call == NULL) fake->failed_call = call;
  if (!fake->sticky) fake->fail_at = -1;
  return true;
}

#define BEGIN                \
  pthread_mutex_lock(&lock); \
  if (fails(__func__)) return end(fake->fail_with)
static int end(int error) {
  pthread_mutex_unlock(&lock);
  return error;
}
#define REQUIRE(condition, error) \
  if (!(condition)) return end(misuse(__func__, "not true: " #condition, error))

/* The same for calls that give an object. */
#define BEGIN_OBJECT         \
  pthread_mutex_lock(&lock); \
  if (fails(__func__)) return gives(NULL, error, fake->gives_nothing ? SUCCESS : fake->fail_with)
static void *gives(void *x, int *error, int code) {
  if (error) *error = code;
  pthread_mutex_unlock(&lock);
  return x;
}
#define REQUIRE_OBJECT(condition, code) \
  if (!(condition)) return gives(NULL, error, misuse(__func__, "not true: " #condition, code))

static bool is(const void *x, object_kind kind) {
  const object *o = x;
  return o && o->magic == magic && o->kind == kind && o->references > 0;
}

static bool is_device(const void *id) {
  const char *p = id;
  return p >= device_ids && p < device_ids + fake->devices;
}

static object *make(object_kind kind, object *context) {
  object *x = calloc(1, sizeof *x);
  *x = (object){.magic = magic, .kind = kind, .references = 1, .context = context};
  fake->alive[kind]++;
  return x;
}

static void drop(object *x) {
  if (--x->references > 0) return;
  fake->alive[x->kind]--;
  if (x->kind == BUFFER && x->data != x->host) free(x->data);
  if (x->kind == KERNEL) drop(x->program);
  if (x->kind != CONTEXT && x->kind != KERNEL) drop(x->context);
  free(x); /* a sanitizer finds what is used after that */
}

#define RETAIN(name, kind)                \
  EXPORT int name(void *x);               \
  int name(void *x) {                     \
    BEGIN;                                \
    REQUIRE(is(x, kind), INVALID_HANDLE); \
    ((object *)x)->references++;          \
    return end(SUCCESS);                  \
  }
#define RELEASE(name, kind)               \
  EXPORT int name(void *x);               \
  int name(void *x) {                     \
    BEGIN;                                \
    REQUIRE(is(x, kind), INVALID_HANDLE); \
    drop(x);                              \
    return end(SUCCESS);                  \
  }
RETAIN(clRetainContext, CONTEXT)
RELEASE(clReleaseContext, CONTEXT)
RELEASE(clReleaseCommandQueue, QUEUE)
RELEASE(clReleaseProgram, PROGRAM)
RELEASE(clReleaseKernel, KERNEL)
RETAIN(clRetainMemObject, BUFFER)
RELEASE(clReleaseMemObject, BUFFER)

/* ---- the machine ---- */

/* A list of `there` handles, of which as many are given as there is room for. */
static int list(uint32_t room, void **to, uint32_t *count, char *ids, int there) {
  for (int i = 0; to && i < there && i < (int)room; i++) to[i] = ids + i;
  if (count) *count = (uint32_t)(fake->claimed ? fake->claimed : there);
  return end(SUCCESS);
}

EXPORT int clGetPlatformIDs(uint32_t room, void **to, uint32_t *count);
int clGetPlatformIDs(uint32_t room, void **to, uint32_t *count) {
  BEGIN;
  REQUIRE(to == NULL || room > 0, INVALID_VALUE);
  if (fake->platforms == 0) return end(NO_PLATFORMS);
  return list(room, to, count, platform_ids, fake->platforms);
}

EXPORT int clGetDeviceIDs(void *platform, uint64_t type, uint32_t room, void **to, uint32_t *count);
int clGetDeviceIDs(void *platform, uint64_t type, uint32_t room, void **to, uint32_t *count) {
  BEGIN;
  REQUIRE(platform == platform_ids && type == 0xffffffffu, INVALID_VALUE);
  REQUIRE(to == NULL || room > 0, INVALID_VALUE);
  if (fake->devices == 0) return end(-1);
  return list(room, to, count, device_ids, fake->devices);
}

static int answer(const void *value, size_t size, size_t room, void *to, size_t *needed) {
  if (needed) *needed = size;
  if (to && room < size) return end(INVALID_VALUE);
  if (to) memcpy(to, value, size);
  return end(SUCCESS);
}

static int answer_text(const char *text, size_t room, void *to, size_t *needed) {
  if (!fake->endless_texts) return answer(text, strlen(text) + 1, room, to, needed);
  if (to) memset(to, 'x', room);
  if (needed) *needed = to ? room : 1000;
  return end(SUCCESS);
}

EXPORT int clGetDeviceInfo(void *id, uint32_t what, size_t room, void *to, size_t *needed);
int clGetDeviceInfo(void *id, uint32_t what, size_t room, void *to, size_t *needed) {
  BEGIN;
  REQUIRE(is_device(id), INVALID_HANDLE);
#define ANSWER(x) return answer(&(x), sizeof(x), room, to, needed)
  switch (what) {
    case 0x1000: ANSWER(fake->type);
    case 0x1002: ANSWER(fake->units);
    case 0x101b: ANSWER(fake->config);
    case 0x1023: ANSWER(fake->local_bytes);
    case 0x1026: ANSWER(fake->little_endian);
    case 0x1028: ANSWER(fake->compiler);
    case 0x102b: return answer_text("A double", room, to, needed);
    case 0x102f:
      if (fake->version) return answer(fake->version, strlen(fake->version) + 1, room, to, needed);
      return answer_text("", room, to, needed);
    default: return end(misuse(__func__, "an unknown question", INVALID_VALUE));
  }
}

/* ---- contexts, queues, programs ---- */

EXPORT void *clCreateContext(const intptr_t *properties, uint32_t count, void *const *ids,
                             void (*notify)(const char *, const void *, size_t, void *), void *data,
                             int *error);
void *clCreateContext(const intptr_t *properties, uint32_t count, void *const *ids,
                      void (*notify)(const char *, const void *, size_t, void *), void *data,
                      int *error) {
  BEGIN_OBJECT;
  (void)properties, (void)data;
  REQUIRE_OBJECT(notify == NULL && count == 1 && is_device(ids[0]), INVALID_VALUE);
  return gives(make(CONTEXT, NULL), error, SUCCESS);
}

EXPORT void *clCreateCommandQueue(void *context, void *id, uint64_t properties, int *error);
void *clCreateCommandQueue(void *context, void *id, uint64_t properties, int *error) {
  BEGIN_OBJECT;
  REQUIRE_OBJECT(is(context, CONTEXT) && is_device(id), INVALID_HANDLE);
  ((object *)context)->references++;
  object *x = make(QUEUE, context);
  x->device = id;
  x->flags = properties;
  return gives(x, error, SUCCESS);
}

EXPORT int clGetCommandQueueInfo(void *q, uint32_t what, size_t room, void *to, size_t *needed);
int clGetCommandQueueInfo(void *q, uint32_t what, size_t room, void *to, size_t *needed) {
  const object *x = q;
  BEGIN;
  if (!is(q, QUEUE)) return end(-36); /* the caller's mistake, not the library's */
  switch (what) {
    case 0x1090: ANSWER(x->context);
    case 0x1091: ANSWER(x->device);
    case 0x1093: ANSWER(x->flags);
    default: return end(misuse(__func__, "an unknown question", INVALID_VALUE));
  }
}

EXPORT void *clCreateProgramWithSource(void *context, uint32_t count, const char **texts,
                                       const size_t *lengths, int *error);
void *clCreateProgramWithSource(void *context, uint32_t count, const char **texts,
                                const size_t *lengths, int *error) {
  BEGIN_OBJECT;
  REQUIRE_OBJECT(is(context, CONTEXT) && count == 1 && texts[0] && !lengths, INVALID_VALUE);
  REQUIRE_OBJECT(strstr(texts[0], "FP_CONTRACT OFF") != NULL, INVALID_VALUE);
  const bool alone = strstr(texts[0], "dg_fma_8x16_alone") != NULL;
  REQUIRE_OBJECT(alone == (fake->type == 2), INVALID_VALUE);
  ((object *)context)->references++;
  return gives(make(PROGRAM, context), error, SUCCESS);
}

EXPORT int clBuildProgram(void *p, uint32_t count, void *const *ids, const char *options,
                          void (*notify)(void *, void *), void *data);
int clBuildProgram(void *p, uint32_t count, void *const *ids, const char *options,
                   void (*notify)(void *, void *), void *data) {
  BEGIN;
  REQUIRE(is(p, PROGRAM) && count == 1 && is_device(ids[0]), INVALID_VALUE);
  REQUIRE(notify == NULL && data == NULL, INVALID_VALUE);
  REQUIRE(strstr(options, "fast") == NULL && strstr(options, "denorms") == NULL, INVALID_VALUE);
  if (fake->build_log[0]) return end(BUILD_FAILURE);
  fake->builds++;
  ((object *)p)->built = true;
  return end(SUCCESS);
}

EXPORT int clGetProgramBuildInfo(void *p, void *id, uint32_t what, size_t room, void *to,
                                 size_t *needed);
int clGetProgramBuildInfo(void *p, void *id, uint32_t what, size_t room, void *to, size_t *needed) {
  BEGIN;
  REQUIRE(is(p, PROGRAM) && is_device(id) && what == 0x1183, INVALID_VALUE);
  return answer_text(fake->build_log, room, to, needed);
}

EXPORT void *clCreateKernel(void *p, const char *symbol, int *error);
void *clCreateKernel(void *p, const char *symbol, int *error) {
  BEGIN_OBJECT;
  REQUIRE_OBJECT(is(p, PROGRAM) && ((object *)p)->built, INVALID_HANDLE);
  REQUIRE_OBJECT(strncmp(symbol, "dg_fma_", 7) == 0 && strlen(symbol) < 64, INVALID_VALUE);
  ((object *)p)->references++;
  object *x = make(KERNEL, ((object *)p)->context);
  x->program = p;
  snprintf(x->symbol, sizeof x->symbol, "%s", symbol);
  return gives(x, error, SUCCESS);
}

static bool is_grouped(const object *kernel) {
  return strcmp(kernel->symbol, "dg_fma_grouped") == 0;
}

static uint32_t buffers_of(const object *kernel) {
  return is_grouped(kernel) ? DG_OPENCL_BUFFERS : DG_OPENCL_OPERANDS;
}

EXPORT int clSetKernelArg(void *k, uint32_t index, size_t size, const void *value);
int clSetKernelArg(void *k, uint32_t index, size_t size, const void *value) {
  object *x = k;
  BEGIN;
  REQUIRE(is(k, KERNEL) && index < buffers_of(x) + 2, INVALID_VALUE);
  const uint32_t buffers = buffers_of(x);
  const size_t right = index < buffers    ? sizeof(void *)
                       : index == buffers ? is_grouped(x) ? sizeof(dg_grouped) : sizeof(dg_problem)
                                          : sizeof(dg_gpu_tuning);
  REQUIRE(size == right && (value || index < buffers), INVALID_ARG_SIZE);
  x->arguments[index].size = size;
  x->arguments[index].null = value == NULL;
  if (value) memcpy(&x->arguments[index].value, value, size);
  return end(SUCCESS);
}

/* ---- buffers ---- */

EXPORT void *clCreateBuffer(void *context, uint64_t flags, size_t bytes, void *host, int *error);
void *clCreateBuffer(void *context, uint64_t flags, size_t bytes, void *host, int *error) {
  enum { USE_HOST_PTR = 8 };
  BEGIN_OBJECT;
  REQUIRE_OBJECT(is(context, CONTEXT) && bytes > 0, INVALID_VALUE);
  REQUIRE_OBJECT(((flags & USE_HOST_PTR) != 0) == (host != NULL), INVALID_VALUE);
  ((object *)context)->references++;
  object *x = make(BUFFER, context);
  x->bytes = bytes;
  x->flags = flags;
  x->data = x->host = host;
  if (host == NULL || fake->copies) x->data = malloc(bytes);
  if (host && fake->copies) memcpy(x->data, host, bytes);
  return gives(x, error, SUCCESS);
}

EXPORT int clGetMemObjectInfo(void *m, uint32_t what, size_t room, void *to, size_t *needed);
int clGetMemObjectInfo(void *m, uint32_t what, size_t room, void *to, size_t *needed) {
  static const uint32_t type = 0x10f0;
  const object *x = m;
  BEGIN;
  if (!is(m, BUFFER)) return end(-38); /* the caller's mistake */
  const uint32_t shared = fake->all_shared;
  switch (what) {
    case 0x1100: ANSWER(type);
    case 0x1101: ANSWER(x->flags);
    case 0x1102: ANSWER(x->bytes);
    case 0x1106: ANSWER(x->context);
    case 0x1109: ANSWER(shared);
    default: return end(misuse(__func__, "an unknown question", INVALID_VALUE));
  }
}

EXPORT void *clEnqueueMapBuffer(void *queue, void *m, uint32_t blocking, uint64_t flags,
                                size_t offset, size_t bytes, uint32_t waits, void *const *events,
                                void **event, int *error);
void *clEnqueueMapBuffer(void *queue, void *m, uint32_t blocking, uint64_t flags, size_t offset,
                         size_t bytes, uint32_t waits, void *const *events, void **event,
                         int *error) {
  object *x = m;
  BEGIN_OBJECT;
  REQUIRE_OBJECT(is(queue, QUEUE) && is(m, BUFFER) && blocking == 1, INVALID_VALUE);
  REQUIRE_OBJECT(x->context == ((object *)queue)->context, INVALID_VALUE);
  REQUIRE_OBJECT(flags == 1 && offset == 0 && bytes == x->bytes, INVALID_VALUE);
  REQUIRE_OBJECT(waits == 0 && events == NULL && event == NULL, INVALID_VALUE);
  x->mapped++;
  if (x->host && x->data != x->host) memcpy(x->host, x->data, bytes);
  return gives(x->host ? x->host : x->data, error, SUCCESS);
}

EXPORT int clEnqueueUnmapMemObject(void *queue, void *m, void *data, uint32_t waits,
                                   void *const *events, void **event);
int clEnqueueUnmapMemObject(void *queue, void *m, void *data, uint32_t waits, void *const *events,
                            void **event) {
  object *x = m;
  BEGIN;
  REQUIRE(is(queue, QUEUE) && is(m, BUFFER) && x->mapped > 0, INVALID_VALUE);
  REQUIRE(data == (x->host ? x->host : x->data), INVALID_VALUE);
  REQUIRE(waits == 0 && events == NULL && event == NULL, INVALID_VALUE);
  x->mapped--;
  return end(SUCCESS);
}

/* ---- launches ---- */

/* Where the operand's offset is in its buffer; false: part of it is outside. */
static bool place(dg_operand *x, const object *buffer, int64_t times, int64_t rows, int64_t cols) {
  const int64_t bytes = dg_dtype_bytes(x->dtype), at = (int64_t)(uintptr_t)x->data;
  const int64_t steps[3] = {(times - 1) * x->bs, (rows - 1) * x->rs, (cols - 1) * x->cs};
  int64_t low = 0, high = 1;
  for (int i = 0; i < 3; i++) *(steps[i] < 0 ? &low : &high) += steps[i];
  if (at % bytes || at + low * bytes < 0 || at + high * bytes > (int64_t)buffer->bytes)
    return false;
  x->data = buffer->data + at;
  return true;
}

/* The product with addresses in place of offsets. */
static bool place_all(const object *k, dg_grouped *g) {
  dg_problem *p = &g->p;
  dg_operand *operands[] = {&p->a, &p->b, &p->out, &p->start, &p->bias};
  const int64_t rows[] = {p->m, p->k, p->m, p->m, p->m}, cols[] = {p->k, p->n, p->n, p->n, p->n};
  for (uint32_t i = 0; i < buffers_of(k); i++) {
    const object *buffer = k->arguments[i].null ? NULL : k->arguments[i].value.handle;
    if (buffer && (!is(buffer, BUFFER) || buffer->context != k->context || buffer->mapped))
      return false;
    if (i == DG_OPENCL_OFFSETS) {
      const uintptr_t at = (uintptr_t)g->offsets;
      const size_t bytes = (size_t)(g->groups + 1) * (size_t)g->offset_bytes;
      if (buffer && at + bytes > buffer->bytes) return false;
      g->offsets = buffer ? buffer->data + at : NULL;
    } else if (buffer == NULL) {
      operands[i]->data = NULL;
    } else if (!place(operands[i], buffer, p->batch * g->groups, rows[i], cols[i])) {
      return false;
    }
  }
  return p->out.data && (p->k == 0 || (p->a.data && p->b.data));
}

EXPORT int clEnqueueNDRangeKernel(void *queue, void *kernel, uint32_t dimensions,
                                  const size_t *offset, const size_t *global, const size_t *local,
                                  uint32_t waits, void *const *events, void **event);
int clEnqueueNDRangeKernel(void *queue, void *kernel, uint32_t dimensions, const size_t *offset,
                           const size_t *global, const size_t *local, uint32_t waits,
                           void *const *events, void **event) {
  const object *k = kernel;
  BEGIN;
  REQUIRE(is(queue, QUEUE) && is(kernel, KERNEL), INVALID_HANDLE);
  REQUIRE(((object *)queue)->context == k->context, INVALID_HANDLE);
  REQUIRE(dimensions == 1 && offset == NULL && waits == 0 && !events && !event, INVALID_VALUE);
  REQUIRE(local[0] > 0 && local[0] <= 256 && global[0] % local[0] == 0, INVALID_VALUE);
  const uint32_t buffers = buffers_of(k);
  for (uint32_t i = 0; i < buffers + 2; i++) REQUIRE(k->arguments[i].size > 0, INVALID_KERNEL_ARGS);
  dg_grouped g = {.groups = 1, .split = DG_SPLIT_M};
  memcpy(&g, &k->arguments[buffers].value, k->arguments[buffers].size);
  REQUIRE(place_all(k, &g), INVALID_KERNEL_ARGS);
  fake->launches++;
  fake->execute(k->symbol, &g);
  return end(SUCCESS);
}

#define WAIT(name)                             \
  EXPORT int name(void *queue);                \
  int name(void *queue) {                      \
    BEGIN;                                     \
    REQUIRE(is(queue, QUEUE), INVALID_HANDLE); \
    return end(SUCCESS);                       \
  }
WAIT(clFlush)
WAIT(clFinish)
