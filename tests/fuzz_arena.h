/* What the fuzz targets of products share: operands anywhere in one small arena, made from the
 * bytes of a case, and the checks that what the library accepts is sound. */
#ifndef DETGEMM_FUZZ_ARENA_H
#define DETGEMM_FUZZ_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "detgemm.h"

enum { ARENA = 4096 };
extern unsigned char arena[ARENA];

typedef struct bytes {
  const uint8_t *data;
  size_t size;
} bytes;

uint8_t take(bytes *b);
/* Mostly from least to most; sometimes any number. */
int64_t take_number(bytes *b, int64_t least, int64_t most);
/* Mostly a matrix of this shape in the arena; sometimes any view. */
dg_view take_view(bytes *b, int64_t rows, int64_t cols, dg_dtype dtype);

/* Ends the process where the library did wrong. */
void demand(bool right, const char *what);

/* The operands of an accepted product, and how many matrices each has. */
typedef struct operand_batches {
  int64_t a, b, out, start, bias;
} operand_batches;

/* Whether all of them lie in the arena. Demands that no two elements of the output coincide and
 * that it overlaps no input, but for a start that is exactly the output. */
bool arena_holds(const dg_view *a, const dg_view *b, const dg_view *out, const dg_view *start,
                 const dg_view *bias, operand_batches batches);

/* The arena's bytes before a case, the ones every case begins with. */
void arena_reset(void);
bool arena_untouched(void);

#endif
