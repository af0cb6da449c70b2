#include "safetensors.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

/* The limit of the reference implementation. */
enum { MAX_HEADER = 100000000 };

/* Where one tensor lies in the data. */
typedef struct extent {
  const char *name;
  int64_t begin, end;
} extent;

TOOL_PRINTF(2, 3) static bool fail(char *why, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(why, TENSOR_WHY, format, arguments);
  va_end(arguments);
  return false;
}

/* Bits of an element; 0 for a dtype not known here, whose length cannot be checked. */
static int dtype_bits(const char *name) {
  static const struct {
    const char *name;
    int bits;
  } known[] = {{"BF16", 16},   {"F16", 16},   {"F32", 32}, {"F64", 64}, {"I64", 64},
               {"U64", 64},    {"I32", 32},   {"U32", 32}, {"I16", 16}, {"U16", 16},
               {"I8", 8},      {"U8", 8},     {"BOOL", 8}, {"C64", 64}, {"F8_E4M3", 8},
               {"F8_E5M2", 8}, {"F8_E8M0", 8}};
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (strcmp(known[i].name, name) == 0) return known[i].bits;
  return 0;
}

static int library_dtype(const char *name) {
  for (int dtype = DG_BF16; dtype <= DG_F32; dtype++)
    if (strcmp(dtype_name(dtype), name) == 0) return dtype;
  return 0;
}

static bool get_size(const json_t *value, int64_t *size) {
  if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
  *size = json_integer_value(value);
  return true;
}

/* The product of the shape times the bytes of an element; a zero makes it zero, however large the
 * other sizes are, but no partial product may overflow all the same. */
static bool shape_bytes(const json_t *shape, int bits, int64_t *bytes) {
  bool zero = false;
  *bytes = bits / 8;
  for (size_t i = 0; i < json_array_size(shape); i++) {
    int64_t size;
    if (!get_size(json_array_get(shape, i), &size)) return false;
    if (size == 0) zero = true;
    else if (__builtin_mul_overflow(*bytes, size, bytes)) return false;
  }
  if (zero) *bytes = 0;
  return true;
}

static bool check_entry(const char *name, const json_t *entry, int64_t data_bytes, extent *e,
                        char *why) {
  const json_t *dtype = json_object_get(entry, "dtype");
  const json_t *shape = json_object_get(entry, "shape");
  const json_t *offsets = json_object_get(entry, "data_offsets");
  int64_t bytes;
  e->name = name;
  if (!json_is_string(dtype) || !json_is_array(shape) || json_array_size(offsets) != 2)
    return fail(why, "tensor \"%.80s\" lacks a dtype, a shape or two data_offsets", name);
  if (!get_size(json_array_get(offsets, 0), &e->begin) ||
      !get_size(json_array_get(offsets, 1), &e->end) || e->begin > e->end || e->end > data_bytes)
    return fail(
        why, "tensor \"%.80s\" has data_offsets that are not inside the %" PRId64 " bytes of data",
        name, data_bytes);
  const int bits = dtype_bits(json_string_value(dtype));
  if (!shape_bytes(shape, bits, &bytes))
    return fail(why, "tensor \"%.80s\" has a shape with a bad or too large size", name);
  if (bits && bytes != e->end - e->begin)
    return fail(why,
                "tensor \"%.80s\" has %" PRId64
                " bytes of data, but its shape and dtype need "
                "%" PRId64,
                name, e->end - e->begin, bytes);
  return true;
}

static int by_begin(const void *x, const void *y) {
  const extent *a = x, *b = y;
  if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
  return (a->end > b->end) - (a->end < b->end);
}

/* The tensors must cover the data exactly. */
static bool check_cover(extent *all, size_t count, int64_t data_bytes, char *why) {
  int64_t end = 0;
  qsort(all, count, sizeof *all, by_begin);
  for (size_t i = 0; i < count; i++) {
    if (all[i].begin != end)
      return fail(why,
                  "tensor \"%.80s\" begins at byte %" PRId64 " of the data, where %" PRId64
                  " was expected: tensors %s",
                  all[i].name, all[i].begin, end, all[i].begin < end ? "overlap" : "leave a gap");
    end = all[i].end;
  }
  if (end != data_bytes)
    return fail(why, "%" PRId64 " bytes of data belong to no tensor", data_bytes - end);
  return true;
}

/* The format allows strings only. */
static bool check_metadata(const json_t *header, char *why) {
  const char *key;
  json_t *value, *metadata = json_object_get(header, "__metadata__");
  if (metadata == NULL || json_is_null(metadata)) return true;
  if (!json_is_object(metadata)) return fail(why, "has a __metadata__ that is no object");
  json_object_foreach(metadata, key, value) if (!json_is_string(value)) return fail(
      why, "has a __metadata__ whose \"%.80s\" is no string", key);
  return true;
}

static bool check_all(json_t *header, int64_t data_bytes, char *why) {
  const char *name;
  json_t *entry;
  size_t count = 0;
  extent *all = malloc((json_object_size(header) + 1) * sizeof *all);
  bool good = all != NULL || fail(why, "no memory for its header");
  json_object_foreach(header, name, entry) {
    if (!good || strcmp(name, "__metadata__") == 0) continue;
    good = check_entry(name, entry, data_bytes, &all[count], why);
    count++;
  }
  good = good && check_cover(all, count, data_bytes, why);
  free(all);
  return good;
}

/* The only tensor's name, or a line that lists some of the names. */
static const char *only_name(json_t *header, char *why) {
  const char *name, *only = NULL;
  json_t *entry;
  int count = 0;
  size_t used = 0;
  char names[160] = "";
  json_object_foreach(header, name, entry) {
    if (strcmp(name, "__metadata__") == 0) continue;
    only = name;
    count++;
    if (used < sizeof names)
      used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", name);
  }
  if (count == 1) return only;
  if (count == 0) fail(why, "holds no tensor");
  else
    fail(why, "holds %d tensors; add :TENSOR (%s%s)", count, names,
         used >= sizeof names ? "..." : "");
  return NULL;
}

static bool fill(tensor *t, const char *name, const json_t *entry, const char *data, char *why) {
  const char *dtype = json_string_value(json_object_get(entry, "dtype"));
  const json_t *shape = json_object_get(entry, "shape");
  memset(t, 0, sizeof *t);
  t->dtype = library_dtype(dtype);
  if (t->dtype == 0)
    return fail(why, "tensor \"%.80s\" has dtype %.20s; BF16, F16 and F32 are supported", name,
                dtype);
  if (json_array_size(shape) > TENSOR_MAX_RANK)
    return fail(why, "tensor \"%.80s\" has %zu dimensions; at most %d are supported", name,
                json_array_size(shape), TENSOR_MAX_RANK);
  t->rank = (int)json_array_size(shape);
  for (int i = 0; i < t->rank; i++)
    t->shape[i] = json_integer_value(json_array_get(shape, (size_t)i));
  tensor_set_strides(t, false);
  t->data = data + json_integer_value(json_array_get(json_object_get(entry, "data_offsets"), 0));
  t->swapped = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
  return true;
}

static bool find(json_t *header, const char *data, int64_t data_bytes, const char *name,
                 tensor *found, char *why) {
  if (!json_is_object(header)) return fail(why, "its header is not a JSON object");
  if (!check_metadata(header, why) || !check_all(header, data_bytes, why)) return false;
  if (name == NULL && (name = only_name(header, why)) == NULL) return false;
  const json_t *entry = strcmp(name, "__metadata__") ? json_object_get(header, name) : NULL;
  if (entry == NULL) return fail(why, "holds no tensor \"%.80s\"", name);
  return fill(found, name, entry, data, why);
}

bool safetensors_find(const void *file, size_t bytes, const char *name, tensor *found,
                      char why[TENSOR_WHY]) {
  const unsigned char *at = file;
  uint64_t length = 0;
  if (bytes < 8) return fail(why, "is no safetensors file: it has only %zu bytes", bytes);
  for (int i = 7; i >= 0; i--) length = length << 8 | at[i];
  if (length > bytes - 8 || bytes - 8 > INT64_MAX)
    return fail(why,
                "is truncated or no safetensors file: its header should have %" PRIu64
                " bytes, the file has %zu",
                length, bytes);
  if (length > MAX_HEADER)
    return fail(why, "has a header of %" PRIu64 " bytes; at most %d are allowed", length,
                MAX_HEADER);
  if (length == 0 || at[8] != '{') return fail(why, "has a header that does not begin with {");
  json_error_t error;
  json_t *header =
      json_loadb((const char *)file + 8, (size_t)length, JSON_REJECT_DUPLICATES, &error);
  if (header == NULL) return fail(why, "has a bad header: %.160s", error.text);
  const bool good = find(header, (const char *)file + 8 + length, (int64_t)(bytes - 8 - length),
                         name, found, why);
  json_decref(header);
  return good;
}

static json_t *shape_json(const tensor *t) {
  json_t *shape = json_array();
  for (int i = 0; i < t->rank; i++) json_array_append_new(shape, json_integer(t->shape[i]));
  return shape;
}

void *safetensors_head(const tensor *t, const char *name, size_t *bytes) {
  json_t *header = json_pack("{s:{s:s, s:o, s:[I,I]}}", name, "dtype", dtype_name(t->dtype),
                             "shape", shape_json(t), "data_offsets", (json_int_t)0,
                             (json_int_t)(tensor_count(t) * dtype_bytes(t->dtype)));
  char *text = header ? json_dumps(header, JSON_COMPACT) : NULL;
  json_decref(header);
  if (text == NULL) return NULL;
  const size_t used = strlen(text), length = (used + 7) / 8 * 8; /* so that the data is aligned */
  char *head = malloc(8 + length);
  if (head != NULL) {
    for (int i = 0; i < 8; i++) head[i] = (char)(length >> (8 * i) & 255);
    memcpy(head + 8, text, used);
    memset(head + 8 + used, ' ', length - used);
    *bytes = 8 + length;
  }
  free(text);
  return head;
}
