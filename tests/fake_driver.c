/* The test double of a GPU driver; see fake_driver.h. Compiled with -DFAKE_NAMES="fake_cuda.h". */
#include "fake_driver.h"

#include <fnmatch.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../src/gpu/driver.h"
#include "../src/num.h"
#include "../src/order.h"
#include FAKE_NAMES

#define EXPORT __attribute__((visibility("default")))

EXPORT fake_driver fake_driver_state;
EXPORT fake_driver fake_driver_state = {.devices = 2,
                                        .capability = {FAKE_CAPABILITY},
                                        .multiprocessors = 4,
                                        .shared_optin = FAKE_SHARED,
                                        .warp = FAKE_WARP_SIZE,
                                        .fail_at = -1};
static fake_driver *const fake = &fake_driver_state;

EXPORT void fake_driver_execute(void (*execute)(const fake_launch *launch));
EXPORT void fake_driver_execute(void (*execute)(const fake_launch *launch)) {
  fake->execute = execute;
}

enum {
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500
};
enum { MAX_DEVICES = 8, MAX_OBJECTS = 512, STACK = 16, DEFAULT_SHARED = 49152 };

typedef struct context {
  int retained;
} context;

typedef struct function function;

typedef struct module {
  bool alive;
  context *context;
} module;

struct function {
  module *module;
  char symbol[64];
  int dynamic_limit;
};

typedef struct allocation {
  char *data;
  size_t bytes;
  context *context;
  int kind;
} allocation;

typedef struct stream {
  bool alive;
  context *context;
} stream;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t initialised_by;
static context contexts[MAX_DEVICES];
static module modules[MAX_OBJECTS];
static function functions[MAX_OBJECTS];
static int function_count;
static allocation allocations[MAX_OBJECTS];
static stream streams[MAX_OBJECTS];
static _Thread_local context *stack[STACK];
static _Thread_local int depth;

/* ---- the frame of every call ---- */

static int misuse(const char *call, const char *what, int error) {
  if (fake->misuse[0] == '\0') snprintf(fake->misuse, sizeof fake->misuse, "%s: %s", call, what);
  return error;
}

static int begin(const char *call) {
  pthread_mutex_lock(&lock);
  fake->calls++;
  if (fake->fail_at == 0) {
    fake->failed_call = call;
    if (!fake->sticky) fake->fail_at = -1;
    return fake->fail_with;
  }
  if (fake->fail_at > 0) fake->fail_at--;
  return 0;
}

static int end(int error) {
  pthread_mutex_unlock(&lock);
  return error;
}

/* Calls after init. A child of the process that called init has no driver, as in reality. */
static int begin_running(const char *call) {
  const int error = begin(call);
  if (error != 0) return error;
  if (initialised_by == 0) return misuse(call, "before init", NOT_INITIALIZED);
  return initialised_by == getpid() ? 0 : NOT_INITIALIZED;
}

static context *current(void) { return depth ? stack[depth - 1] : NULL; }

/* Calls that need a current context. */
static int begin_inside(const char *call) {
  const int error = begin_running(call);
  if (error != 0) return error;
  if (current() == NULL || current()->retained == 0)
    return misuse(call, "without a live current context", INVALID_CONTEXT);
  return 0;
}

#define REQUIRE(condition, error) \
  if (!(condition)) return end(misuse(__func__, "not true: " #condition, error))

/* ---- the machine ---- */

EXPORT int FAKE_init(unsigned flags) {
  int error = begin(__func__);
  if (error != 0) return end(error);
  REQUIRE(flags == 0, INVALID_VALUE);
  if (fake->devices == 0) return end(NO_DEVICE);
  initialised_by = getpid();
  const pid_t helper = fork(); /* real drivers run helper programs here */
  if (helper == 0) _exit(0);
  waitpid(helper, NULL, 0);
  return end(0);
}

EXPORT int FAKE_error_name(int error, const char **name) {
  static _Thread_local char text[48];
  static const struct {
    int error;
    const char *name;
  } known[] = {{INVALID_VALUE, "INVALID_VALUE"},
               {OUT_OF_MEMORY, "OUT_OF_MEMORY"},
               {NOT_INITIALIZED, "NOT_INITIALIZED"},
               {NO_DEVICE, "NO_DEVICE"},
               {INVALID_DEVICE, "INVALID_DEVICE"},
               {INVALID_IMAGE, "INVALID_IMAGE"},
               {INVALID_CONTEXT, "INVALID_CONTEXT"},
               {INVALID_HANDLE, "INVALID_HANDLE"},
               {NOT_FOUND, "NOT_FOUND"},
               {700, "ILLEGAL_ADDRESS"}};
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (known[i].error == error) {
      snprintf(text, sizeof text, FAKE_ERROR_PREFIX "%s", known[i].name);
      *name = text;
      return 0;
    }
  return INVALID_VALUE;
}

EXPORT int FAKE_version(int *version) {
  const int error = begin(__func__);
  if (error != 0) return end(error);
  REQUIRE(version, INVALID_VALUE);
  *version = 13000;
  return end(0);
}

EXPORT int FAKE_device_count(int *count) {
  const int error = begin_running(__func__);
  if (error != 0) return end(error);
  REQUIRE(count, INVALID_VALUE);
  *count = fake->devices;
  return end(0);
}

static bool is_device(int device) { return device >= 0 && device < fake->devices; }

EXPORT int FAKE_device_get(int *device, int index) {
  const int error = begin_running(__func__);
  if (error != 0) return end(error);
  REQUIRE(device && is_device(index), INVALID_DEVICE);
  *device = index;
  return end(0);
}

EXPORT int FAKE_device_name(char *name, int size, int device) {
  const int error = begin_running(__func__);
  if (error != 0) return end(error);
  REQUIRE(name && size > 0 && is_device(device), INVALID_VALUE);
  snprintf(name, (size_t)size, "Test double %d", device);
  return end(0);
}

EXPORT int FAKE_device_attribute(int *value, int attribute, int device) {
  const int error = begin_running(__func__);
  if (error != 0) return end(error);
  REQUIRE(value && is_device(device), INVALID_VALUE);
  switch (attribute) {
    case FAKE_MAJOR: *value = fake->capability[0]; break;
    case FAKE_MINOR: *value = fake->capability[1]; break;
    case FAKE_MULTIPROCESSORS: *value = fake->multiprocessors; break;
    case FAKE_PAGEABLE: *value = 0; break;
    case FAKE_WARP: *value = fake->warp; break;
    case FAKE_SHARED_OPTIN: *value = fake->shared_optin; break;
    default: return end(misuse(__func__, "unknown attribute", INVALID_VALUE));
  }
  return end(0);
}

/* ---- contexts ---- */

EXPORT int FAKE_context_retain(void **out, int device) {
  const int error = begin_running(__func__);
  if (error != 0) return end(error);
  REQUIRE(out && is_device(device), INVALID_VALUE);
  contexts[device].retained++;
  fake->retained++;
  *out = &contexts[device];
  return end(0);
}

static void destroy_objects(const context *c) {
  for (int i = 0; i < MAX_OBJECTS; i++) {
    if (modules[i].alive && modules[i].context == c) modules[i].alive = false, fake->modules--;
    if (streams[i].alive && streams[i].context == c) streams[i].alive = false, fake->streams--;
  }
}

EXPORT int FAKE_context_release(int device) {
  const int error = begin_running(__func__);
  if (error != 0) return end(error);
  REQUIRE(is_device(device) && contexts[device].retained > 0, INVALID_CONTEXT);
  fake->retained--;
  if (--contexts[device].retained == 0) destroy_objects(&contexts[device]);
  return end(0);
}

EXPORT int FAKE_context_get(void **out) {
  const int error = begin_running(__func__);
  if (error != 0) return end(error);
  REQUIRE(out, INVALID_VALUE);
  *out = current();
  return end(0);
}

static bool is_context(const void *c) {
  for (int i = 0; i < MAX_DEVICES; i++)
    if (c == &contexts[i]) return contexts[i].retained > 0;
  return false;
}

EXPORT int FAKE_context_push(void *c) {
  const int error = begin_running(__func__);
  if (error != 0) return end(error);
  REQUIRE(is_context(c) && depth < STACK, INVALID_CONTEXT);
  stack[depth++] = c;
  return end(0);
}

EXPORT int FAKE_context_pop(void **out) {
  const int error = begin_running(__func__);
  if (error != 0) return end(error);
  REQUIRE(depth > 0 && out, INVALID_CONTEXT);
  *out = stack[--depth];
  return end(0);
}

EXPORT int FAKE_context_set(void *c);
EXPORT int FAKE_context_set(void *c) {
  const int error = begin_running(__func__);
  if (error != 0) return end(error);
  REQUIRE(c == NULL || is_context(c), INVALID_CONTEXT);
  depth = c != NULL;
  stack[0] = c;
  return end(0);
}

/* ---- modules and functions ---- */

/* What a platform's driver takes: NVIDIA's fat binary, an ELF, clang's bundle, or the stand-in of
 * builds without the device's compiler. */
static bool is_image(const void *image) {
  static const char *const magics[] = {"\x50\xed\x55\xba", "\177ELF", "__CLANG_OFFLOAD_BUNDLE__",
                                       "fake image"};
  for (size_t i = 0; i < sizeof magics / sizeof magics[0]; i++)
    if (strncmp(image, magics[i], strlen(magics[i])) == 0) return true;
  return false;
}

EXPORT int FAKE_module_load(void **out, const void *image) {
  const int error = begin_inside(__func__);
  if (error != 0) return end(error);
  REQUIRE(out && image, INVALID_VALUE);
  REQUIRE((uintptr_t)image % 8 == 0, INVALID_IMAGE);
  REQUIRE(is_image(image), INVALID_IMAGE);
  for (int i = 0; i < MAX_OBJECTS; i++) {
    if (modules[i].alive) continue;
    modules[i] = (module){true, current()};
    fake->modules++;
    *out = &modules[i];
    return end(0);
  }
  return end(OUT_OF_MEMORY);
}

static module *as_module(void *m) {
  for (int i = 0; i < MAX_OBJECTS; i++)
    if (m == &modules[i]) return modules[i].alive ? m : NULL;
  return NULL;
}

EXPORT int FAKE_module_unload(void *m) {
  const int error = begin_inside(__func__);
  if (error != 0) return end(error);
  REQUIRE(as_module(m), INVALID_HANDLE);
  REQUIRE(as_module(m)->context == current(), INVALID_CONTEXT);
  as_module(m)->alive = false;
  fake->modules--;
  return end(0);
}

EXPORT int FAKE_module_function(void **out, void *m, const char *symbol) {
  const int error = begin_inside(__func__);
  if (error != 0) return end(error);
  REQUIRE(out && symbol && as_module(m), INVALID_HANDLE);
  REQUIRE(strncmp(symbol, "dg_", 3) == 0 && strlen(symbol) < 64, NOT_FOUND);
  function *f = NULL;
  for (int i = 0; f == NULL && i < function_count; i++)
    if (functions[i].module == m && strcmp(functions[i].symbol, symbol) == 0) f = &functions[i];
  if (f == NULL) {
    if (function_count == MAX_OBJECTS) return end(OUT_OF_MEMORY);
    f = &functions[function_count++];
  }
  *f = (function){.module = m, .dynamic_limit = DEFAULT_SHARED};
  snprintf(f->symbol, sizeof f->symbol, "%s", symbol);
  *out = f;
  return end(0);
}

static function *as_function(void *f) {
  for (int i = 0; i < function_count; i++)
    if (f == &functions[i]) return functions[i].module->alive ? f : NULL;
  return NULL;
}

EXPORT int FAKE_function_get(int *value, int attribute, void *f) {
  const int error = begin_inside(__func__);
  if (error != 0) return end(error);
  REQUIRE(value && as_function(f), INVALID_HANDLE);
  REQUIRE(attribute == FAKE_STATIC_SHARED, INVALID_VALUE);
  *value = 1024;
  return end(0);
}

EXPORT int FAKE_function_set(void *f, int attribute, int value) {
  const int error = begin_inside(__func__);
  if (error != 0) return end(error);
  REQUIRE(as_function(f), INVALID_HANDLE);
  REQUIRE(attribute == FAKE_DYNAMIC_SHARED, INVALID_VALUE);
  REQUIRE(value >= 0 && value + 1024 <= fake->shared_optin, INVALID_VALUE);
  as_function(f)->dynamic_limit = value;
  return end(0);
}

/* ---- memory ---- */

EXPORT int FAKE_alloc(void **out, size_t bytes) {
  const int error = begin_inside(__func__);
  if (error != 0) return end(error);
  REQUIRE(out && bytes > 0, INVALID_VALUE);
  for (int i = 0; i < MAX_OBJECTS; i++) {
    if (allocations[i].data) continue;
    char *data = aligned_alloc(512, (bytes + 511) / 512 * 512);
    if (data == NULL) return end(OUT_OF_MEMORY);
    allocations[i] = (allocation){data, bytes, current(), fake->kind};
    fake->allocations++;
    *out = data;
    return end(0);
  }
  return end(OUT_OF_MEMORY);
}

/* The allocation that holds all of [data, data + bytes). */
static allocation *holder(const void *data, size_t bytes) {
  const char *p = data;
  for (int i = 0; i < MAX_OBJECTS; i++) {
    const allocation *a = &allocations[i];
    if (a->data && p >= a->data && p < a->data + a->bytes)
      return bytes <= (size_t)(a->data + a->bytes - p) ? &allocations[i] : NULL;
  }
  return NULL;
}

#ifdef FAKE_pointer_get
/* As the real one: an unknown pointer is no error, its values are zero. */
EXPORT int FAKE_pointer_get(unsigned count, const int *attributes, void **values, void *data) {
  const int error = begin_inside(__func__);
  if (error != 0) return end(error);
  const allocation *a = holder(data, 1);
  for (unsigned i = 0; i < count; i++) {
    int *value = values[i];
    switch (attributes[i]) {
      case FAKE_POINTER_TYPE: *value = a == NULL ? 0 : a->kind == 1 ? 1 : 2; break;
      case FAKE_POINTER_MANAGED: *value = a && a->kind == 2; break;
      case FAKE_POINTER_DEVICE: *value = a ? (int)(a->context - contexts) : 0; break;
      case FAKE_POINTER_ACCESS: *value = a && a->context == current() ? 3 : 0; break;
      default: return end(misuse(__func__, "unknown attribute", INVALID_VALUE));
    }
  }
  return end(0);
}
#endif

#ifdef FAKE_pointer_get_one
/* An unknown pointer is an error. This driver knows nothing about access. */
EXPORT int FAKE_pointer_get_one(void *value, int attribute, void *data);
EXPORT int FAKE_pointer_get_one(void *value, int attribute, void *data) {
  const int error = begin_inside(__func__);
  if (error != 0) return end(error);
  const allocation *a = holder(data, 1);
  REQUIRE(value && (attribute == FAKE_POINTER_DEVICE || attribute == FAKE_POINTER_ACCESS ||
                    attribute == FAKE_POINTER_TYPE),
          INVALID_VALUE);
  if (fake->knows_every_pointer && a == NULL) a = &allocations[0];
  if (attribute == FAKE_POINTER_ACCESS || a == NULL) return end(INVALID_VALUE);
  *(int *)value = attribute == FAKE_POINTER_TYPE ? 2 + a->kind : (int)(a->context - contexts);
  return end(0);
}
#endif

EXPORT int FAKE_release(void *data) {
  const int error = begin_inside(__func__);
  if (error != 0) return end(error);
  allocation *a = holder(data, 1);
  REQUIRE(a && a->data == data, INVALID_VALUE);
  free(a->data);
  a->data = NULL;
  fake->allocations--;
  return end(0);
}

EXPORT int FAKE_copy_in(void *to, const void *from, size_t bytes) {
  const int error = begin_inside(__func__);
  if (error != 0) return end(error);
  REQUIRE(bytes > 0 && holder(to, bytes), INVALID_VALUE);
  REQUIRE(from && !holder(from, 1), INVALID_VALUE);
  memcpy(to, from, bytes);
  return end(0);
}

EXPORT int FAKE_copy_out(void *to, const void *from, size_t bytes) {
  const int error = begin_inside(__func__);
  if (error != 0) return end(error);
  REQUIRE(bytes > 0 && holder(from, bytes), INVALID_VALUE);
  REQUIRE(to && !holder(to, 1), INVALID_VALUE);
  memcpy(to, from, bytes);
  return end(0);
}

EXPORT int FAKE_stream_create(void **out, unsigned flags);
EXPORT int FAKE_stream_create(void **out, unsigned flags) {
  const int error = begin_inside(__func__);
  if (error != 0) return end(error);
  REQUIRE(out && flags <= 1, INVALID_VALUE);
  for (int i = 0; i < MAX_OBJECTS; i++) {
    if (streams[i].alive) continue;
    streams[i] = (stream){true, current()};
    fake->streams++;
    *out = &streams[i];
    return end(0);
  }
  return end(OUT_OF_MEMORY);
}

static bool is_stream(const void *s) {
  for (int i = 0; i < MAX_OBJECTS; i++)
    if (s == &streams[i]) return streams[i].alive && streams[i].context == current();
  return s == NULL;
}

EXPORT int FAKE_stream_destroy(void *s);
EXPORT int FAKE_stream_destroy(void *s) {
  const int error = begin_inside(__func__);
  if (error != 0) return end(error);
  REQUIRE(s && is_stream(s), INVALID_HANDLE);
  ((stream *)s)->alive = false;
  fake->streams--;
  return end(0);
}

/* ---- launches ---- */

/* Whether an operand's elements all lie in one allocation and are aligned. */
static bool readable(const dg_operand *x, int64_t batch, int64_t rows, int64_t cols) {
  const int64_t bytes = dg_dtype_bytes(x->dtype);
  const int64_t steps[3] = {(batch - 1) * x->bs, (rows - 1) * x->rs, (cols - 1) * x->cs};
  int64_t low = 0, high = 1;
  if (batch == 0 || rows == 0 || cols == 0 || x->data == NULL) return true;
  for (int i = 0; i < 3; i++) *(steps[i] < 0 ? &low : &high) += steps[i];
  return (uintptr_t)x->data % (uintptr_t)bytes == 0 &&
         holder((char *)x->data + low * bytes, (size_t)((high - low) * bytes)) != NULL;
}

static bool good_problem(const dg_problem *p) {
  return p->m > 0 && p->n > 0 && p->k >= 0 && p->batch > 0 && p->out.data &&
         readable(&p->a, p->batch, p->m, p->k) && readable(&p->b, p->batch, p->k, p->n) &&
         readable(&p->out, p->batch, p->m, p->n) && readable(&p->start, p->batch, p->m, p->n) &&
         readable(&p->bias, p->batch, p->m, p->n);
}

/* The library's probe runs every row on the same product, so results are remembered: by the
 * problem's fields and a hash of the allocations it reads. */
typedef struct result {
  dg_problem problem;
  uint64_t inputs;
  char *out; /* the whole allocation that holds the output */
} result;

static uint64_t hash(uint64_t h, const void *data) {
  const allocation *a = holder(data, 1);
  for (size_t i = 0; a && i < a->bytes; i++) h = (h ^ (unsigned char)a->data[i]) * 0x100000001b3u;
  return h;
}

static void compute(const dg_problem *p) {
  static result results[4];
  static int next;
  const allocation *out = holder(p->out.data, 1);
  uint64_t inputs = 14695981039346656037u;
  inputs = hash(hash(hash(inputs, p->a.data), p->b.data), p->start.data);
  inputs = hash(hash(inputs, p->bias.data), p->out.data); /* what is around the output, too */
  for (int i = 0; i < 4; i++)
    if (results[i].out && results[i].inputs == inputs &&
        memcmp(&results[i].problem, p, sizeof *p) == 0) {
      memcpy(out->data, results[i].out, out->bytes);
      return;
    }
  result *r = &results[next++ % 4];
  dg_reference_run(p);
  free(r->out);
  r->problem = *p;
  r->inputs = inputs;
  r->out = malloc(out->bytes);
  if (r->out) memcpy(r->out, out->data, out->bytes);
}

static void execute(const fake_launch *l) {
  const dg_problem *p = l->parameters[0];
  if (fake->execute) fake->execute(l);
  else compute(p);
  if (fake->wrong && fnmatch(fake->wrong, l->symbol, 0) == 0) *(char *)p->out.data ^= 1;
}

/* Whether a kernel that takes tensor maps has those of its operands. */
static bool good_maps(const fake_launch *l) {
  const dg_problem *p = l->parameters[0];
  const dg_gpu_tensor_map *a = l->parameters[1], *b = l->parameters[2];
  if (fnmatch("dg_tc16_wgmma*", l->symbol, 0) != 0 && fnmatch("dg_tc16_stream*", l->symbol, 0) != 0)
    return true;
  return a->opaque[0] == (uint64_t)(uintptr_t)p->a.data &&
         b->opaque[0] == (uint64_t)(uintptr_t)p->b.data;
}

static int launch(const char *call, function *f, fake_launch *l) {
  const uint32_t threads = l->block[0] * l->block[1] * l->block[2];
#define LIMIT(condition) \
  if (!(condition)) return misuse(call, "not true: " #condition, INVALID_VALUE)
  if (f == NULL) return misuse(call, "no live function", INVALID_HANDLE);
  if (f->module->context != current())
    return misuse(call, "the function's context is not current", INVALID_CONTEXT);
  if (!is_stream(l->stream)) return INVALID_HANDLE; /* the caller's mistake, not the library's */
  LIMIT(l->grid[0] >= 1 && l->grid[0] <= INT32_MAX);
  LIMIT(l->grid[1] >= 1 && l->grid[1] <= 65535);
  LIMIT(l->grid[2] >= 1 && l->grid[2] <= 65535);
  LIMIT(threads >= 1 && threads <= 1024);
  LIMIT(l->shared_bytes <= (uint32_t)f->dynamic_limit);
  LIMIT(l->cluster <= 8 && (l->cluster < 2 || l->grid[0] % l->cluster == 0));
  LIMIT(l->parameters && l->parameters[0] && l->parameters[1]);
  LIMIT(good_problem(l->parameters[0]));
  l->symbol = f->symbol;
  LIMIT(good_maps(l));
#undef LIMIT
  fake->launches++;
  execute(l);
  return 0;
}

EXPORT int FAKE_launch(void *f, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                       unsigned block_y, unsigned block_z, unsigned shared_bytes, void *s,
                       void **parameters, void **extra) {
  const int error = begin_inside(__func__);
  if (error != 0) return end(error);
  REQUIRE(extra == NULL, INVALID_VALUE);
  fake_launch l = {.grid = {grid_x, grid_y, grid_z},
                   .block = {block_x, block_y, block_z},
                   .shared_bytes = shared_bytes,
                   .stream = s,
                   .parameters = parameters};
  return end(launch(__func__, as_function(f), &l));
}

EXPORT int FAKE_launch_config(const dg_gpu_config *config, void *f, void **parameters,
                              void **extra) {
  enum { CLUSTER = 4, OVERLAP = 6 };
  const int error = begin_inside(__func__);
  if (error != 0) return end(error);
  REQUIRE(config && extra == NULL, INVALID_VALUE);
  fake_launch l = {
      .shared_bytes = config->shared_bytes, .stream = config->stream, .parameters = parameters};
  memcpy(l.grid, config->grid, sizeof l.grid);
  memcpy(l.block, config->block, sizeof l.block);
  for (uint32_t i = 0; i < config->attribute_count; i++) {
    const dg_gpu_attribute *a = &config->attributes[i];
    REQUIRE(a->id == CLUSTER || a->id == OVERLAP, INVALID_VALUE);
    if (a->id == OVERLAP) l.overlap = a->value.overlap == 1;
    else l.cluster = a->value.cluster[0] * a->value.cluster[1] * a->value.cluster[2];
  }
  return end(launch(__func__, as_function(f), &l));
}

EXPORT int FAKE_encode_map(dg_gpu_tensor_map *map, int type, uint32_t rank, void *base,
                           const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
                           const uint32_t *element_strides, int interleave, int swizzle,
                           int promotion, int fill) {
  const int error = begin_running(__func__);
  const uint32_t bytes = type == 2 ? 4 : 2, widths[] = {256 * bytes, 32, 64, 128};
  if (error != 0) return end(error);
  REQUIRE(map && (uintptr_t)map % 64 == 0, INVALID_VALUE);
  REQUIRE(type == 1 || type == 2, INVALID_VALUE);
  REQUIRE(rank >= 1 && rank <= 5, INVALID_VALUE);
  REQUIRE(base && (uintptr_t)base % 16 == 0 && holder(base, 1), INVALID_VALUE);
  REQUIRE(interleave == 0 && fill == 0, INVALID_VALUE);
  REQUIRE(swizzle >= 0 && swizzle <= 3 && promotion >= 0 && promotion <= 3, INVALID_VALUE);
  for (uint32_t i = 0; i < rank; i++) {
    REQUIRE(dims[i] >= 1 && dims[i] <= (uint64_t)1 << 32, INVALID_VALUE);
    REQUIRE(box[i] >= 1 && box[i] <= 256, INVALID_VALUE);
    REQUIRE(element_strides[i] == 1, INVALID_VALUE);
    REQUIRE(i + 1 == rank || (strides[i] % 16 == 0 && strides[i] < (uint64_t)1 << 40),
            INVALID_VALUE);
  }
  REQUIRE(box[0] * bytes % 16 == 0 && box[0] * bytes <= widths[swizzle], INVALID_VALUE);
  memset(map, 0, sizeof *map);
  map->opaque[0] = (uint64_t)(uintptr_t)base;
  return end(0);
}
