/* Gets 16-bit words from a strided operand into lines: the part of packing that is plain C. */
#ifndef DETGEMM_FETCH_H
#define DETGEMM_FETCH_H

#include <string.h>

#include "cpu.h"

/* Transposes 16 lines of 16 words. */
typedef void dg_transpose_fn(const uint16_t *from, int64_t from_pitch, uint16_t *to,
                             int64_t to_pitch);

/* Lines of `width` words (a multiple of 16, at most MAX_WIDTH), pitch words apart. */
typedef struct dg_lines {
  const uint16_t *data;
  int64_t pitch;
} dg_lines;

/* What to fetch: word x of line y is at data + 2 * (x * xs + y * ys). The words from `length` on
 * and the lines from `count` (at most 16) on are zeros. */
typedef struct dg_words {
  const char *data;
  int64_t xs, ys, length, count;
} dg_words;

enum { DG_FETCH_WIDTH = 32, DG_FETCH_BUFFER = 16 * DG_FETCH_WIDTH };

static inline void dg_copy_lines(const char *from, int64_t stride, int64_t count, int64_t length,
                                 uint16_t *to, int64_t pitch) {
  for (int64_t i = 0; i < count; i++)
    memcpy(to + i * pitch, from + 2 * i * stride, (size_t)length * 2);
}

/* Unit-stride words that may be read where they are, by unaligned loads only. */
static inline dg_lines dg_in_place(const char *data, int64_t pitch) {
  return (dg_lines){(const uint16_t *)(const void *)data, pitch};
}

/* Fetches `lines` lines of `width`, in place where they lie ready, else through the buffer. */
__attribute__((always_inline)) static inline dg_lines dg_fetch(dg_words w, int width, int lines,
                                                               uint16_t buffer[DG_FETCH_BUFFER],
                                                               dg_transpose_fn transpose) {
  const bool full = w.length == width && w.count == lines;
  if (w.xs == 1 && full) return dg_in_place(w.data, w.ys);
  if (w.ys == 1 && full && lines == 16) {
    const dg_lines from = dg_in_place(w.data, w.xs);
    for (int x = 0; x < width; x += 16)
      transpose(from.data + x * from.pitch, from.pitch, buffer + x, width);
  } else if (w.ys == 1) {
    uint16_t columns[DG_FETCH_BUFFER];
    memset(columns, 0, sizeof *columns * 16 * (size_t)width);
    dg_copy_lines(w.data, w.xs, w.length, w.count, columns, 16);
    for (int x = 0; x < width; x += 16) transpose(columns + 16 * x, 16, buffer + x, width);
  } else {
    memset(buffer, 0, sizeof *buffer * (size_t)(width * lines));
    if (w.xs == 1) dg_copy_lines(w.data, w.ys, w.count, w.length, buffer, width);
    else
      for (int64_t y = 0; y < w.count; y++)
        for (int64_t x = 0; x < w.length; x++)
          memcpy(buffer + y * width + x, w.data + 2 * (x * w.xs + y * w.ys), 2);
  }
  return (dg_lines){buffer, width};
}

/* 16 lines along k of `width` elements along i, from k0 on; or the same transposed. */
static inline dg_words dg_words_by_k(const dg_strip *s, int64_t count, int64_t k0, int64_t k) {
  return (dg_words){s->data + 2 * k0 * s->ks, s->is, s->ks, count, k - k0 < 16 ? k - k0 : 16};
}
static inline dg_words dg_words_by_line(const dg_strip *s, int64_t count, int64_t k0, int64_t k) {
  return (dg_words){s->data + 2 * k0 * s->ks, s->ks, s->is, k - k0 < 16 ? k - k0 : 16, count};
}

#endif
