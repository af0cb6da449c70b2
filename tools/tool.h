/* What the commands of the tool share. */
#ifndef DETGEMM_TOOL_H
#define DETGEMM_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "detgemm.h"

/* Exit codes, pinned: scripts test them. */
enum { EXIT_GOOD = 0, EXIT_DIFFERS = 1, EXIT_BAD = 2 };

#define TOOL_PRINTF(text, first) __attribute__((format(printf, text, first)))

/* Prints one line "detgemm: ..." on stderr and returns EXIT_BAD. Control characters, which a file
 * name or a tensor name may hold, are shown as '?'. */
int complain(const char *format, ...) TOOL_PRINTF(1, 2);

/* The same for a getopt_long failure or a wrong number of operands: points to --help. */
int usage_error(const char *command, const char *format, ...) TOOL_PRINTF(2, 3);

/* getopt_long(), which complains of its own accord in one line and then returns '?'. argv[0] is the
 * command; letters begin with ':'. */
struct option;
int next_option(int argc, char **argv, const char *letters, const struct option *options);

/* Numbers and names on the command line. They complain and return false on a bad value. */
bool parse_number(const char *what, const char *text, int64_t min, int64_t max, int64_t *value);
bool parse_order(const char *text, dg_order *order);
bool parse_dtype(const char *text, dg_dtype *dtype);
bool parse_shape(const char *text, int64_t shape[3]); /* "MxNxK", "M,N,K" or "M N K" */

/* parse_shape without the complaint; and whether no matrix of M x N x K has too many bytes to be
 * counted, or it complains. */
bool scan_shape(const char *text, int64_t shape[3]);
bool shape_fits(const int64_t shape[3]);

const char *order_name(dg_order order);
const char *dtype_name(int dtype);
int64_t dtype_bytes(int dtype);

/* A growing list of M, N, K. */
typedef struct shape_list {
  int64_t (*shapes)[3];
  size_t count, capacity;
} shape_list;
bool shape_list_add(shape_list *list, int64_t m, int64_t n, int64_t k);
bool shape_list_read(shape_list *list, const char *path); /* one shape a line, # begins a comment */
void shape_list_free(shape_list *list);

/* Opens a device, or complains and returns NULL. */
dg_device *open_device(const char *name, int threads);

/* Seconds of a clock that only goes forward. */
double now(void);

/* Each command gets argv from its own name on and returns an exit code. */
int command_info(int argc, char **argv);
int command_matmul(int argc, char **argv);
int command_compare(int argc, char **argv);
int command_verify(int argc, char **argv);
int command_bench(int argc, char **argv);

#endif
