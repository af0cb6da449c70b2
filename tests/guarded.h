/* Memory between pages that cannot be touched, and strided views placed in it. */
#ifndef DETGEMM_TESTS_GUARDED_H
#define DETGEMM_TESTS_GUARDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "detgemm.h"

typedef struct guarded {
  void *mapping;
  size_t mapped;
  unsigned char *data; /* the bytes of use */
  size_t size;
} guarded;

/* size bytes, ending at the upper guard page, or beginning `offset` bytes above the lower one. */
guarded guarded_make(size_t size, bool at_end, size_t offset);
void guarded_read_only(const guarded *g);
void guarded_free(guarded *g);

/* How a view lies in memory. */
typedef enum layout_kind {
  LAYOUT_ROWS,     /* row-major, no gaps */
  LAYOUT_COLUMNS,  /* column-major, no gaps */
  LAYOUT_PADDED,   /* gaps between rows */
  LAYOUT_PADDED_T, /* gaps between columns of a column-major view */
  LAYOUT_HOLES,    /* gaps between all elements */
  LAYOUT_BACKWARD, /* negative strides */
  LAYOUT_REPEATED, /* zero strides: inputs only */
  LAYOUTS
} layout_kind;

extern const char *const layout_names[LAYOUTS];

/* Strides for a shape; fills view but for data, and the elements it spans below and above it. */
void layout_strides(dg_view *view, int64_t batch, layout_kind kind, uint64_t *random,
                    int64_t *below, int64_t *above);

int64_t dtype_size(dg_dtype dtype);

#endif
