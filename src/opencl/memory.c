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

/* The addresses beyond the buffer's end are reserved too, so that what reaches there is noticed. */
typedef struct range {
  struct range *next;
  void *mem, *context;
  uint64_t flags;
  char *base;
  size_t size, reserved;
} range;

static range *ranges;
static pthread_mutex_t ranges_lock = PTHREAD_MUTEX_INITIALIZER;

/* What an attached buffer is, as long as it lives. */
static dg_status describe(void *mem, range *r) {
  enum { TYPE = 0x1100, FLAGS = 0x1101, SIZE = 0x1102, CONTEXT = 0x1106, BUFFER = 0x10f0 };
  uint32_t type = 0;
  int error = dg_cl.clGetMemObjectInfo(mem, TYPE, sizeof type, &type, NULL);
  if (error == 0 && type != BUFFER)
    return dg_fail(DG_ERROR_ARGUMENT, "mem is no buffer but of cl_mem_object_type 0x%x", type);
  if (error == 0) error = dg_cl.clGetMemObjectInfo(mem, FLAGS, sizeof r->flags, &r->flags, NULL);
  if (error == 0) error = dg_cl.clGetMemObjectInfo(mem, SIZE, sizeof r->size, &r->size, NULL);
  if (error == 0)
    error = dg_cl.clGetMemObjectInfo(mem, CONTEXT, sizeof r->context, &r->context, NULL);
  r->mem = mem;
  return error == 0 ? DG_OK : dg_opencl_fail(error, "asking about a cl_mem");
}

static dg_status reserve(range *r) {
  const size_t page = 4096, most = SIZE_MAX / 2;
  r->reserved = r->size < most ? (r->size / page + 2) * page : 0;
  r->base = mmap(NULL, r->reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (r->base != MAP_FAILED) return DG_OK;
  return dg_fail(DG_ERROR_MEMORY, "no addresses left for a buffer of %zu bytes", r->size);
}

dg_status dg_opencl_attach(void *mem, void **address) {
  const char *why;
  if (mem == NULL || address == NULL)
    return dg_fail(DG_ERROR_ARGUMENT, "%s is NULL", mem ? "address" : "mem");
  *address = NULL;
  if (dg_opencl_load(&why) == 0) return dg_fail(DG_ERROR_DEVICE, "OpenCL is not there: %s", why);
  range *r = calloc(1, sizeof *r);
  if (r == NULL) return dg_fail(DG_ERROR_MEMORY, "no memory to attach a buffer");
  dg_status status = describe(mem, r);
  if (status == DG_OK) status = reserve(r);
  if (status == DG_OK) {
    const int error = dg_cl.clRetainMemObject(mem);
    if (error != 0) {
      status = dg_opencl_fail(error, "clRetainMemObject");
      munmap(r->base, r->reserved);
    }
  }
  if (status != DG_OK) {
    free(r);
    return status;
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
  munmap(found->base, found->reserved);
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

/* The attached buffer whose addresses the extent touches; mem is NULL: none. */
static range attached(extent e) {
  range found = {0};
  pthread_mutex_lock(&ranges_lock);
  for (range *r = ranges; r && found.mem == NULL; r = r->next)
    if (e.high > (uintptr_t)r->base && e.low < (uintptr_t)r->base + r->reserved) found = *r;
  pthread_mutex_unlock(&ranges_lock);
  return found;
}

/* Whether a kernel in the context may use a buffer as it must for this operand. */
static dg_status check_attached(const range *r, extent e, int operand, const void *context) {
  enum { WRITE_ONLY = 2, READ_ONLY = 4, OUT = 2 };
  static const char *const names[] = {"a", "b", "out", "start", "bias", "groups.offsets"};
  const char *name = names[operand];
  if (e.low < (uintptr_t)r->base || e.high > (uintptr_t)r->base + r->size)
    return dg_fail(DG_ERROR_ARGUMENT,
                   "%s reaches outside of its attached cl_mem: to byte %td to %td of a buffer of "
                   "%zu bytes",
                   name, (char *)e.low - r->base, (char *)e.high - r->base, r->size);
  if (r->context != context)
    return dg_fail(DG_ERROR_ARGUMENT,
                   "%s is in a cl_mem of another context than the stream's; pass a command queue "
                   "of the cl_mem's context as stream",
                   name);
  const uint64_t wrong = operand == OUT ? READ_ONLY : WRITE_ONLY;
  if ((r->flags & wrong) == 0) return DG_OK;
  return dg_fail(DG_ERROR_ARGUMENT, "%s is in a cl_mem made with CL_MEM_%s_ONLY; make it without",
                 name, operand == OUT ? "READ" : "WRITE");
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
  if (error != 0) s->buffer = NULL;
  if (s->buffer == NULL) return dg_opencl_fail(error, "wrapping memory in a buffer");
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

/* What the operands and the offsets span; low is 0 where there is none to read or write. */
static void extents_of(const dg_grouped *g, extent extents[DG_OPENCL_BUFFERS]) {
  const dg_problem *p = &g->p;
  const dg_operand *operands[] = {&p->a, &p->b, &p->out, &p->start, &p->bias};
  const int64_t rows[] = {p->m, p->k, p->m, p->m, p->m}, cols[] = {p->k, p->n, p->n, p->n, p->n};
  const int64_t times = p->batch * g->groups; /* one of them is 1 */
  memset(extents, 0, DG_OPENCL_BUFFERS * sizeof *extents);
  for (int i = 0; i < DG_OPENCL_OPERANDS; i++)
    if (operands[i]->data && (i >= 2 || p->k > 0))
      extents[i] = extent_of(operands[i], rows[i], cols[i], times);
  if (g->offsets == NULL) return;
  const uintptr_t low = (uintptr_t)g->offsets;
  extents[DG_OPENCL_OFFSETS] =
      (extent){low, low + (uintptr_t)(g->groups + 1) * (uintptr_t)g->offset_bytes};
}

/* Finds or makes the buffer of each extent, and the address that its first byte stands for. */
static dg_status find_buffers(void *context, const extent extents[DG_OPENCL_BUFFERS],
                              uintptr_t bases[DG_OPENCL_BUFFERS], dg_opencl_memory *memory) {
  dg_status status = DG_OK;
  for (int i = 0; i < DG_OPENCL_BUFFERS; i++) {
    if (extents[i].low == 0) continue;
    const range r = attached(extents[i]);
    if (r.mem == NULL) {
      add_stretch(memory, extents[i], i == 2);
      continue;
    }
    status = check_attached(&r, extents[i], i, context);
    if (status != DG_OK) return status;
    memory->buffers[i] = r.mem;
    bases[i] = (uintptr_t)r.base;
  }
  for (int i = 0; i < memory->count && status == DG_OK; i++)
    status = wrap(context, &memory->stretches[i]);
  for (int i = 0; i < DG_OPENCL_BUFFERS && status == DG_OK; i++) {
    if (extents[i].low == 0 || memory->buffers[i]) continue;
    const struct dg_opencl_stretch *s = stretch_of(memory, extents[i]);
    memory->buffers[i] = s->buffer;
    bases[i] = s->low;
  }
  return status;
}

dg_status dg_opencl_bind(void *context, dg_grouped *g, dg_opencl_memory *memory) {
  dg_operand *operands[] = {&g->p.a, &g->p.b, &g->p.out, &g->p.start, &g->p.bias};
  extent extents[DG_OPENCL_BUFFERS];
  uintptr_t bases[DG_OPENCL_BUFFERS] = {0};
  memset(memory, 0, sizeof *memory);
  extents_of(g, extents);
  const dg_status status = find_buffers(context, extents, bases, memory);
  for (int i = 0; i < DG_OPENCL_OPERANDS; i++)
    operands[i]->data = (void *)((uintptr_t)operands[i]->data - bases[i]);
  g->offsets = (const void *)((uintptr_t)g->offsets - bases[DG_OPENCL_OFFSETS]);
  return status;
}

bool dg_opencl_reads_offsets(const dg_opencl_memory *memory) {
  for (int i = 0; i < memory->count; i++)
    if (memory->stretches[i].buffer == memory->buffers[DG_OPENCL_OFFSETS])
      return !memory->stretches[i].svm;
  return false;
}

static dg_status bring_back(void *queue, const struct dg_opencl_stretch *s) {
  enum { MAP_READ = 1, BLOCKING = 1 };
  int error = 0;
  void *data = dg_cl.clEnqueueMapBuffer(queue, s->buffer, BLOCKING, MAP_READ, 0, s->high - s->low,
                                        0, NULL, NULL, &error);
  if (error != 0 || data == NULL) return dg_opencl_fail(error, "bringing back the result");
  error = dg_cl.clEnqueueUnmapMemObject(queue, s->buffer, data, 0, NULL, NULL);
  return error == 0 ? DG_OK : dg_opencl_fail(error, "clEnqueueUnmapMemObject");
}

dg_status dg_opencl_finish(void *queue, const dg_opencl_memory *memory) {
  bool plain = false;
  dg_status status = DG_OK;
  for (int i = 0; i < memory->count; i++) {
    const struct dg_opencl_stretch *s = &memory->stretches[i];
    plain |= !s->svm;
    if (!s->svm && s->written && status == DG_OK) status = bring_back(queue, s);
  }
  /* Even after a failure: the kernel must not go on in memory that the caller may free. */
  const int error = plain ? dg_cl.clFinish(queue) : dg_cl.clFlush(queue);
  if (status != DG_OK || error == 0) return status;
  return dg_opencl_fail(error, "waiting for the kernel");
}

void dg_opencl_unbind(dg_opencl_memory *memory) {
  for (int i = 0; i < memory->count; i++)
    if (memory->stretches[i].buffer) dg_cl.clReleaseMemObject(memory->stretches[i].buffer);
}
