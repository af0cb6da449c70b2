#include "answer.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tool.h"

static bool wanted, answered;
static char complaint[1200];

TOOL_PRINTF(1, 0) static void print_line(const char *format, va_list arguments, const char *more) {
  char line[1024];
  vsnprintf(line, sizeof line, format, arguments);
  for (char *c = line; *c; c++)
    if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
  snprintf(complaint, sizeof complaint, "%s%s", line, more);
  fprintf(stderr, "detgemm: %s\n", complaint);
}

int complain(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  print_line(format, arguments, "");
  va_end(arguments);
  return EXIT_BAD;
}

int usage_error(const char *command, const char *format, ...) {
  char more[80];
  snprintf(more, sizeof more, "; see detgemm %s --help", command);
  va_list arguments;
  va_start(arguments, format);
  print_line(format, arguments, more);
  va_end(arguments);
  return EXIT_BAD;
}

/* getopt_long takes a long option's beginning for the whole. */
static bool is_json_option(const char *word) {
  static const char option[] = "--json";
  const size_t length = strlen(word);
  return length > 2 && length < sizeof option && strncmp(word, option, length) == 0;
}

void answer_begin(int argc, char **argv) {
  for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
    if (is_json_option(argv[i])) wanted = true;
}

static void print(json_t *value) {
  json_dumpf(value, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9) | JSON_ENCODE_ANY);
  putchar('\n');
  json_decref(value);
}

void answer_json(json_t *answer) {
  if (answer == NULL) return;
  answered = true;
  print(answer);
}

int answer_end(int code) {
  if (wanted && !answered && code == EXIT_BAD)
    print(json_pack("{s:o}", "error", answer_text(complaint)));
  if (fflush(stdout) == 0 && !ferror(stdout)) return code;
  return complain("cannot write to standard output");
}

/* The length of the UTF-8 character at text, or 0. json_stringn refuses what is none. */
static size_t character(const char *text) {
  for (size_t length = 1; length <= 4; length++) {
    json_t *one = json_stringn(text, length);
    json_decref(one);
    if (one != NULL) return length;
    if (text[length - 1] == '\0') break;
  }
  return 0;
}

json_t *answer_text(const char *text) {
  char clean[4096];
  size_t used = 0;
  if (text == NULL) return json_null();
  json_t *whole = json_string(text);
  if (whole != NULL) return whole;
  while (*text && used + 4 < sizeof clean) {
    const size_t length = character(text);
    memcpy(clean + used, length ? text : "?", length ? length : 1);
    used += length ? length : 1;
    text += length ? length : 1;
  }
  return json_stringn(clean, used);
}

json_t *answer_number(double value) { return isfinite(value) ? json_real(value) : json_null(); }
