/* How the tool answers: one line on standard error for what is wrong, JSON on standard output where
 * it was asked for. */
#ifndef DETGEMM_ANSWER_H
#define DETGEMM_ANSWER_H

#include <jansson.h>
#include <stdbool.h>

/* Looks for --json among the words of the command line. */
void answer_begin(int argc, char **argv);

/* Prints a command's JSON and releases it. NULL, from a failed allocation, is complained of at the
 * end. */
void answer_json(json_t *answer);

/* To be called last. With --json standard output gets exactly one value: a command that failed
 * before it had an answer gets {"error": its complaint}. Returns the exit code, which is EXIT_BAD
 * where standard output could not be written: a full disk must not look like success. */
int answer_end(int code);

/* Any bytes as a JSON string: a file's name need not be UTF-8, and what is not becomes '?'. NULL
 * becomes null. A number that is not finite becomes null too. */
json_t *answer_text(const char *text);
json_t *answer_number(double value);

#endif
