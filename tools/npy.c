#include "npy.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

/* The header, a Python dictionary literal, while it is read. */
typedef struct cursor {
  const char *at, *end;
} cursor;

/* What the header says. */
typedef struct description {
  char descr[16];
  bool fortran, has_descr, has_order, has_shape;
} description;

TOOL_PRINTF(2, 3) static bool fail(char *why, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(why, TENSOR_WHY, format, arguments);
  va_end(arguments);
  return false;
}

static void skip_space(cursor *c) {
  while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t')) c->at++;
}

static bool take(cursor *c, char wanted) {
  skip_space(c);
  if (c->at == c->end || *c->at != wanted) return false;
  c->at++;
  return true;
}

static bool take_word(cursor *c, const char *word) {
  const size_t length = strlen(word);
  skip_space(c);
  if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length) != 0) return false;
  c->at += length;
  return true;
}

/* A quoted string without escapes, which no key or dtype of these files needs. */
static bool take_string(cursor *c, char *text, size_t size) {
  const char quote = take(c, '\'') ? '\'' : take(c, '"') ? '"' : 0;
  size_t used = 0;
  if (quote == 0) return false;
  for (; c->at < c->end && *c->at != quote; c->at++) {
    if (used + 1 == size || *c->at == '\\' || *c->at == '\0') return false;
    text[used++] = *c->at;
  }
  text[used] = '\0';
  return take(c, quote);
}

/* A number as Python writes it: 2, or 2L where Python 2 wrote the file. */
static bool take_size(cursor *c, int64_t *size) {
  skip_space(c);
  const char *first = c->at;
  *size = 0;
  for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
    if (__builtin_mul_overflow(*size, 10, size) ||
        __builtin_add_overflow(*size, *c->at - '0', size))
      return false;
  const ptrdiff_t digits = c->at - first;
  if (c->at < c->end && *c->at == 'L') c->at++;
  return digits == 1 || (digits > 1 && *first != '0');
}

static bool take_shape(cursor *c, tensor *t, char *why) {
  if (!take(c, '(')) return fail(why, "has a header whose shape is not a tuple");
  while (!take(c, ')')) {
    int64_t size;
    if (!take_size(c, &size)) return fail(why, "has a shape with a bad or too large size");
    if (t->rank == TENSOR_MAX_RANK)
      return fail(why, "has more than %d dimensions", TENSOR_MAX_RANK);
    t->shape[t->rank++] = size;
    if (take(c, ',')) continue;
    if (t->rank == 1 || !take(c, ')')) /* (2) is a number, (2,) a tuple */
      return fail(why, "has a header whose shape is not a tuple of sizes");
    break;
  }
  return true;
}

static bool take_entry(cursor *c, tensor *t, description *d, char *why) {
  char key[16];
  if (!take_string(c, key, sizeof key) || !take(c, ':'))
    return fail(why, "has a header that is not a dictionary of descr, fortran_order and shape");
  bool *seen = strcmp(key, "descr") == 0           ? &d->has_descr
               : strcmp(key, "fortran_order") == 0 ? &d->has_order
               : strcmp(key, "shape") == 0         ? &d->has_shape
                                                   : NULL;
  if (seen == NULL || *seen)
    return fail(why, "has a header with %s key \"%s\"", seen ? "a second" : "an unknown", key);
  *seen = true;
  if (seen == &d->has_shape) return take_shape(c, t, why);
  if (seen == &d->has_descr) {
    skip_space(c);
    if (c->at < c->end && *c->at == '[')
      return fail(why, "has a structured dtype; BF16, F16 and F32 are supported");
    return take_string(c, d->descr, sizeof d->descr) || fail(why, "has a bad descr");
  }
  d->fortran = take_word(c, "True");
  return d->fortran || take_word(c, "False") ||
         fail(why, "has a fortran_order that is neither True nor False");
}

static bool parse_header(cursor *c, tensor *t, description *d, char *why) {
  if (!take(c, '{')) return fail(why, "has a header that is not a dictionary");
  while (!take(c, '}')) {
    if (!take_entry(c, t, d, why)) return false;
    if (take(c, ',')) continue;
    if (!take(c, '}')) return fail(why, "has a header that does not end");
    break;
  }
  skip_space(c);
  if (c->at != c->end) return fail(why, "has text after its header's dictionary");
  if (!d->has_descr || !d->has_order || !d->has_shape)
    return fail(why, "has a header without descr, fortran_order or shape");
  return true;
}

static bool find_dtype(tensor *t, const char *descr, bool u2_is_bf16, char *why) {
  const char *kind = descr + (*descr != '\0' && strchr("<>|=", *descr) != NULL);
  if (strcmp(kind, "f4") == 0) t->dtype = DG_F32;
  else if (strcmp(kind, "f2") == 0) t->dtype = DG_F16;
  else if (strcmp(kind, "V2") == 0 || (u2_is_bf16 && strcmp(kind, "u2") == 0)) t->dtype = DG_BF16;
  else if (*kind == 'O') return fail(why, "holds Python objects, not numbers");
  else
    return fail(why, "has dtype \"%s\"; <f4, <f2 and <V2 (BF16) are supported%s", descr,
                strcmp(kind, "u2") == 0 ? ", and <u2 as BF16 with --npy-bf16" : "");
  const bool big = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
  const bool native = *descr == '=' || kind == descr; /* f4 without a sign, too */
  t->swapped = !native && (big ? *descr != '>' : *descr == '>');
  return true;
}

static bool check_size(const tensor *t, size_t available, char *why) {
  int64_t bytes = dtype_bytes(t->dtype);
  bool zero = false;
  for (int i = 0; i < t->rank; i++) {
    if (t->shape[i] == 0) zero = true;
    else if (__builtin_mul_overflow(bytes, t->shape[i], &bytes))
      return fail(why, "has a shape that overflows");
  }
  if (!zero && (uint64_t)bytes > available)
    return fail(why, "is truncated: its shape needs %" PRId64 " bytes of data, it has %zu", bytes,
                available);
  return true;
}

bool npy_read(const void *file, size_t bytes, bool u2_is_bf16, tensor *found,
              char why[TENSOR_WHY]) {
  const unsigned char *at = file;
  description d = {0};
  memset(found, 0, sizeof *found);
  if (bytes < 10 || memcmp(at, "\x93NUMPY", 6) != 0) return fail(why, "is no npy file");
  if (at[6] < 1 || at[6] > 3 || at[7] != 0)
    return fail(why, "has npy version %d.%d; 1.0, 2.0 and 3.0 are supported", at[6], at[7]);
  const size_t fixed = at[6] == 1 ? 10 : 12;
  if (bytes < fixed) return fail(why, "is truncated in its header");
  size_t length = (size_t)(at[8] | at[9] << 8);
  if (fixed == 12) length |= (size_t)at[10] << 16 | (size_t)at[11] << 24;
  if (length > bytes - fixed)
    return fail(why, "is truncated: its header should have %zu bytes, %zu are left", length,
                bytes - fixed);
  cursor c = {(const char *)file + fixed, (const char *)file + fixed + length};
  if (!parse_header(&c, found, &d, why) || !find_dtype(found, d.descr, u2_is_bf16, why) ||
      !check_size(found, bytes - fixed - length, why))
    return false;
  tensor_set_strides(found, d.fortran);
  found->data = (const char *)file + fixed + length;
  return true;
}

void *npy_head(const tensor *t, size_t *bytes) {
  enum { SIZE = 320 }; /* 8 sizes of 20 characters and the rest */
  char text[SIZE];
  const char *descr = t->dtype == DG_F32 ? "<f4" : t->dtype == DG_F16 ? "<f2" : "<V2";
  size_t used =
      (size_t)snprintf(text, SIZE, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
  for (int i = 0; i < t->rank; i++)
    used += (size_t)snprintf(text + used, SIZE - used, "%" PRId64 "%s", t->shape[i],
                             i + 1 < t->rank ? ", "
                             : t->rank == 1  ? ","
                                             : "");
  used += (size_t)snprintf(text + used, SIZE - used, "), }");
  const size_t length = (10 + used + 1 + 63) / 64 * 64 - 10; /* so that the data is aligned */
  char *head = malloc(10 + length);
  if (head == NULL) return NULL;
  memcpy(head, "\x93NUMPY\x01\x00", 8);
  head[8] = (char)(length & 255);
  head[9] = (char)(length >> 8);
  memcpy(head + 10, text, used);
  memset(head + 10 + used, ' ', length - used - 1);
  head[10 + length - 1] = '\n';
  *bytes = 10 + length;
  return head;
}
