/* Reads what detgemm bench --json has written. */
#include "bench_record.h"

#include <jansson.h>
#include <string.h>

static const char *text_of(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text ? text : "";
}

static int64_t number_of(const json_t *object, const char *key) {
  return json_integer_value(json_object_get(object, key));
}

/* "nt", "nt+f32", "nt+start": bench_row_name() backwards. */
static bool parse_name(const char *name, bench_row *row) {
  for (int op = 0; op < BOPS; op++)
    for (int wide = 0; wide < 3; wide++) {
      char text[32];
      bench_row it = {.op = (bench_op)op, .out = wide ? DG_F32 : (dg_dtype)0, .start = wide == 2};
      if (strcmp(bench_row_name(&it, text), name) != 0) continue;
      row->op = it.op;
      row->out = it.out;
      row->start = it.start;
      return true;
    }
  return false;
}

static bool read_row(const json_t *from, row_list *rows) {
  bench_row row = {.m = number_of(from, "m"), .n = number_of(from, "n"), .k = number_of(from, "k")};
  if (!parse_order(text_of(from, "order"), &row.order) || !parse_name(text_of(from, "op"), &row))
    return false;
  row.seconds = json_number_value(json_object_get(from, "seconds"));
  row.peer_seconds = row.seconds * json_number_value(json_object_get(from, "peer_ratio"));
  return row.m > 0 && row.n > 0 && row.k > 0 && row.seconds > 0 && row_list_add(rows, row);
}

bool bench_record_read(const char *path, bench_record *record) {
  json_error_t error;
  json_t *all = json_load_file(path, 0, &error), *row;
  size_t i;
  if (all == NULL) {
    complain("%s: %s", path, error.text);
    return false;
  }
  snprintf(record->machine, sizeof record->machine, "%s", text_of(all, "description"));
  snprintf(record->peer, sizeof record->peer, "%s", text_of(all, "peer"));
  const json_t *rows = json_object_get(all, "rows");
  bool good = json_array_size(rows) > 0;
  json_array_foreach(rows, i, row) good = good && read_row(row, &record->rows);
  json_decref(all);
  if (!good) complain("%s is no output of detgemm bench --json", path);
  return good;
}
