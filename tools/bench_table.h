/* The rows of detgemm bench: which there are, and how they are printed. */
#ifndef DETGEMM_BENCH_TABLE_H
#define DETGEMM_BENCH_TABLE_H

#include <jansson.h>

#include "bench.h"

typedef struct row_list {
  bench_row *rows;
  int count, capacity;
} row_list;
bool row_list_add(row_list *list, bench_row row);

/* What the user asked for. */
typedef struct row_choice {
  unsigned orders; /* a mask of 1 << dg_order */
  int op;          /* a bench_op, or -1: all */
  int threads;
  bool quick, cpu;
  const shape_list *shapes; /* if any, instead of the built-in rows */
} row_choice;
bool row_list_make(row_list *list, const row_choice *choice);

double row_flops(const bench_row *row);
double row_bytes(const bench_row *row);

/* The fraction reached of what peak FLOP/s and bandwidth allow; 0: not known. */
double row_limit(const bench_row *row, double peak, double bandwidth);

void row_print_head(const char *peer);
void row_print(const bench_row *row, double peak, double bandwidth);
json_t *row_json(const bench_row *row, double peak, double bandwidth);

#endif
