#include "fuzz_arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

unsigned char arena[ARENA];

static unsigned char first_byte(int i) { return (unsigned char)(i * 37 ^ i >> 3); }

void arena_reset(void) {
  for (int i = 0; i < ARENA; i++) arena[i] = first_byte(i);
}

bool arena_untouched(void) {
  for (int i = 0; i < ARENA; i++)
    if (arena[i] != first_byte(i)) return false;
  return true;
}

uint8_t take(bytes *b) {
  if (b->size == 0) return 0;
  b->size--;
  return *b->data++;
}

int64_t take_number(bytes *b, int64_t least, int64_t most) {
  const uint8_t way = take(b);
  uint64_t any = 0;
  if (way < 240) return least + way % (most - least + 1);
  for (int i = 0; i < 8; i++) any = any << 8 | take(b);
  if (way < 244) return (int64_t)((UINT64_C(1) << (any & 63)) - (any >> 8 & 3));
  return (int64_t)any;
}

dg_view take_view(bytes *b, int64_t rows, int64_t cols, dg_dtype dtype) {
  dg_view v = dg_row_major(arena + (take(b) << 8 | take(b)) % ARENA, dtype, rows, cols);
  const uint8_t way = take(b);
  if (way & 1) v = (dg_view){v.data, rows, cols, 1, rows, rows * cols, dtype};
  if (way & 2) v.row_stride = take_number(b, -20, 40);
  if (way & 4) v.col_stride = take_number(b, -20, 40);
  if (way & 8) v.batch_stride = take_number(b, -100, 200);
  if (way & 16) v.rows = take_number(b, -1, 12);
  if (way & 32) v.cols = take_number(b, -1, 12);
  if (way & 64) v.dtype = (dg_dtype)take_number(b, 0, 4);
  if (way & 128) v.data = take(b) & 1 ? NULL : (void *)(uintptr_t)take_number(b, 0, 100);
  return v;
}

static int64_t width(dg_dtype dtype) { return dtype == DG_F32 ? 4 : 2; }

/* Counts into marks how often each byte of the arena belongs to the view. False: reaches outside.
 */
static bool mark(const dg_view *v, int64_t batch, unsigned char marks[ARENA]) {
  const int64_t base = (int64_t)((uintptr_t)v->data - (uintptr_t)arena), size = width(v->dtype);
  if (v->rows == 0 || v->cols == 0 || batch == 0) return true;
  if (v->rows > 64 || v->cols > 64 || batch > 64) return false;
  for (int64_t z = 0; z < batch; z++)
    for (int64_t i = 0; i < v->rows; i++)
      for (int64_t j = 0; j < v->cols; j++) {
        /* the library has accepted the view, so this cannot overflow */
        const int64_t at = base + size * ((batch > 1 ? z * v->batch_stride : 0) +
                                          (v->rows > 1 ? i * v->row_stride : 0) +
                                          (v->cols > 1 ? j * v->col_stride : 0));
        if (at < 0 || at + size > ARENA) return false;
        for (int64_t byte = at; byte < at + size; byte++)
          if (marks[byte] < 255) marks[byte]++;
      }
  return true;
}

void demand(bool right, const char *what) {
  if (right) return;
  fprintf(stderr, "%s\n", what);
  abort();
}

static bool same_place(const dg_view *x, const dg_view *y) {
  return memcmp(&x->data, &y->data, sizeof x->data) == 0 && x->dtype == y->dtype;
}

bool arena_holds(const dg_view *a, const dg_view *b, const dg_view *out, const dg_view *start,
                 const dg_view *bias, operand_batches batches) {
  static unsigned char written[ARENA], read[ARENA];
  const dg_view *inputs[] = {a, b, start, bias};
  const int64_t counts[] = {batches.a, batches.b, batches.start, batches.bias};
  memset(written, 0, sizeof written);
  if (!mark(out, batches.out, written)) return false;
  for (int i = 0; i < ARENA; i++)
    demand(written[i] <= 1, "elements of an accepted output coincide");
  for (int i = 0; i < 4; i++) {
    if (inputs[i]->data == NULL) continue;
    memset(read, 0, sizeof read);
    if (!mark(inputs[i], counts[i], read)) return false;
    if (inputs[i] == start && same_place(start, out)) continue;
    for (int byte = 0; byte < ARENA; byte++)
      demand(!(read[byte] && written[byte]), "an accepted output overlaps an input");
  }
  return true;
}
