#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "tool.h"

int next_option(int argc, char **argv, const char *letters, const struct option *options) {
  opterr = 0;
  const int c = getopt_long(argc, argv, letters, options, NULL);
  if (c != '?' && c != ':') return c;
  const char *word = argv[optind - 1];
  if (c == ':') usage_error(argv[0], "option \"%s\" needs a value", word);
  else if (optopt == 0) usage_error(argv[0], "\"%s\" is no option, or short for several", word);
  else if (strncmp(word, "--", 2) == 0) usage_error(argv[0], "\"%s\": it takes no value", word);
  else usage_error(argv[0], "\"-%c\" is no option", optopt);
  return '?';
}

bool parse_number(const char *what, const char *text, int64_t min, int64_t max, int64_t *value) {
  char *end;
  errno = 0;
  const long long number = strtoll(text, &end, 10);
  if (end == text || *end || errno || number < min || number > max) {
    complain("%s is \"%s\"; it must be a number from %" PRId64 " to %" PRId64, what, text, min,
             max);
    return false;
  }
  *value = number;
  return true;
}

bool parse_order(const char *text, dg_order *order) {
  if (strcmp(text, "fma") == 0) *order = DG_ORDER_FMA;
  else if (strcmp(text, "tc16") == 0) *order = DG_ORDER_TC16;
  else {
    complain("\"%s\" is no order; the orders are fma and tc16", text);
    return false;
  }
  return true;
}

bool parse_dtype(const char *text, dg_dtype *dtype) {
  if (strcasecmp(text, "bf16") == 0) *dtype = DG_BF16;
  else if (strcasecmp(text, "f16") == 0) *dtype = DG_F16;
  else if (strcasecmp(text, "f32") == 0) *dtype = DG_F32;
  else {
    complain("\"%s\" is no dtype; the dtypes are bf16, f16 and f32", text);
    return false;
  }
  return true;
}

bool scan_shape(const char *text, int64_t shape[3]) {
  const char *c = text;
  for (int i = 0; i < 3; i++) {
    char *end;
    errno = 0;
    const long long number = strtoll(c, &end, 10);
    if (end == c || errno || number < 0) return false;
    shape[i] = number;
    c = end + strspn(end, " \t");
    if (i < 2 && (*c == 'x' || *c == ',')) c++;
    else if (i < 2 && c == end) return false;
  }
  return c[strspn(c, " \t\r\n")] == '\0';
}

bool parse_shape(const char *text, int64_t shape[3]) {
  if (scan_shape(text, shape)) return true;
  complain("\"%s\" is no shape; write MxNxK, for example 16x4096x4096", text);
  return false;
}

bool shape_fits(const int64_t shape[3]) {
  for (int i = 0; i < 3; i++) {
    int64_t bytes;
    if (__builtin_mul_overflow(shape[i] | 1, shape[(i + 1) % 3] | 1, &bytes) ||
        __builtin_mul_overflow(bytes, 16, &bytes))
      return complain("%" PRId64 " x %" PRId64 " x %" PRId64 " is too large", shape[0], shape[1],
                      shape[2]) == EXIT_GOOD;
  }
  return true;
}

const char *order_name(dg_order order) { return order == DG_ORDER_FMA ? "fma" : "tc16"; }

const char *dtype_name(int dtype) {
  switch (dtype) {
    case DG_BF16: return "BF16";
    case DG_F16: return "F16";
    default: return "F32";
  }
}

int64_t dtype_bytes(int dtype) { return dtype == DG_F32 ? 4 : 2; }

bool shape_list_add(shape_list *list, int64_t m, int64_t n, int64_t k) {
  if (list->count == list->capacity) {
    const size_t capacity = list->capacity ? 2 * list->capacity : 64;
    void *grown = realloc(list->shapes, capacity * sizeof *list->shapes);
    if (grown == NULL) {
      complain("no memory for %zu shapes", capacity);
      return false;
    }
    list->shapes = grown;
    list->capacity = capacity;
  }
  int64_t *shape = list->shapes[list->count++];
  shape[0] = m;
  shape[1] = n;
  shape[2] = k;
  return true;
}

static bool read_shape(shape_list *list, const char *path, int number, char *line, size_t length) {
  int64_t s[3];
  const bool text = strlen(line) == length;
  line[strcspn(line, "#\n")] = '\0';
  if (text && line[strspn(line, " \t\r")] == '\0') return true;
  if (text && scan_shape(line, s)) return shape_list_add(list, s[0], s[1], s[2]);
  complain("%s, line %d: \"%.80s\" is no shape; write M,N,K", path, number, line);
  return false;
}

static bool read_shapes(shape_list *list, const char *path, FILE *file) {
  char *line = NULL;
  size_t size = 0;
  bool good = true;
  ssize_t length;
  errno = 0;
  for (int number = 1; good && (length = getline(&line, &size, file)) >= 0; number++)
    good = read_shape(list, path, number, line, (size_t)length);
  if (good && !feof(file)) {
    complain("%s: %s", path, strerror(errno));
    good = false;
  } else if (good && list->count == 0) {
    complain("%s holds no shape; write one M,N,K a line", path);
    good = false;
  }
  free(line);
  return good;
}

bool shape_list_read(shape_list *list, const char *path) {
  FILE *file = fopen(path, "r");
  if (file == NULL) {
    complain("%s: %s", path, strerror(errno));
    return false;
  }
  const bool good = read_shapes(list, path, file);
  fclose(file);
  return good;
}

void shape_list_free(shape_list *list) {
  free(list->shapes);
  *list = (shape_list){0};
}

dg_device *open_device(const char *name, int threads) {
  dg_device *device;
  if (dg_device_open(name, &device) != DG_OK || dg_device_set_threads(device, threads) != DG_OK) {
    complain("%s", dg_last_error());
    dg_device_close(device);
    return NULL;
  }
  return device;
}

double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
