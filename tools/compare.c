/* detgemm compare: are two tensors the same bits? */
#include <getopt.h>
#include <stdio.h>

#include "answer.h"
#include "difference.h"
#include "tool.h"

static const char help[] =
    "usage: detgemm compare X Y [--npy-bf16] [--json]\n"
    "\n"
    "Compares two tensors (FILE.safetensors:TENSOR or FILE.npy) bit for bit. Bits decide, so +0 "
    "and\n"
    "-0 differ, and two NaNs are the same only if their bits are. Prints how many elements "
    "differ,\n"
    "the first and the worst, and a histogram of distances in units in the last place.\n"
    "Exit status: 0 the same bits, 1 they differ, 2 another dtype or shape, or bad input.\n"
    "\n"
    "      --npy-bf16  16-bit unsigned npy elements are BF16 bits\n"
    "      --json      machine-readable output\n"
    "  -h, --help      this text\n";

static int report(const tensor *x, const tensor *y, bool json) {
  const difference d = difference_find(x, y);
  if (json) {
    answer_json(difference_json(&d, x, y));
  } else {
    difference_print(stdout, &d, x, y);
  }
  return d.count ? EXIT_DIFFERS : EXIT_GOOD;
}

int command_compare(int argc, char **argv) {
  static const struct option options[] = {{"npy-bf16", no_argument, NULL, 'n'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
  bool json = false, npy_bf16 = false;
  for (int c; (c = next_option(argc, argv, ":h", options)) != -1;) switch (c) {
      case 'n': npy_bf16 = true; break;
      case 'j': json = true; break;
      case 'h': fputs(help, stdout); return EXIT_GOOD;
      default: return EXIT_BAD;
    }
  if (argc - optind != 2) return usage_error("compare", "compare takes two tensors");
  const char *x_name = argv[optind], *y_name = argv[optind + 1];
  tensor_file x, y = {0};
  int code = EXIT_BAD;
  if (tensor_open(&x, x_name, npy_bf16) && tensor_open(&y, y_name, npy_bf16) &&
      difference_comparable(&x.t, x_name, &y.t, y_name))
    code = report(&x.t, &y.t, json);
  tensor_close(&x);
  tensor_close(&y);
  return code;
}
