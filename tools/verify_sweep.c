/* Which products detgemm verify tries. Sizes lie around the edges of every tile; dtypes, inputs,
 * start and bias are drawn for each product, so that all of them meet all sizes over a sweep. */
#include <stdlib.h>

#include "verify.h"

static const int64_t edges[] = {1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257, 4099};
static const int64_t row_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 129};
enum {
  EDGES = sizeof edges / sizeof edges[0],
  ROW_COUNTS = sizeof row_counts / sizeof row_counts[0]
};

bool check_list_add(check_list *list, check c) {
  if (list->count == list->capacity) {
    const size_t capacity = list->capacity ? 2 * list->capacity : 256;
    void *grown = realloc(list->checks, capacity * sizeof *list->checks);
    if (grown == NULL) return complain("no memory for %zu checks", capacity) == EXIT_GOOD;
    list->checks = grown;
    list->capacity = capacity;
  }
  list->checks[list->count++] = c;
  return true;
}

static check draw(dg_order order, verify_op op, int64_t m, int64_t n, int64_t k, variant how,
                  uint64_t *state) {
  static const dg_dtype ins[] = {DG_BF16, DG_BF16, DG_F16, DG_F32};
  static const dg_dtype outs[] = {DG_BF16, DG_F32, DG_BF16, DG_F16};
  const uint64_t r = random_next(state);
  return (check){.order = order,
                 .op = op,
                 .in = ins[r % (order == DG_ORDER_FMA ? 4 : 3)],
                 .out = outs[r >> 8 & 3],
                 .m = m,
                 .n = n,
                 .k = k,
                 .inputs = (verify_inputs)((r >> 16) % INS),
                 .start = (r >> 24 & 3) == 0,
                 .bias = (r >> 28 & 3) == 0,
                 .how = how,
                 .seed = r >> 40};
}

/* The largest of a few random row counts within the budget of steps. */
static int64_t draw_rows(int64_t n, int64_t k, int64_t budget, uint64_t *state) {
  for (int i = 0; i < 8; i++) {
    const int64_t m = row_counts[random_next(state) % ROW_COUNTS];
    if (m * n * k <= budget) return m;
  }
  return 1;
}

static bool add_edges(check_list *list, bool quick, dg_order order, uint64_t *state) {
  const int64_t budget = quick ? 1000000 : 6000000;
  for (int i = 0; i < EDGES * EDGES; i++) {
    const int64_t n = edges[i / EDGES], k = edges[i % EDGES];
    if (quick && n * k > 600000) continue;
    const int first = quick ? (int)(random_next(state) % VOPS) : 0;
    for (int op = first; op < (quick ? first + 1 : (int)VOPS); op++)
      if (!check_list_add(
              list, draw(order, (verify_op)op, draw_rows(n, k, budget, state), n, k, WHOLE, state)))
        return false;
  }
  return true;
}

static bool add_empty(check_list *list, dg_order order, uint64_t *state) {
  static const int64_t shapes[][3] = {{0, 5, 7}, {5, 0, 7}, {5, 7, 0}, {0, 0, 0}};
  for (int i = 0; i < 4; i++)
    if (!check_list_add(
            list, draw(order, VOP_FORWARD, shapes[i][0], shapes[i][1], shapes[i][2], WHOLE, state)))
      return false;
  return true;
}

/* Whole tiles in both directions, whose rows come as vectors, and a sum that ends within a panel.
 */
static bool add_whole_tiles(check_list *list, dg_order order, uint64_t *state) {
  static const int64_t shapes[][3] = {{128, 128, 20}, {64, 132, 100}, {32, 64, 40}, {132, 256, 12}};
  for (int s = 0; s < 4; s++)
    for (int op = 0; op < VOPS; op++)
      if (!check_list_add(list, draw(order, (verify_op)op, shapes[s][0], shapes[s][1], shapes[s][2],
                                     WHOLE, state)))
        return false;
  return true;
}

/* Every variant of every operation, on sizes with tails in all directions. */
static bool add_variants(check_list *list, bool quick, dg_order order, uint64_t *state) {
  static const int64_t shapes[][3] = {{19, 37, 83},  {1, 65, 129},  {7, 130, 100},
                                      {33, 64, 256}, {70, 129, 65}, {16, 257, 333}};
  const int count = quick ? 3 : 6;
  for (int s = 0; s < count; s++)
    for (int how = WHOLE + 1; how < VARIANTS; how++)
      for (int op = 0; op < VOPS; op++) {
        if (quick && (s + how + op) % 5 != 0) continue;
        if (!check_list_add(list, draw(order, (verify_op)op, shapes[s][0], shapes[s][1],
                                       shapes[s][2], (variant)how, state)))
          return false;
      }
  return true;
}

static bool add_users(check_list *list, bool quick, dg_order order, const shape_list *shapes,
                      uint64_t *state) {
  static const variant hows[] = {WHOLE, CHUNKS, BATCHED, STRIDED, PIECES};
  for (size_t i = 0; i < shapes->count; i++)
    for (int op = 0; op < VOPS; op++)
      for (int how = 0; how < (quick ? 1 : 5); how++) {
        const int64_t *s = shapes->shapes[i];
        if (!check_list_add(list, draw(order, (verify_op)op, s[0], s[1], s[2], hows[how], state)))
          return false;
      }
  return true;
}

bool sweep_make(check_list *list, bool quick, unsigned orders, uint64_t seed,
                const shape_list *shapes) {
  uint64_t state = seed;
  for (dg_order order = DG_ORDER_FMA; order <= DG_ORDER_TC16; order++) {
    if (!(orders >> order & 1)) continue;
    if (shapes ? !add_users(list, quick, order, shapes, &state)
               : !add_edges(list, quick, order, &state) || !add_empty(list, order, &state) ||
                     !add_whole_tiles(list, order, &state) ||
                     !add_variants(list, quick, order, &state))
      return false;
  }
  return true;
}
