/* detgemm matmul: a product of two tensors from files. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "difference.h"
#include "output.h"
#include "product.h"

static const char help[] =
    "usage: detgemm matmul A B [-o OUT] [options]\n"
    "\n"
    "Multiplies two tensors, named FILE.safetensors:TENSOR or FILE.npy, and prints the SHA-256 of\n"
    "the result's bits. 3-D tensors are batches; a 2-D one serves every product of the batch.\n"
    "\n"
    "  -o, --output OUT      write the result: FILE.safetensors[:TENSOR] or FILE.npy\n"
    "      --op OP           what the two operands are, and the result:\n"
    "                          forward            A[M,K] B[K,N]   -> C[M,N]   (default)\n"
    "                          grad-a             dC[M,N] B[K,N]  -> dA[M,K]\n"
    "                          grad-b             A[M,K] dC[M,N]  -> dB[K,N]\n"
    "                          grad-b-transposed  A[M,K] dC[M,N]  -> dW[N,K]\n"
    "      --rhs-transposed  B is stored as [N,K], like the weight of a linear layer\n"
    "      --order ORDER     the order of summation: fma (default) or tc16\n"
    "  -d, --device NAME     cpu (default), cuda:0, ...\n"
    "      --out-dtype TYPE  bf16, f16 or f32; by default that of the operands\n"
    "      --start TENSOR    continue from this FP32 state, shaped like the result\n"
    "      --bias TENSOR     add this [N] bias to the finished sums\n"
    "      --cast            round F16 and F32 operands to BF16 first\n"
    "      --npy-bf16        16-bit unsigned npy elements are BF16 bits\n"
    "      --threads N       at most N threads; no bit depends on it\n"
    "      --repeat N        compute N times and print the median time\n"
    "      --against TENSOR  compare the result with this tensor bit for bit\n"
    "      --json            machine-readable output\n"
    "  -h, --help            this text\n"
    "\n"
    "Exit status: 0 good, 1 the result differs from --against, 2 bad usage or input.\n";

typedef struct request {
  const char *left, *right, *output, *device, *start, *bias, *against;
  operation op;
  dg_order order;
  dg_dtype out_dtype; /* 0: that of the operands */
  bool rhs_transposed, cast, npy_bf16, json;
  int threads, repeat;
} request;

typedef struct files {
  tensor_file left, right, start, bias, against;
} files;

static bool parse_operation(const char *text, operation *op) {
  static const char *const names[] = {"forward", "grad-a", "grad-b", "grad-b-transposed"};
  for (int i = 0; i < 4; i++)
    if (strcmp(text, names[i]) == 0) {
      *op = (operation)i;
      return true;
    }
  complain("\"%s\" is no operation; see detgemm matmul --help", text);
  return false;
}

static bool parse_count(const char *what, const char *text, int *count) {
  int64_t value;
  if (!parse_number(what, text, 1, 65536, &value)) return false;
  *count = (int)value;
  return true;
}

/* One option; false: complained. */
static bool take_option(int c, request *r) {
  switch (c) {
    case 'o': r->output = optarg; return output_check(optarg);
    case 'O': return parse_operation(optarg, &r->op);
    case 'T': r->rhs_transposed = true; return true;
    case 'r': return parse_order(optarg, &r->order);
    case 'd': r->device = optarg; return true;
    case 't': return parse_dtype(optarg, &r->out_dtype);
    case 's': r->start = optarg; return true;
    case 'b': r->bias = optarg; return true;
    case 'c': r->cast = true; return true;
    case 'n': r->npy_bf16 = true; return true;
    case 'p': return parse_count("--threads", optarg, &r->threads);
    case 'R': return parse_count("--repeat", optarg, &r->repeat);
    case 'a': r->against = optarg; return true;
    case 'j': r->json = true; return true;
    default: return false;
  }
}

static bool open_optional(tensor_file *f, const char *spec, const request *r) {
  return spec == NULL || tensor_open(f, spec, r->npy_bf16);
}

static bool open_files(files *f, const request *r) {
  if (!tensor_open(&f->left, r->left, r->npy_bf16) ||
      !tensor_open(&f->right, r->right, r->npy_bf16) || !open_optional(&f->start, r->start, r) ||
      !open_optional(&f->bias, r->bias, r) || !open_optional(&f->against, r->against, r))
    return false;
  return !r->cast || (tensor_cast_bf16(&f->left) && tensor_cast_bf16(&f->right));
}

static void close_files(files *f) {
  tensor_file *all[] = {&f->left, &f->right, &f->start, &f->bias, &f->against};
  for (int i = 0; i < 5; i++) tensor_close(all[i]);
}

typedef struct result {
  dg_gemm_args args;
  product_run run;
  tensor out;
  char digest[65];
} result;

static double gflops(const result *x) {
  const dg_gemm_args *g = &x->args;
  const double operations =
      2.0 * (double)g->batch * (double)g->out.rows * (double)g->out.cols * (double)g->a.cols;
  return x->run.seconds > 0 ? operations / x->run.seconds * 1e-9 : 0;
}

static bool compute(const request *r, const files *f, result *x) {
  const product_inputs in = {r->op,
                             r->rhs_transposed,
                             &f->left.t,
                             &f->right.t,
                             r->start ? &f->start.t : NULL,
                             r->bias ? &f->bias.t : NULL};
  const dg_dtype dtype = r->out_dtype ? r->out_dtype : (dg_dtype)f->left.t.dtype;
  device_memory memory = {0};
  if (!product_views(&in, dtype, &x->args, &x->out)) return false;
  if (r->against && !difference_comparable(&x->out, "the result", &f->against.t, r->against))
    return false;
  x->args.order = r->order;
  dg_device *device = open_device(r->device, r->threads);
  void *data = malloc((size_t)(tensor_count(&x->out) * dtype_bytes(x->out.dtype)) + 1);
  if (data == NULL) complain("no memory for the result");
  x->args.out.data = data;
  x->out.data = data;
  const bool good = device != NULL && data != NULL &&
                    device_memory_open(&memory, dg_device_name(device)) &&
                    product_compute(device, &memory, &x->args, r->repeat, &x->run) &&
                    output_digest(&x->out, x->digest);
  device_memory_close(&memory);
  dg_device_close(device);
  return good;
}

static void print_text(const request *r, const files *f, const result *x, const difference *d) {
  char left[128], right[128], out[128];
  printf("product   %s %s x %s %s -> %s %s\n", dtype_name(f->left.t.dtype),
         tensor_shape_text(&f->left.t, left), dtype_name(f->right.t.dtype),
         tensor_shape_text(&f->right.t, right), dtype_name(x->out.dtype),
         tensor_shape_text(&x->out, out));
  printf("order     %s\nkernel    %s on %s\n", order_name(r->order), x->run.kernel.name, r->device);
  printf("time      %.6f s, %.2f GFLOP/s\n", x->run.seconds, gflops(x));
  printf("sha256    %s\n", x->digest);
  if (r->output) printf("written   %s\n", r->output);
  if (d) {
    printf("against   %s: ", r->against);
    difference_print(stdout, d, &x->out, &f->against.t);
  }
}

static json_t *shape_json(const tensor *t) {
  json_t *shape = json_array();
  for (int i = 0; i < t->rank; i++) json_array_append_new(shape, json_integer(t->shape[i]));
  return shape;
}

static void print_json(const request *r, const files *f, const result *x, const difference *d) {
  json_t *all = json_pack("{s:o, s:o, s:o, s:s, s:s, s:s, s:s, s:f, s:f, s:s}", "left",
                          shape_json(&f->left.t), "right", shape_json(&f->right.t), "shape",
                          shape_json(&x->out), "dtype", dtype_name(x->out.dtype), "order",
                          order_name(r->order), "device", r->device, "kernel", x->run.kernel.name,
                          "seconds", x->run.seconds, "gflops", gflops(x), "sha256", x->digest);
  if (r->output) json_object_set_new(all, "output", answer_text(r->output));
  if (d) json_object_set_new(all, "against", difference_json(d, &x->out, &f->against.t));
  answer_json(all);
}

static int run(const request *r) {
  files f = {0};
  result x = {0};
  int code = EXIT_BAD;
  if (open_files(&f, r) && compute(r, &f, &x) && (!r->output || output_write(r->output, &x.out))) {
    difference d = {0};
    if (r->against) d = difference_find(&x.out, &f.against.t);
    const difference *shown = r->against ? &d : NULL;
    if (r->json) print_json(r, &f, &x, shown);
    else print_text(r, &f, &x, shown);
    code = d.count ? EXIT_DIFFERS : EXIT_GOOD;
  }
  free(x.args.out.data);
  close_files(&f);
  return code;
}

int command_matmul(int argc, char **argv) {
  static const struct option options[] = {
      {"output", required_argument, NULL, 'o'},   {"op", required_argument, NULL, 'O'},
      {"rhs-transposed", no_argument, NULL, 'T'}, {"order", required_argument, NULL, 'r'},
      {"device", required_argument, NULL, 'd'},   {"out-dtype", required_argument, NULL, 't'},
      {"start", required_argument, NULL, 's'},    {"bias", required_argument, NULL, 'b'},
      {"cast", no_argument, NULL, 'c'},           {"npy-bf16", no_argument, NULL, 'n'},
      {"threads", required_argument, NULL, 'p'},  {"repeat", required_argument, NULL, 'R'},
      {"against", required_argument, NULL, 'a'},  {"json", no_argument, NULL, 'j'},
      {"help", no_argument, NULL, 'h'},           {0}};
  request r = {.device = "cpu", .order = DG_ORDER_FMA, .repeat = 1};
  for (int c; (c = next_option(argc, argv, ":o:d:h", options)) != -1;) {
    if (c == 'h') {
      fputs(help, stdout);
      return EXIT_GOOD;
    }
    if (!take_option(c, &r)) return EXIT_BAD;
  }
  if (argc - optind != 2) return usage_error("matmul", "matmul takes two tensors");
  r.left = argv[optind];
  r.right = argv[optind + 1];
  return run(&r);
}
