/* An output of detgemm bench --json, read again. */
#ifndef DETGEMM_BENCH_RECORD_H
#define DETGEMM_BENCH_RECORD_H

#include "bench_table.h"

typedef struct bench_record {
  char machine[200], peer[40];
  row_list rows; /* shapes, seconds and peer_seconds */
} bench_record;

/* Complains and returns false on failure; rows.rows is to be freed either way. */
bool bench_record_read(const char *path, bench_record *record);

#endif
