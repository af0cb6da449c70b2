/* The parts of detgemm verify. A check is one product in one way of asking for it (the variant):
 * whatever the way and the kernel, its bits must be those of dg_reference for the whole product. */
#ifndef DETGEMM_VERIFY_H
#define DETGEMM_VERIFY_H

#include "device_memory.h"
#include "tool.h"

typedef enum verify_op {
  VOP_FORWARD,
  VOP_FORWARD_NT,
  VOP_GRAD_A,
  VOP_GRAD_B,
  VOP_GRAD_B_T,
  VOPS
} verify_op;
typedef enum verify_inputs {
  IN_PLAIN,
  IN_WIDE,
  IN_TINY,
  IN_OVERFLOW,
  IN_SPECIAL,
  IN_ZEROS,
  INS
} verify_inputs;
typedef enum variant {
  WHOLE,     /* one call */
  ROWS,      /* every row alone */
  CHUNKS,    /* blocks of rows and columns of random sizes */
  PERMUTED,  /* the rows in another sequence */
  BATCHED,   /* as a batch of three with its rows in rotated sequences, the right side shared */
  STRIDED,   /* gaps between elements, rows backwards, odd addresses */
  THREADS,   /* other thread counts */
  CONTINUED, /* the sum cut in two at every place the order allows */
  PIECES,    /* the sum in many pieces, the state continued in place */
  HOSTILE,   /* rounding modes and flush-to-zero set in the calling thread */
  REPEATED,  /* again and again */
  VARIANTS
} variant;

typedef struct check {
  dg_order order;
  verify_op op;
  dg_dtype in, out;
  int64_t m, n, k; /* rows and columns of the result, and the length of its sums */
  verify_inputs inputs;
  bool start, bias;
  variant how;
  uint64_t seed;
} check;

/* A check as one word for the command line, and back. */
void check_text(const check *c, char text[160]);
bool check_parse(const char *text, check *c);

/* A growing list of checks. */
typedef struct check_list {
  check *checks;
  size_t count, capacity;
} check_list;
bool check_list_add(check_list *list, check c);

/* The checks of a sweep; orders is a mask of 1 << dg_order; shapes: the user's, or NULL. */
bool sweep_make(check_list *list, bool quick, unsigned orders, uint64_t seed,
                const shape_list *shapes);

uint64_t random_next(uint64_t *state);

/* The inputs of a check in host memory, row-major, and the expected result. */
typedef struct check_data {
  check c;
  unsigned char *a, *b, *start, *bias; /* [M,K], [K,N], [M,N], [N]; start and bias may be NULL */
  unsigned char *expected;             /* [M,N]; where sampled, only those elements */
  int64_t *samples;                    /* C-order indices; NULL: all elements are compared */
  int64_t sample_count;
} check_data;
bool check_data_make(check_data *d, const check *c);
void check_data_free(check_data *d);

/* Runs a check on a device. */
typedef enum outcome { SAME, DIFFERS, SKIPPED, FAILED } outcome;
typedef struct check_result {
  int64_t elements; /* compared */
  char what[320];   /* the first difference, or why it failed */
} check_result;
outcome check_run(const check_data *d, dg_device *device, device_memory *memory, check_result *r);

/* Hostile floating-point environments of the calling thread: sets number i; false past the last. */
bool hostile_set(int i);
void hostile_reset(void);

#endif
