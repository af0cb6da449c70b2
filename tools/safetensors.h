/* Reads and writes safetensors files. */
#ifndef DETGEMM_SAFETENSORS_H
#define DETGEMM_SAFETENSORS_H

#include "tensor.h"

/* Finds a tensor in the bytes of a file; name NULL: the only one. Every tensor of the file is
 * checked: offsets in range, without overlap or gap (as the format demands), lengths as shape and
 * dtype say. On failure why holds one line. Pure: reads nothing but the bytes. */
bool safetensors_find(const void *file, size_t bytes, const char *name, tensor *found,
                      char why[TENSOR_WHY]);

/* The text before the data of a file that holds t alone: length field and header. NULL: no memory.
 * The caller frees it. */
void *safetensors_head(const tensor *t, const char *name, size_t *bytes);

#endif
