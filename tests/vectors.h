/* Reads the reference vectors in tests/vectors: a small safetensors reader for files this project
 * ships, without a JSON library, so that it also runs under an emulator. */
#ifndef DETGEMM_TESTS_VECTORS_H
#define DETGEMM_TESTS_VECTORS_H

#include <stdbool.h>
#include <stddef.h>

#include "detgemm.h"

typedef struct vector_file {
  char *header; /* the JSON text */
  char *data;   /* in the byte order of this machine once a tensor has been looked up */
  size_t size;
} vector_file;

bool vectors_read(const char *path, vector_file *file);
void vectors_free(vector_file *file);

/* The tensor as a row-major view (3-D: *batch products); data NULL if the file has none of that
 * name. Each tensor may be looked up once. */
dg_view vectors_tensor(vector_file *file, const char *name, int64_t *batch);

#endif
