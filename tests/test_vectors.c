/* Every vector against the scalar reference and against every kernel of its order, forced one by
 * one. The vectors come from an independent model and from hardware; only equal bits pass.
 * usage: test_vectors DIRECTORY [DEVICE [KERNEL-PATTERN]] */
#include <dirent.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "vectors.h"

typedef struct vector {
  vector_file file;
  dg_order order;
  char name[256];
} vector;

static void report(const subject *s, const vector *v, const char *what, const dg_view *want,
                   const unsigned char *got, size_t size) {
  const unsigned char *expected = want->data;
  const size_t width = want->dtype == DG_F32 ? 4 : 2;
  size_t at = 0;
  while (at < size && expected[at] == got[at]) at++;
  at = at / width * width;
  unsigned long long e = 0, g = 0;
  for (size_t i = 0; i < width; i++) { /* as bytes in memory order */
    e = e << 8 | expected[at + i];
    g = g << 8 | got[at + i];
  }
  test_failed("%s, %s, %s: element %zu has bytes %0*llx, not %0*llx", s->name, v->name, what,
              at / width, (int)width * 2, g, (int)width * 2, e);
}

/* Computes into poisoned memory of want's size and compares all of it. */
static void expect(const subject *s, const vector *v, const char *what, dg_gemm_args args,
                   dg_view want, bool transposed) {
  const size_t size = (size_t)(args.batch * want.rows * want.cols) * (want.dtype == DG_F32 ? 4 : 2);
  unsigned char *got = malloc(size);
  if (got == NULL) abort();
  memset(got, 0xa5, size);
  args.order = v->order;
  args.out = want;
  args.out.data = got;
  if (transposed) args.out = dg_transposed(args.out);
  const dg_status status = subject_run(s, &args);
  if (status == DG_ERROR_UNSUPPORTED) test_skipped("%s, %s: does not fit", s->name, v->name);
  else if (status != DG_OK) test_failed("%s, %s, %s: %s", s->name, v->name, what, dg_last_error());
  else if (memcmp(got, want.data, size) != 0) report(s, v, what, &want, got, size);
  else test_passed();
  free(got);
}

static dg_gemm_args product(dg_view a, dg_view b) {
  dg_gemm_args args = dg_gemm_args_init();
  args.a = a;
  args.b = b;
  return args;
}

typedef struct tensors {
  dg_view a, b, bt, dc, c_in;
  dg_view forward, forward_f32, continued, grad_a, grad_b, grad_b_f32, grad_b_t, d;
  int64_t batch;
} tensors;

static tensors look_up(vector *v) {
  tensors t;
  int64_t batch;
  t.a = vectors_tensor(&v->file, "a", &t.batch);
  t.b = vectors_tensor(&v->file, "b", &batch);
  t.bt = vectors_tensor(&v->file, "b_transposed", &batch);
  t.dc = vectors_tensor(&v->file, "grad_c", &batch);
  t.c_in = vectors_tensor(&v->file, "c_in", &batch);
  t.forward = vectors_tensor(&v->file, "forward", &batch);
  t.forward_f32 = vectors_tensor(&v->file, "forward_fp32", &batch);
  t.continued = vectors_tensor(&v->file, "forward_continue_fp32", &batch);
  t.grad_a = vectors_tensor(&v->file, "grad_a", &batch);
  t.grad_b = vectors_tensor(&v->file, "grad_b", &batch);
  t.grad_b_f32 = vectors_tensor(&v->file, "grad_b_fp32", &batch);
  t.grad_b_t = vectors_tensor(&v->file, "grad_b_transposed", &batch);
  t.d = vectors_tensor(&v->file, "d", &batch);
  return t;
}

/* 64 products read off hardware: as a batch, and the last one alone. */
static void check_measured(const subject *s, const vector *v, const tensors *t) {
  dg_gemm_args args = product(t->a, dg_transposed(t->bt));
  args.start = t->c_in;
  args.batch = t->batch;
  expect(s, v, "batch", args, t->d, false);
  const int64_t last = t->batch - 1;
  args.batch = 1;
  dg_view *views[] = {&args.a, &args.b, &args.start};
  for (int i = 0; i < 3; i++)
    views[i]->data = (char *)views[i]->data +
                     last * views[i]->batch_stride * (views[i]->dtype == DG_F32 ? 4 : 2);
  dg_view want = t->d;
  want.data = (float *)want.data + last * want.batch_stride;
  expect(s, v, "last alone", args, want, false);
}

static void check_computed(const subject *s, const vector *v, const tensors *t) {
  const dg_view bt = dg_transposed(t->bt), at = dg_transposed(t->a);
  dg_gemm_args continued = product(t->a, t->b);
  continued.start = t->c_in;
  expect(s, v, "forward", product(t->a, t->b), t->forward, false);
  expect(s, v, "forward, right side transposed", product(t->a, bt), t->forward, false);
  expect(s, v, "forward to F32", product(t->a, t->b), t->forward_f32, false);
  expect(s, v, "continued", continued, t->continued, false);
  continued.b = bt;
  expect(s, v, "continued, right side transposed", continued, t->continued, false);
  expect(s, v, "grad_a", product(t->dc, dg_transposed(t->b)), t->grad_a, false);
  expect(s, v, "grad_a from [N,K]", product(t->dc, t->bt), t->grad_a, false);
  expect(s, v, "grad_b", product(at, t->dc), t->grad_b, false);
  expect(s, v, "grad_b to F32", product(at, t->dc), t->grad_b_f32, false);
  expect(s, v, "grad_b transposed", product(at, t->dc), t->grad_b_t, true);
}

static bool check_file(const char *directory, const char *name, const subject *list, int count) {
  vector v;
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  snprintf(v.name, sizeof v.name, "%s", name);
  v.order = strncmp(name, "tc16", 4) == 0 ? DG_ORDER_TC16 : DG_ORDER_FMA;
  if (!vectors_read(path, &v.file)) {
    test_failed("cannot read %s", path);
    vectors_free(&v.file);
    return false;
  }
  const tensors t = look_up(&v);
  for (int i = -1; i < count; i++) {
    const subject reference = {.name = "dg_reference", .order = v.order};
    const subject *s = i < 0 ? &reference : &list[i];
    if (s->order != v.order) continue;
    if (t.d.data) check_measured(s, &v, &t);
    else if (t.grad_b_t.data) check_computed(s, &v, &t);
    else test_failed("%s lacks tensors", name);
  }
  vectors_free(&v.file);
  return true;
}

int main(int argc, char **argv) {
  subject list[MAX_SUBJECTS];
  DIR *directory = argc > 1 ? opendir(argv[1]) : NULL;
  int files = 0;
  if (directory == NULL) {
    fprintf(stderr, "usage: test_vectors DIRECTORY [DEVICE [KERNEL-PATTERN]]\n");
    return 2;
  }
  const int count = subjects_open(argc > 2 ? argv[2] : "cpu", argc > 3 ? argv[3] : NULL, list);
  for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
    if (fnmatch("*.safetensors", entry->d_name, 0) == 0)
      files += check_file(argv[1], entry->d_name, list, count);
  closedir(directory);
  subjects_close(list, count);
  if (files < 58) test_failed("only %d vector files in %s", files, argv[1]);
  return counts_end();
}
