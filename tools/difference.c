#include "difference.h"

#include <inttypes.h>
#include <string.h>

#include "tool.h"

enum { NAN_BUCKET = ULP_BUCKETS - 1 };

static bool is_nan(uint32_t bits, int dtype) {
  return (bits_to_f32(bits, dtype) & 0x7fffffffu) > 0x7f800000u;
}

/* Neighbouring numbers get neighbouring integers; both zeros get 0. */
static int64_t ordinal(uint32_t bits, int dtype) {
  const uint32_t sign = dtype == DG_F32 ? 0x80000000u : 0x8000u;
  return bits & sign ? -(int64_t)(bits & (sign - 1)) : (int64_t)bits;
}

static uint32_t distance(uint32_t x, uint32_t y, int dtype) {
  if (is_nan(x, dtype) || is_nan(y, dtype)) return UINT32_MAX;
  const int64_t d = ordinal(x, dtype) - ordinal(y, dtype);
  return (uint32_t)(d < 0 ? -d : d);
}

static int bucket(uint32_t ulps) {
  if (ulps == UINT32_MAX) return NAN_BUCKET;
  return ulps ? 32 - __builtin_clz(ulps) : 0;
}

difference difference_find(const tensor *x, const tensor *y) {
  difference d = {.elements = tensor_count(x)};
  for (int64_t i = 0; i < d.elements; i++) {
    const uint32_t bx = tensor_bits(x, i), by = tensor_bits(y, i);
    if (bx == by) continue;
    const uint32_t ulps = distance(bx, by, x->dtype);
    if (d.count == 0) d.first = i;
    if (d.count == 0 || ulps > d.worst_ulps) {
      d.worst = i;
      d.worst_ulps = ulps;
    }
    d.count++;
    d.histogram[bucket(ulps)]++;
  }
  return d;
}

bool difference_comparable(const tensor *x, const char *x_name, const tensor *y,
                           const char *y_name) {
  char x_shape[128], y_shape[128];
  if (x->dtype == y->dtype && tensor_same_shape(x, y)) return true;
  complain("%s is %s %s and %s is %s %s: nothing to compare", x_name, dtype_name(x->dtype),
           tensor_shape_text(x, x_shape), y_name, dtype_name(y->dtype),
           tensor_shape_text(y, y_shape));
  return false;
}

static void index_text(const tensor *t, int64_t index, char text[192]) {
  tensor position = *t;
  for (int i = t->rank - 1; i >= 0; i--) {
    position.shape[i] = index % t->shape[i];
    index /= t->shape[i];
  }
  tensor_shape_text(&position, text);
}

static void print_element(FILE *file, const char *what, const tensor *x, const tensor *y,
                          int64_t index) {
  char at[192];
  const uint32_t bx = tensor_bits(x, index), by = tensor_bits(y, index);
  const int digits = (int)(2 * dtype_bytes(x->dtype));
  index_text(x, index, at);
  fprintf(file, "  %s at %s: %0*" PRIx32 " (%.9g) and %0*" PRIx32 " (%.9g)\n", what, at, digits, bx,
          tensor_value(bx, x->dtype), digits, by, tensor_value(by, x->dtype));
}

static void bucket_name(int i, char text[48]) {
  if (i == 0) snprintf(text, 48, "signs of zero");
  else if (i == NAN_BUCKET) snprintf(text, 48, "NaN");
  else if (i == 1) snprintf(text, 48, "1 ulp");
  else
    snprintf(text, 48, "%" PRIu64 " to %" PRIu64 " ulps", UINT64_C(1) << (i - 1),
             (UINT64_C(1) << i) - 1);
}

void difference_print(FILE *file, const difference *d, const tensor *x, const tensor *y) {
  if (d->count == 0) {
    fprintf(file, "same bits in all %" PRId64 " elements\n", d->elements);
    return;
  }
  fprintf(file, "%" PRId64 " of %" PRId64 " elements differ\n", d->count, d->elements);
  print_element(file, "first", x, y, d->first);
  print_element(file, "worst", x, y, d->worst);
  for (int i = 0; i < ULP_BUCKETS; i++) {
    char name[48];
    bucket_name(i, name);
    if (d->histogram[i]) fprintf(file, "  %-26s %12" PRId64 "\n", name, d->histogram[i]);
  }
}

static json_t *element_json(const tensor *x, const tensor *y, int64_t index) {
  char bits[2][16];
  const int digits = (int)(2 * dtype_bytes(x->dtype));
  json_t *at = json_array();
  int64_t position[TENSOR_MAX_RANK], rest = index;
  for (int i = x->rank - 1; i >= 0; i--) {
    position[i] = rest % x->shape[i];
    rest /= x->shape[i];
  }
  for (int i = 0; i < x->rank; i++) json_array_append_new(at, json_integer(position[i]));
  snprintf(bits[0], sizeof bits[0], "%0*" PRIx32, digits, tensor_bits(x, index));
  snprintf(bits[1], sizeof bits[1], "%0*" PRIx32, digits, tensor_bits(y, index));
  return json_pack("{s:o, s:s, s:s}", "index", at, "x", bits[0], "y", bits[1]);
}

json_t *difference_json(const difference *d, const tensor *x, const tensor *y) {
  json_t *histogram = json_object();
  for (int i = 0; i < ULP_BUCKETS; i++) {
    char name[48];
    bucket_name(i, name);
    if (d->histogram[i]) json_object_set_new(histogram, name, json_integer(d->histogram[i]));
  }
  return json_pack("{s:b, s:I, s:I, s:o, s:o, s:o}", "same", d->count == 0, "elements",
                   (json_int_t)d->elements, "differing", (json_int_t)d->count, "first",
                   d->count ? element_json(x, y, d->first) : json_null(), "worst",
                   d->count ? element_json(x, y, d->worst) : json_null(), "histogram", histogram);
}
