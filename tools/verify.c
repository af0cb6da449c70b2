/* detgemm verify: proves the promises on this machine. */
#include <fnmatch.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "answer.h"
#include "verify.h"

static const char help[] =
    "usage: detgemm verify [--quick] [options]\n"
    "\n"
    "Computes a sweep of products with every kernel of every device, and by the planner's own\n"
    "choice, and compares every bit with the scalar reference: all operations, dtypes and sizes\n"
    "around tile edges, special values; rows alone, in other sequences, blocks and batches; "
    "strided\n"
    "and unaligned views; thread counts; the sum continued at every cut; hostile floating-point\n"
    "environments; repeated runs.\n"
    "\n"
    "      --quick           under half a minute instead of minutes\n"
    "  -d, --device NAME     only this device\n"
    "      --order ORDER     only this order: fma or tc16\n"
    "      --kernel PATTERN  only kernels that match this shell wildcard\n"
    "      --shapes FILE     these M,N,K, one a line, instead of the built-in sizes; large "
    "products\n"
    "                        are compared in sampled elements\n"
    "      --seed N          another draw of inputs (default 2026)\n"
    "      --case CHECK      one check, as a failure prints it\n"
    "      --json            machine-readable output\n"
    "  -h, --help            this text\n"
    "\n"
    "Exit status: 0 all the same bits, 1 a difference, 2 bad usage or a failing device.\n";

/* A kernel of a device, opened with no other one allowed; or the planner's choice. */
typedef struct target {
  char device_name[40], name[80];
  bool planner;
  dg_order order;
  dg_device *device;
  const char *withheld;
  device_memory *memory;
  int64_t checks, elements, skipped, differing, failed;
  char first[640]; /* the first difference and how to see it again */
} target;

typedef struct session {
  bool quick, json;
  const char *device, *kernel, *shapes, *one;
  unsigned orders;
  int64_t seed;
  target *targets;
  int target_count;
  device_memory memories[32];
  int memory_count;
  check_list checks;
} session;

static target *add_target(session *s) {
  target *grown = realloc(s->targets, (size_t)(s->target_count + 1) * sizeof *grown);
  if (grown == NULL) {
    complain("no memory");
    return NULL;
  }
  s->targets = grown;
  target *t = &s->targets[s->target_count++];
  memset(t, 0, sizeof *t);
  return t;
}

static bool open_target(session *s, const char *device, const char *kernel, dg_order order,
                        const char *withheld, device_memory *memory) {
  target *t = add_target(s);
  if (t == NULL) return false;
  t->planner = kernel == NULL;
  t->order = order;
  t->memory = memory;
  t->withheld = withheld;
  snprintf(t->device_name, sizeof t->device_name, "%s", device);
  snprintf(t->name, sizeof t->name, "%s", kernel ? kernel : "(the planner's choice)");
  if (withheld) return true;
  if (kernel) setenv("DETGEMM_KERNEL", kernel, 1);
  t->device = open_device(device, 0);
  unsetenv("DETGEMM_KERNEL");
  return t->device != NULL;
}

/* The kernels of one device that the user asked for, and the planner for each order. */
static bool open_kernels(session *s, const char *name, const dg_device *all,
                         device_memory *memory) {
  dg_kernel_info k;
  unsigned ready = 0;
  for (int i = 0; dg_kernel_at(all, i, &k) == DG_OK; i++) {
    if (!(s->orders >> k.order & 1)) continue;
    if (k.withheld == NULL) ready |= 1u << k.order;
    if (s->kernel && fnmatch(s->kernel, k.name, 0) != 0) continue;
    if (!open_target(s, name, k.name, k.order, k.withheld, memory)) return false;
  }
  for (dg_order order = DG_ORDER_FMA; order <= DG_ORDER_TC16; order++)
    if (s->kernel == NULL && (ready >> order & 1) &&
        !open_target(s, name, NULL, order, NULL, memory))
      return false;
  return true;
}

static bool open_one(session *s, const char *name) {
  if (s->memory_count == (int)(sizeof s->memories / sizeof s->memories[0])) return true;
  dg_device *all = open_device(name, 0);
  if (all == NULL) return false;
  device_memory *memory = &s->memories[s->memory_count];
  const bool good = device_memory_open(memory, dg_device_name(all));
  if (good) s->memory_count++;
  const bool opened = good && open_kernels(s, dg_device_name(all), all, memory);
  dg_device_close(all);
  return opened;
}

static bool open_targets(session *s) {
  bool good = true;
  unsetenv("DETGEMM_KERNEL"); /* every kernel is forced in turn */
  if (s->device) good = open_one(s, s->device);
  for (int i = 0; s->device == NULL && good && i < dg_device_count(); i++) {
    char name[40];
    snprintf(name, sizeof name, "%s", dg_device_name_at(i));
    if (device_memory_known(name)) good = open_one(s, name);
    else complain("%s is not verified: this tool cannot allocate memory on it", name);
  }
  if (good && s->target_count == 0) {
    complain("no kernel to verify: none matches");
    return false;
  }
  return good;
}

static void note(target *t, const check *c, const char *what) {
  char text[160], kernel[100] = "";
  if (t->first[0]) return;
  check_text(c, text);
  if (!t->planner) snprintf(kernel, sizeof kernel, " --kernel %s", t->name);
  snprintf(t->first, sizeof t->first, "%s\n    detgemm verify --device %s%s --case %s", what,
           t->device_name, kernel, text);
}

static void try_target(target *t, const check_data *d) {
  check_result r;
  if (t->device == NULL || t->order != d->c.order) return;
  switch (check_run(d, t->device, t->memory, &r)) {
    case SAME: t->checks++; break;
    case DIFFERS:
      t->differing++;
      note(t, &d->c, r.what);
      break;
    case SKIPPED:
      if (!t->planner) {
        t->skipped++;
        break;
      } /* what no kernel of a ready order takes is a fault */
      /* fall through */
    case FAILED: t->failed++; note(t, &d->c, r.what);
  }
  t->elements += r.elements;
}

static void show_progress(size_t done, size_t all) {
  static double last;
  const double time = now();
  if (!isatty(STDERR_FILENO) || (done < all && time - last < 0.1)) return;
  last = time;
  const int width = 40, full = (int)(all ? done * (size_t)width / all : (size_t)width);
  fprintf(stderr, "\r[%.*s%*s] %zu of %zu", full, "########################################",
          width - full, "", done, all);
  if (done == all) fprintf(stderr, "\r%*s\r", width + 40, "");
}

static bool run_checks(session *s) {
  for (size_t i = 0; i < s->checks.count; i++) {
    check_data d;
    const bool good = check_data_make(&d, &s->checks.checks[i]);
    for (int t = 0; good && t < s->target_count; t++) try_target(&s->targets[t], &d);
    check_data_free(&d);
    if (!good) return false;
    if (!s->json) show_progress(i + 1, s->checks.count);
  }
  return true;
}

static int verdict(const session *s) {
  int code = EXIT_GOOD;
  for (int i = 0; i < s->target_count; i++) {
    if (s->targets[i].differing) return EXIT_DIFFERS;
    if (s->targets[i].failed) code = EXIT_BAD;
  }
  return code;
}

static const char *state(const target *t) {
  if (t->withheld) return "withheld";
  if (t->differing) return "DIFFERS";
  if (t->failed) return "FAILED";
  return t->checks ? "same bits" : "nothing fits";
}

static void print_table(const session *s, double seconds) {
  int64_t elements = 0;
  printf("%-8s %-5s %-26s %8s %8s %14s  %s\n", "device", "order", "kernel", "checks", "skipped",
         "elements", "result");
  for (int i = 0; i < s->target_count; i++) {
    const target *t = &s->targets[i];
    elements += t->elements;
    printf("%-8s %-5s %-26s %8" PRId64 " %8" PRId64 " %14" PRId64 "  %s\n", t->device_name,
           order_name(t->order), t->name, t->checks, t->skipped, t->elements, state(t));
    if (t->withheld) printf("    %s\n", t->withheld);
    if (t->first[0]) printf("    %s\n", t->first);
  }
  printf("%" PRId64 " elements compared bit for bit with the reference in %.1f s, seed %" PRId64
         ": %s\n",
         elements, seconds, s->seed,
         verdict(s) == EXIT_GOOD      ? "all the same"
         : verdict(s) == EXIT_DIFFERS ? "DIFFERENCES FOUND"
                                      : "FAILED");
}

static void print_json(const session *s, double seconds) {
  json_t *rows = json_array();
  for (int i = 0; i < s->target_count; i++) {
    const target *t = &s->targets[i];
    json_array_append_new(
        rows, json_pack("{s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:s, s:o}", "device",
                        t->device_name, "order", order_name(t->order), "kernel", t->name, "planner",
                        (int)t->planner, "checks", (json_int_t)t->checks, "skipped",
                        (json_int_t)t->skipped, "elements", (json_int_t)t->elements, "differing",
                        (json_int_t)t->differing, "failed", (json_int_t)t->failed, "result",
                        state(t), "detail", answer_text(t->withheld ? t->withheld : t->first)));
  }
  json_t *all = json_pack("{s:b, s:f, s:I, s:o}", "same", verdict(s) == EXIT_GOOD, "seconds",
                          seconds, "seed", (json_int_t)s->seed, "kernels", rows);
  answer_json(all);
}

static bool make_checks(session *s) {
  shape_list shapes = {0};
  check one;
  if (s->one) return check_parse(s->one, &one) && check_list_add(&s->checks, one);
  const bool good =
      (s->shapes == NULL || shape_list_read(&shapes, s->shapes)) &&
      sweep_make(&s->checks, s->quick, s->orders, (uint64_t)s->seed, s->shapes ? &shapes : NULL);
  shape_list_free(&shapes);
  return good;
}

static int run(session *s) {
  const double begin = now();
  int code = EXIT_BAD;
  if (make_checks(s) && open_targets(s) && run_checks(s)) {
    if (s->json) print_json(s, now() - begin);
    else print_table(s, now() - begin);
    code = verdict(s);
  }
  for (int i = 0; i < s->target_count; i++) dg_device_close(s->targets[i].device);
  for (int i = 0; i < s->memory_count; i++) device_memory_close(&s->memories[i]);
  free(s->targets);
  free(s->checks.checks);
  return code;
}

static bool take_option(int c, session *s) {
  dg_order order;
  switch (c) {
    case 'q': s->quick = true; return true;
    case 'd': s->device = optarg; return true;
    case 'r':
      if (!parse_order(optarg, &order)) return false;
      s->orders = 1u << order;
      return true;
    case 'k': s->kernel = optarg; return true;
    case 's': s->shapes = optarg; return true;
    case 'S': return parse_number("--seed", optarg, 0, INT64_MAX, &s->seed);
    case 'c': s->one = optarg; return true;
    case 'j': s->json = true; return true;
    default: return false;
  }
}

int command_verify(int argc, char **argv) {
  static const struct option options[] = {
      {"quick", no_argument, NULL, 'q'},        {"device", required_argument, NULL, 'd'},
      {"order", required_argument, NULL, 'r'},  {"kernel", required_argument, NULL, 'k'},
      {"shapes", required_argument, NULL, 's'}, {"seed", required_argument, NULL, 'S'},
      {"case", required_argument, NULL, 'c'},   {"json", no_argument, NULL, 'j'},
      {"help", no_argument, NULL, 'h'},         {0}};
  session s = {.orders = 1u << DG_ORDER_FMA | 1u << DG_ORDER_TC16, .seed = 2026};
  for (int c; (c = next_option(argc, argv, ":d:h", options)) != -1;) {
    if (c == 'h') {
      fputs(help, stdout);
      return EXIT_GOOD;
    }
    if (!take_option(c, &s)) return EXIT_BAD;
  }
  if (optind != argc) return usage_error("verify", "verify takes no operand");
  return run(&s);
}
