#include "tensor.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "npy.h"
#include "safetensors.h"
#include "tool.h"

int64_t tensor_count(const tensor *t) {
  int64_t count = 1;
  for (int i = 0; i < t->rank; i++) {
    if (t->shape[i] == 0) return 0;
    count *= t->shape[i];
  }
  return count;
}

void tensor_set_strides(tensor *t, bool fortran) {
  int64_t stride = 1;
  t->contiguous = !fortran || t->rank < 2;
  for (int n = 0; n < t->rank; n++) {
    const int i = fortran ? n : t->rank - 1 - n;
    t->stride[i] = stride;
    stride *= t->shape[i] ? t->shape[i] : 1;
  }
}

bool tensor_same_shape(const tensor *x, const tensor *y) {
  return x->rank == y->rank &&
         memcmp(x->shape, y->shape, (size_t)x->rank * sizeof x->shape[0]) == 0;
}

const char *tensor_shape_text(const tensor *t, char text[128]) {
  size_t used = (size_t)snprintf(text, 128, "[");
  for (int i = 0; i < t->rank && used < 128; i++)
    used += (size_t)snprintf(text + used, 128 - used, "%s%" PRId64, i ? ", " : "", t->shape[i]);
  if (used < 128) snprintf(text + used, 128 - used, "]");
  return text;
}

int64_t tensor_offset(const tensor *t, int64_t index) {
  int64_t offset = 0;
  if (t->contiguous) return index;
  for (int i = t->rank - 1; i >= 0; i--) {
    offset += index % t->shape[i] * t->stride[i];
    index /= t->shape[i];
  }
  return offset;
}

uint32_t tensor_bits(const tensor *t, int64_t index) {
  const char *at = (const char *)t->data + dtype_bytes(t->dtype) * tensor_offset(t, index);
  if (t->dtype == DG_F32) {
    uint32_t bits;
    memcpy(&bits, at, sizeof bits);
    return t->swapped ? __builtin_bswap32(bits) : bits;
  }
  uint16_t bits;
  memcpy(&bits, at, sizeof bits);
  return t->swapped ? __builtin_bswap16(bits) : bits;
}

static uint32_t f16_to_f32(uint32_t h) {
  const uint32_t sign = (h & 0x8000u) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ffu;
  if (exponent == 31) return sign | 0x7f800000u | mantissa << 13;
  if (exponent) return sign | (exponent + 112) << 23 | mantissa << 13;
  if (mantissa == 0) return sign;
  const uint32_t shift = (uint32_t)__builtin_clz(mantissa) - 21; /* normalise a subnormal */
  return sign | (113 - shift) << 23 | (mantissa << shift & 0x3ffu) << 13;
}

uint32_t bits_to_f32(uint32_t bits, int dtype) {
  if (dtype == DG_F32) return bits;
  return dtype == DG_BF16 ? bits << 16 : f16_to_f32(bits);
}

uint16_t f32_to_bf16(uint32_t bits) {
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

double tensor_value(uint32_t bits, int dtype) {
  const uint32_t f = bits_to_f32(bits, dtype);
  float value;
  memcpy(&value, &f, sizeof value);
  return (double)value;
}

/* Replaces f's elements by a C-order copy: of dtype BF16, or as they are in this machine's order.
 */
static bool convert(tensor_file *f, bool to_bf16) {
  const int64_t count = tensor_count(&f->t);
  const int dtype = to_bf16 ? DG_BF16 : f->t.dtype;
  char *copy = malloc((size_t)(count * dtype_bytes(dtype)) + 1);
  if (copy == NULL) {
    complain("no memory to convert %" PRId64 " elements", count);
    return false;
  }
  for (int64_t i = 0; i < count; i++) {
    uint32_t bits = tensor_bits(&f->t, i);
    if (to_bf16) bits = f32_to_bf16(bits_to_f32(bits, f->t.dtype));
    const uint16_t narrow = (uint16_t)bits;
    if (dtype == DG_F32) memcpy(copy + 4 * i, &bits, 4);
    else memcpy(copy + 2 * i, &narrow, 2);
  }
  free(f->copy);
  f->copy = copy;
  f->t.data = copy;
  f->t.dtype = dtype;
  f->t.swapped = false;
  tensor_set_strides(&f->t, false);
  return true;
}

bool tensor_cast_bf16(tensor_file *f) { return f->t.dtype == DG_BF16 || convert(f, true); }

/* A file that another process cuts while it is mapped. */
static void file_shrank(int number) {
  static const char text[] = "detgemm: an input file shrank while it was being read\n";
  (void)number;
  (void)!write(STDERR_FILENO, text, sizeof text - 1);
  _exit(EXIT_BAD);
}

static bool map_file(tensor_file *f, const char *path) {
  struct stat info;
  signal(SIGBUS, file_shrank);
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  bool good = fd >= 0 && fstat(fd, &info) == 0;
  if (good && !S_ISREG(info.st_mode)) {
    complain("%s is no regular file", path);
    close(fd);
    return false;
  }
  if (good && info.st_size > 0) {
    f->map_bytes = (size_t)info.st_size;
    f->map = mmap(NULL, f->map_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (f->map == MAP_FAILED) {
      f->map = NULL;
      good = false;
    }
  }
  if (!good) complain("%s: %s", path, strerror(errno));
  if (fd >= 0) close(fd);
  return good;
}

static bool ends_with(const char *text, const char *end) {
  const size_t length = strlen(text), tail = strlen(end);
  return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* The ':' between file and tensor name: after the first ".safetensors", as tensor names may hold
 * anything. */
static const char *split(const char *spec) {
  const char *found = strstr(spec, ".safetensors:");
  return found ? found + strlen(".safetensors") : NULL;
}

static bool read_mapped(tensor_file *f, const char *path, const char *name, bool safetensors,
                        bool npy_u2_is_bf16) {
  char why[TENSOR_WHY];
  if (!map_file(f, path)) return false;
  const void *data = f->map ? f->map : "";
  const bool good = safetensors ? safetensors_find(data, f->map_bytes, name, &f->t, why)
                                : npy_read(data, f->map_bytes, npy_u2_is_bf16, &f->t, why);
  if (!good) complain("%s: %s", path, why);
  return good && (!f->t.swapped || convert(f, false));
}

bool tensor_open(tensor_file *f, const char *spec, bool npy_u2_is_bf16) {
  const char *colon = split(spec);
  const bool safetensors = colon != NULL || ends_with(spec, ".safetensors");
  memset(f, 0, sizeof *f);
  if (!safetensors && !ends_with(spec, ".npy")) {
    complain("\"%s\" names no tensor; write FILE.safetensors:TENSOR or FILE.npy", spec);
    return false;
  }
  char *path = colon ? strndup(spec, (size_t)(colon - spec)) : strdup(spec);
  if (path == NULL) {
    complain("no memory");
    return false;
  }
  const bool good = read_mapped(f, path, colon ? colon + 1 : NULL, safetensors, npy_u2_is_bf16);
  free(path);
  if (!good) tensor_close(f);
  return good;
}

void tensor_close(tensor_file *f) {
  if (f->map) munmap(f->map, f->map_bytes);
  free(f->copy);
  memset(f, 0, sizeof *f);
}
