/* A small safetensors reader for the vectors that this project ships. */
#include "vectors.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *read_file(const char *path, size_t *size) {
  FILE *f = fopen(path, "rb");
  char *bytes = NULL;
  if (f == NULL) return NULL;
  if (fseek(f, 0, SEEK_END) == 0 && (*size = (size_t)ftell(f)) > 8 && fseek(f, 0, SEEK_SET) == 0 &&
      (bytes = malloc(*size)) != NULL && fread(bytes, 1, *size, f) != *size) {
    free(bytes);
    bytes = NULL;
  }
  fclose(f);
  return bytes;
}

bool vectors_read(const char *path, vector_file *file) {
  size_t size = 0, length = 0;
  unsigned char *bytes = (unsigned char *)read_file(path, &size);
  *file = (vector_file){0};
  if (bytes == NULL) return false;
  for (int i = 7; i >= 0; i--) length = length << 8 | bytes[i];
  if (length < size - 8) {
    file->size = size - 8 - length;
    file->header = calloc(1, length + 1);
    file->data = malloc(file->size);
  }
  if (file->header && file->data) {
    memcpy(file->header, bytes + 8, length);
    memcpy(file->data, bytes + 8 + length, file->size);
  }
  free(bytes);
  return file->header && file->data;
}

void vectors_free(vector_file *file) {
  free(file->header);
  free(file->data);
}

/* Numbers of the JSON array after key; returns how many. */
static int numbers(const char *object, const char *key, int64_t *out, int limit) {
  const char *c = strstr(object, key);
  int count = 0;
  if (c == NULL || (c = strchr(c, '[')) == NULL) return 0;
  while (count < limit && *c != ']') {
    char *end;
    out[count] = strtoll(c + 1, &end, 10);
    if (end == c + 1) break;
    count++;
    c = end;
  }
  return count;
}

static void to_host_order(char *data, size_t size, size_t width) {
  const uint16_t probe = 1;
  char low;
  memcpy(&low, &probe, 1);
  for (size_t i = 0; low == 0 && i < size; i += width)
    for (size_t j = 0; j < width / 2; j++) {
      const char t = data[i + j];
      data[i + j] = data[i + width - 1 - j];
      data[i + width - 1 - j] = t;
    }
}

dg_view vectors_tensor(vector_file *file, const char *name, int64_t *batch) {
  char key[80];
  int64_t shape[3], range[2];
  snprintf(key, sizeof key, "\"%s\":{", name);
  const char *object = strstr(file->header, key);
  *batch = 1;
  if (object == NULL) return (dg_view){0};
  const int rank = numbers(object, "\"shape\"", shape, 3);
  if (rank < 2 || numbers(object, "\"data_offsets\"", range, 2) != 2 || range[0] < 0 ||
      range[1] < range[0] || (size_t)range[1] > file->size)
    return (dg_view){0};
  const char *type = strstr(object, "\"dtype\":\"") + strlen("\"dtype\":\"");
  const dg_dtype dtype = type[0] == 'B' ? DG_BF16 : type[1] == '1' ? DG_F16 : DG_F32;
  to_host_order(file->data + range[0], (size_t)(range[1] - range[0]), dtype == DG_F32 ? 4 : 2);
  if (rank == 3) *batch = shape[0];
  return dg_row_major(file->data + range[0], dtype, shape[rank - 2], shape[rank - 1]);
}
