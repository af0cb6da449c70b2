/* Writes a result: first to a temporary file beside its destination, then renamed. */
#ifndef DETGEMM_OUTPUT_H
#define DETGEMM_OUTPUT_H

#include "tensor.h"

/* Whether spec ("out.safetensors[:name]" or "out.npy") or a file of that path can be written, as
 * far as that can be told before anything is computed; complains if not. */
bool output_check(const char *spec);
bool output_check_path(const char *path);

/* Writes t, in C order and little-endian. Complains and returns false on failure; an old file of
 * that name is untouched then. A signal that ends the process removes the temporary file. */
bool output_write(const char *spec, const tensor *t);

/* The SHA-256 of t's elements in C order, little-endian, as hexadecimal text. */
bool output_digest(const tensor *t, char hex[65]);

/* The same write-then-rename for a text file (a chart). */
bool output_text(const char *path, const char *text);

#endif
