/* Operands as OpenCL buffers.
 *
 * A data pointer is one of three things. An address within a range that dg_opencl_attach() gave
 * stands for that place in a cl_mem. Anything else is memory of this process, shared (SVM) or
 * plain; it is wrapped in a buffer that uses it in place, which tells whether it is SVM. Operands
 * that overlap lie in one stretch and one buffer, since OpenCL leaves two buffers over the same
 * memory undefined. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../num.h"
#include "opencl.h"

/* ---- attached buffers ---- */

typedef struct range {
  struct range *next;
  void *mem;
  char *base;
  size_t size;
} range;

static range *ranges;
static pthread_mutex_t ranges_lock = PTHREAD_MUTEX_INITIALIZER;

dg_status dg_opencl_attach(void *mem, void **address) {
  enum { MEM_SIZE = 0x1102 };
  const char *why;
  if (mem == NULL || address == NULL)
    return dg_fail(DG_ERROR_ARGUMENT, "%s is NULL", mem ? "address" : "mem");
  *address = NULL;
  if (dg_opencl_load(&why) == 0) return dg_fail(DG_ERROR_DEVICE, "OpenCL is not there: %s", why);
  range *r = calloc(1, sizeof *r);
  if (r == NULL) return dg_fail(DG_ERROR_MEMORY, "no memory to attach a buffer");
  int error = dg_cl.clGetMemObjectInfo(mem, MEM_SIZE, sizeof r->size, &r->size, NULL);
  if (error == 0) error = dg_cl.clRetainMemObject(mem);
  if (error != 0) {
    free(r);
    return dg_opencl_fail(error, "attaching a cl_mem");
  }
  r->mem = mem;
  r->base = mmap(NULL, r->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (r->base == MAP_FAILED) {
    const size_t size = r->size;
    dg_cl.clReleaseMemObject(mem);
    free(r);
    return dg_fail(DG_ERROR_MEMORY, "no addresses left for a buffer of %zu bytes", size);
  }
  pthread_mutex_lock(&ranges_lock);
  r->next = ranges;
  ranges = r;
  pthread_mutex_unlock(&ranges_lock);
  *address = r->base;
  return DG_OK;
}

dg_status dg_opencl_detach(void *address) {
  pthread_mutex_lock(&ranges_lock);
  range **at = &ranges, *found;
  while (*at && (*at)->base != address) at = &(*at)->next;
  found = *at;
  if (found) *at = found->next;
  pthread_mutex_unlock(&ranges_lock);
  if (found == NULL)
    return dg_fail(DG_ERROR_ARGUMENT, "%p is no address that dg_opencl_attach() gave", address);
  munmap(found->base, found->size);
  dg_cl.clReleaseMemObject(found->mem);
  free(found);
  return DG_OK;
}

/* ---- binding ---- */

typedef struct extent {
  uintptr_t low, high;
} extent;

static void widen(extent *e, int64_t count, int64_t stride, int64_t size) {
  const int64_t reach = (count - 1) * stride * size;
  if (reach < 0) e->low -= (uintptr_t)-reach;
  else e->high += (uintptr_t)reach;
}

static extent extent_of(const dg_operand *x, int64_t rows, int64_t cols, int64_t batch) {
  const int64_t size = dg_dtype_bytes(x->dtype);
  extent e = {(uintptr_t)x->data, (uintptr_t)x->data + (uintptr_t)size};
  widen(&e, rows, x->rs, size);
  widen(&e, cols, x->cs, size);
  widen(&e, batch, x->bs, size);
  return e;
}

/* The cl_mem that holds the extent, with *base the address of its first byte; NULL: none does. */
static void *attached(extent e, uintptr_t *base) {
  void *mem = NULL;
  pthread_mutex_lock(&ranges_lock);
  for (range *r = ranges; r && mem == NULL; r = r->next)
    if (e.low >= (uintptr_t)r->base && e.high <= (uintptr_t)r->base + r->size) {
      mem = r->mem;
      *base = (uintptr_t)r->base;
    }
  pthread_mutex_unlock(&ranges_lock);
  return mem;
}

/* Adds an extent to the stretches; those it meets become one. */
static void add_stretch(dg_opencl_memory *memory, extent e, bool written) {
  struct dg_opencl_stretch whole = {.low = e.low, .high = e.high, .written = written};
  int kept = 0;
  for (int i = 0; i < memory->count; i++) {
    const struct dg_opencl_stretch *s = &memory->stretches[i];
    if (s->high <= whole.low || s->low >= whole.high) {
      memory->stretches[kept++] = *s;
      continue;
    }
    if (s->low < whole.low) whole.low = s->low;
    if (s->high > whole.high) whole.high = s->high;
    whole.written |= s->written;
  }
  memory->stretches[kept++] = whole;
  memory->count = kept;
}

static dg_status wrap(void *context, struct dg_opencl_stretch *s) {
  enum { READ_WRITE = 1, READ_ONLY = 4, USE_HOST_PTR = 8, USES_SVM_POINTER = 0x1109 };
  uint32_t svm = 0;
  int error = 0;
  s->buffer = dg_cl.clCreateBuffer(context, (s->written ? READ_WRITE : READ_ONLY) | USE_HOST_PTR,
                                   s->high - s->low, (void *)s->low, &error);
  if (error != 0) {
    s->buffer = NULL;
    return dg_opencl_fail(error, "wrapping memory in a buffer");
  }
  s->svm = dg_cl.clGetMemObjectInfo(s->buffer, USES_SVM_POINTER, sizeof svm, &svm, NULL) == 0 &&
           svm != 0;
  return DG_OK;
}

static const struct dg_opencl_stretch *stretch_of(const dg_opencl_memory *memory, extent e) {
  for (int i = 0; i < memory->count; i++)
    if (e.low >= memory->stretches[i].low && e.high <= memory->stretches[i].high)
      return &memory->stretches[i];
  return NULL;
}

dg_status dg_opencl_bind(void *context, dg_problem *p, dg_opencl_memory *memory) {
  dg_operand *operands[] = {&p->a, &p->b, &p->out, &p->start, &p->bias};
  const int64_t rows[] = {p->m, p->k, p->m, p->m, p->m}, cols[] = {p->k, p->n, p->n, p->n, p->n};
  extent extents[DG_OPENCL_OPERANDS];
  uintptr_t base = 0;
  memset(memory, 0, sizeof *memory);
  for (int i = 0; i < DG_OPENCL_OPERANDS; i++) {
    if (operands[i]->data == NULL || (i < 2 && p->k == 0)) continue;
    extents[i] = extent_of(operands[i], rows[i], cols[i], p->batch);
    memory->buffers[i] = attached(extents[i], &base);
    if (memory->buffers[i]) operands[i]->data = (void *)((uintptr_t)operands[i]->data - base);
    else add_stretch(memory, extents[i], i == 2);
  }
  for (int i = 0; i < memory->count; i++) {
    const dg_status status = wrap(context, &memory->stretches[i]);
    if (status != DG_OK) return status;
  }
  for (int i = 0; i < DG_OPENCL_OPERANDS; i++) {
    if (operands[i]->data == NULL || (i < 2 && p->k == 0) || memory->buffers[i]) continue;
    const struct dg_opencl_stretch *s = stretch_of(memory, extents[i]);
    memory->buffers[i] = s->buffer;
    operands[i]->data = (void *)((uintptr_t)operands[i]->data - s->low);
  }
  return DG_OK;
}

dg_status dg_opencl_finish(void *queue, dg_opencl_memory *memory) {
  enum { MAP_READ = 1, BLOCKING = 1 };
  bool plain = false;
  int error = 0;
  for (int i = 0; i < memory->count && error == 0; i++) {
    const struct dg_opencl_stretch *s = &memory->stretches[i];
    plain |= !s->svm;
    if (s->svm || !s->written) continue;
    void *data = dg_cl.clEnqueueMapBuffer(queue, s->buffer, BLOCKING, MAP_READ, 0, s->high - s->low,
                                          0, NULL, NULL, &error);
    if (error == 0) error = dg_cl.clEnqueueUnmapMemObject(queue, s->buffer, data, 0, NULL, NULL);
  }
  if (error == 0) error = plain ? dg_cl.clFinish(queue) : dg_cl.clFlush(queue);
  return error == 0 ? DG_OK : dg_opencl_fail(error, "the kernel");
}

void dg_opencl_unbind(dg_opencl_memory *memory) {
  for (int i = 0; i < memory->count; i++)
    if (memory->stretches[i].buffer) dg_cl.clReleaseMemObject(memory->stretches[i].buffer);
}
