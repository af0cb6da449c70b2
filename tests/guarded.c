/* Guard pages and strided layouts. */
#include "guarded.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support.h"

const char *const layout_names[LAYOUTS] = {"rows",  "columns",  "padded",  "padded columns",
                                           "holes", "backward", "repeated"};

static size_t page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }

guarded guarded_make(size_t size, bool at_end, size_t offset) {
  const size_t page = page_size(), inner = (size + offset + page - 1) / page * page + page;
  guarded g = {.mapped = inner + 2 * page, .size = size};
  g.mapping = mmap(NULL, g.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (g.mapping == MAP_FAILED || mprotect(g.mapping, page, PROT_NONE) != 0 ||
      mprotect((char *)g.mapping + page + inner, page, PROT_NONE) != 0) {
    perror("guard pages");
    exit(1);
  }
  g.data = (unsigned char *)g.mapping + page + (at_end ? inner - size : offset);
  return g;
}

void guarded_read_only(const guarded *g) {
  const size_t page = page_size();
  if (mprotect((char *)g->mapping + page, g->mapped - 2 * page, PROT_READ) != 0) {
    perror("mprotect");
    exit(1);
  }
}

void guarded_free(guarded *g) { munmap(g->mapping, g->mapped); }

int64_t dtype_size(dg_dtype dtype) { return dtype == DG_F32 ? 4 : 2; }

static void reach(int64_t extent, int64_t stride, int64_t *below, int64_t *above) {
  const int64_t last = extent > 1 ? (extent - 1) * stride : 0;
  if (last < 0) *below -= last;
  else *above += last;
}

void layout_strides(dg_view *view, int64_t batch, layout_kind kind, uint64_t *random,
                    int64_t *below, int64_t *above) {
  const int64_t rows = view->rows, cols = view->cols;
  const bool columns =
      kind == LAYOUT_COLUMNS || kind == LAYOUT_PADDED_T ||
      ((kind == LAYOUT_HOLES || kind == LAYOUT_BACKWARD) && random_below(random, 2));
  const bool padded = kind >= LAYOUT_PADDED && kind <= LAYOUT_BACKWARD;
  const int64_t step = kind == LAYOUT_HOLES ? 1 + random_below(random, 3) : 1;
  const int64_t pad = padded ? random_below(random, 9) : 0;
  const int64_t line = (columns ? rows : cols) * step + pad;
  view->row_stride = columns ? step : line;
  view->col_stride = columns ? line : step;
  view->batch_stride = line * (columns ? cols : rows) + (padded ? random_below(random, 5) : 0);
  if (kind == LAYOUT_BACKWARD) {
    const int64_t signs = 1 + random_below(random, 7);
    if (signs & 1) view->row_stride = -view->row_stride;
    if (signs & 2) view->col_stride = -view->col_stride;
    if (signs & 4) view->batch_stride = -view->batch_stride;
  }
  if (kind == LAYOUT_REPEATED) {
    const int64_t which = 1 + random_below(random, 7);
    if (which & 1) view->row_stride = 0;
    if (which & 2) view->col_stride = 0;
    if (which & 4) view->batch_stride = 0;
  }
  *below = *above = 0;
  reach(rows, view->row_stride, below, above);
  reach(cols, view->col_stride, below, above);
  reach(batch, view->batch_stride, below, above);
}
