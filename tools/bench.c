/* detgemm bench: how fast, beside a peer and beside what the machine can do. */
#include <getopt.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "answer.h"
#include "bench_record.h"
#include "output.h"

static const char help[] =
    "usage: detgemm bench [options]\n"
    "\n"
    "Times BF16 products: squares, layers of language models, decode sizes, gradients, both "
    "orders.\n"
    "At small M calls rotate over enough weights that these come from memory. Times are medians.\n"
    "\"x peer\" is the peer's time over ours; \"% limit\" is the share of what the measured FMA "
    "rate\n"
    "and memory bandwidth allow; \"x fma\" is the speed relative to the fma order.\n"
    "\n"
    "  -d, --device NAME  cpu (default), cuda:0, musa:0, hip:0, opencl:0\n"
    "      --peer PEER    openblas (default on the CPU), cublas (on a GPU) or none\n"
    "      --order ORDER  only this order: fma or tc16\n"
    "      --op OP        only this operation: forward, nt (right side [N,K]), grad-a, grad-b\n"
    "      --shape MxNxK  your own shape instead of the tables; may be repeated\n"
    "      --shapes FILE  your own shapes, one M,N,K a line\n"
    "      --threads N    on the CPU; by default all processors\n"
    "      --quick        a few rows only\n"
    "      --svg FILE     draw the ratios to the peer as a bar chart\n"
    "      --from FILE    draw what an earlier run wrote with --json, and measure nothing\n"
    "      --json         machine-readable output\n"
    "  -h, --help         this text\n";

typedef struct session {
  const char *device, *peer, *svg, *from;
  bool json;
  row_choice choice;
  shape_list shapes;
  row_list rows;
  bench_engine engine;
  device_memory memory;
  double peak_one, bandwidth_one;
} session;

static int processors(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

static bool open_engine(session *s) {
  bench_engine *e = &s->engine;
  e->memory = &s->memory;
  e->device = open_device(s->device, s->choice.threads);
  if (e->device == NULL || !device_memory_open(&s->memory, dg_device_name(e->device))) return false;
  s->choice.cpu = device_memory_takes_host(&s->memory);
  if (s->peer == NULL) s->peer = s->choice.cpu ? "openblas" : "cublas";
  if (strcmp(s->peer, "none") != 0 && strcmp(s->peer, s->choice.cpu ? "openblas" : "cublas") != 0) {
    complain("--peer %s does not go with device %s", s->peer, s->device);
    return false;
  }
  return s->choice.cpu ? bench_cpu_open(e, s->peer, s->choice.threads)
                       : bench_cuda_open(e, s->peer, s->choice.orders);
}

static void close_engine(session *s) {
  if (s->engine.close) s->engine.close(&s->engine);
  dg_device_close(s->engine.device);
  device_memory_close(&s->memory);
}

/* The same product in the fma order, from an earlier row or measured now. */
static bool find_fma(session *s, bench_row *row, int before) {
  for (int i = 0; i < before; i++) {
    const bench_row *r = &s->rows.rows[i];
    if (r->order == DG_ORDER_FMA && r->op == row->op && r->m == row->m && r->n == row->n &&
        r->k == row->k && r->threads == row->threads) {
      row->fma_seconds = r->seconds;
      return true;
    }
  }
  bench_row fma = *row;
  fma.order = DG_ORDER_FMA;
  if (!s->engine.measure(&s->engine, &fma)) return false;
  row->fma_seconds = fma.seconds;
  return true;
}

static bool measure_all(session *s) {
  for (int i = 0; i < s->rows.count; i++) {
    bench_row *row = &s->rows.rows[i];
    if (isatty(STDERR_FILENO)) fprintf(stderr, "\rrow %d of %d ", i + 1, s->rows.count);
    if (!s->engine.measure(&s->engine, row)) return false;
    if (s->choice.cpu && row->order == DG_ORDER_TC16 && !find_fma(s, row, i)) return false;
  }
  if (isatty(STDERR_FILENO)) fprintf(stderr, "\r%30s\r", "");
  return true;
}

/* A GPU's limit is the best rate of this run, ours or the peer's, in the same order: the sustained
 * one of a large product, or that of a row where it is higher. */
static double peak_for(const session *s, const bench_row *row) {
  double best = 0;
  if (s->choice.cpu) {
    if (row->order == DG_ORDER_TC16) return 0; /* the FMA rate is no limit of integer work */
    return row->threads == s->choice.threads ? s->engine.peak : s->peak_one;
  }
  best = row->order == DG_ORDER_TC16 ? s->engine.tensor : s->engine.peak;
  for (int i = 0; i < s->rows.count; i++) {
    const bench_row *r = &s->rows.rows[i];
    if (r->order != row->order) continue;
    const double ours = row_flops(r) / r->seconds;
    const double theirs = r->peer_seconds > 0 ? row_flops(r) / r->peer_seconds : 0;
    if (ours > best) best = ours;
    if (theirs > best) best = theirs;
  }
  return best;
}

static double bandwidth_for(const session *s, const bench_row *row) {
  return s->choice.cpu && row->threads != s->choice.threads ? s->bandwidth_one
                                                            : s->engine.bandwidth;
}

static void print_text(const session *s) {
  const bench_engine *e = &s->engine;
  printf("device    %s: %s\npeer      %s\n", dg_device_name(e->device),
         dg_device_description(e->device), e->peer ? e->peer : "none");
  if (s->choice.cpu)
    printf(
        "FMA peak  %.1f GFLOP/s on %d threads, %.1f on one\n"
        "memory    %.1f GB/s read by %d threads, %.1f by one\n",
        e->peak * 1e-9, s->choice.threads, s->peak_one * 1e-9, e->bandwidth * 1e-9,
        s->choice.threads, s->bandwidth_one * 1e-9);
  else
    printf(
        "memory    %.0f GB/s copied\n"
        "sustained %.1f TFLOP/s in FP32, %.1f on the tensor cores (8192 cubed)\n",
        e->bandwidth * 1e-9, e->peak * 1e-12, e->tensor * 1e-12);
  row_print_head(e->peer);
  for (int i = 0; i < s->rows.count; i++) {
    const bench_row *row = &s->rows.rows[i];
    row_print(row, peak_for(s, row), bandwidth_for(s, row));
  }
}

static void print_json(const session *s) {
  const bench_engine *e = &s->engine;
  json_t *rows = json_array();
  for (int i = 0; i < s->rows.count; i++) {
    const bench_row *row = &s->rows.rows[i];
    json_array_append_new(rows, row_json(row, peak_for(s, row), bandwidth_for(s, row)));
  }
  json_t *all =
      json_pack("{s:s, s:o, s:s, s:i, s:f, s:f, s:f, s:o}", "device", dg_device_name(e->device),
                "description", answer_text(dg_device_description(e->device)), "peer",
                e->peer ? e->peer : "none", "threads", s->choice.threads, "fma_peak_gflops",
                e->peak * 1e-9, "tensor_gflops", e->tensor * 1e-9, "memory_gbytes_per_second",
                e->bandwidth * 1e-9, "rows", rows);
  answer_json(all);
}

/* Before anything is measured. */
static bool chart_can_be_drawn(const session *s) {
  if (s->svg == NULL) return true;
  if (s->engine.peer == NULL)
    return complain("no chart: there is no peer to compare with") == EXIT_GOOD;
  return output_check_path(s->svg);
}

static bool draw_chart(const session *s) {
  return s->svg == NULL || bench_chart(s->svg, s->rows.rows, s->rows.count, s->engine.peer,
                                       dg_device_description(s->engine.device));
}

/* The chart of an earlier run. */
static int draw_record(const session *s) {
  bench_record record = {.peer = ""};
  bool good = s->svg != NULL;
  if (!good) complain("--from draws a chart: say where to with --svg FILE");
  good = good && output_check_path(s->svg) && bench_record_read(s->from, &record) &&
         bench_chart(s->svg, record.rows.rows, record.rows.count, record.peer, record.machine);
  free(record.rows.rows);
  return good ? EXIT_GOOD : EXIT_BAD;
}

static int run(session *s) {
  int code = EXIT_BAD;
  s->choice.shapes = &s->shapes;
  if (s->choice.threads == 0) s->choice.threads = processors();
  if (open_engine(s) && chart_can_be_drawn(s) && row_list_make(&s->rows, &s->choice)) {
    if (s->choice.cpu) {
      s->peak_one = measure_fma_peak(1);
      s->bandwidth_one = measure_bandwidth(1);
    }
    if (measure_all(s)) {
      if (s->json) print_json(s);
      else print_text(s);
      code = draw_chart(s) ? EXIT_GOOD : EXIT_BAD;
    }
  }
  close_engine(s);
  free(s->rows.rows);
  return code;
}

static bool parse_op(const char *text, int *op) {
  for (int i = 0; i < BOPS; i++)
    if (strcmp(text, bench_op_name((bench_op)i)) == 0) {
      *op = i;
      return true;
    }
  complain("\"%s\" is no operation; they are forward, nt, grad-a and grad-b", text);
  return false;
}

static bool take_option(int c, session *s) {
  dg_order order;
  int64_t number, shape[3];
  switch (c) {
    case 'd': s->device = optarg; return true;
    case 'p': s->peer = optarg; return true;
    case 'r':
      if (!parse_order(optarg, &order)) return false;
      s->choice.orders = 1u << order;
      return true;
    case 'o': return parse_op(optarg, &s->choice.op);
    case 'm':
      return parse_shape(optarg, shape) && shape_list_add(&s->shapes, shape[0], shape[1], shape[2]);
    case 's': return shape_list_read(&s->shapes, optarg);
    case 't':
      if (!parse_number("--threads", optarg, 1, 1024, &number)) return false;
      s->choice.threads = (int)number;
      return true;
    case 'q': s->choice.quick = true; return true;
    case 'g': s->svg = optarg; return true;
    case 'f': s->from = optarg; return true;
    case 'j': s->json = true; return true;
    default: return false;
  }
}

int command_bench(int argc, char **argv) {
  static const struct option options[] = {{"device", required_argument, NULL, 'd'},
                                          {"peer", required_argument, NULL, 'p'},
                                          {"order", required_argument, NULL, 'r'},
                                          {"op", required_argument, NULL, 'o'},
                                          {"shape", required_argument, NULL, 'm'},
                                          {"shapes", required_argument, NULL, 's'},
                                          {"threads", required_argument, NULL, 't'},
                                          {"quick", no_argument, NULL, 'q'},
                                          {"svg", required_argument, NULL, 'g'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"from", required_argument, NULL, 'f'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
  session s = {.device = "cpu",
               .choice = {.orders = 1u << DG_ORDER_FMA | 1u << DG_ORDER_TC16, .op = -1}};
  bool good = true;
  for (int c; good && (c = next_option(argc, argv, ":d:h", options)) != -1;) {
    if (c == 'h') {
      fputs(help, stdout);
      return EXIT_GOOD;
    }
    good = take_option(c, &s);
  }
  if (good && optind != argc) good = usage_error("bench", "bench takes no operand") == EXIT_GOOD;
  const int code = !good ? EXIT_BAD : s.from ? draw_record(&s) : run(&s);
  shape_list_free(&s.shapes);
  return code;
}
