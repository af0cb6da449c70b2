/* Runs the tool on real and on broken files, in a directory of its own.
 * usage: test_cli TOOL VECTORS (the directory of the reference vectors) */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* After the headers that it needs. */
#include <cmocka.h>

extern char **environ;

static const char *tool, *vectors;
static char out[1 << 16], err[1 << 13];

static void slurp(const char *path, char *text, size_t size) {
  FILE *f = fopen(path, "r");
  assert_non_null(f);
  text[fread(text, 1, size - 1, f)] = '\0';
  fclose(f);
}

static bool stdout_closed; /* for the next runs */

static pid_t start(char **words) {
  posix_spawn_file_actions_t actions;
  pid_t child;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "stdout", O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (stdout_closed) posix_spawn_file_actions_addclose(&actions, 1);
  posix_spawn_file_actions_addopen(&actions, 2, "stderr", O_WRONLY | O_CREAT | O_TRUNC, 0600);
  assert_int_equal(posix_spawn(&child, tool, &actions, NULL, words, environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  return child;
}

/* Splits a command at its spaces; "@" stands for the vectors' directory. */
__attribute__((format(printf, 1, 0))) static pid_t start_command(const char *format,
                                                                 va_list arguments) {
  static char command[4096], expanded[8192];
  char *words[40] = {(char *)(uintptr_t) "detgemm"};
  size_t used = 0;
  vsnprintf(command, sizeof command, format, arguments);
  for (const char *c = command; *c; c++)
    used += (size_t)(*c == '@' ? snprintf(expanded + used, sizeof expanded - used, "%s", vectors)
                               : snprintf(expanded + used, sizeof expanded - used, "%c", *c));
  int count = 1;
  for (char *word = strtok(expanded, " "); word && count < 39; word = strtok(NULL, " "))
    words[count++] = word;
  return start(words);
}

__attribute__((format(printf, 1, 2))) static int run(const char *format, ...) {
  va_list arguments;
  int status;
  va_start(arguments, format);
  const pid_t child = start_command(format, arguments);
  va_end(arguments);
  assert_int_equal(waitpid(child, &status, 0), child);
  slurp("stdout", out, sizeof out);
  slurp("stderr", err, sizeof err);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static void put_file(const char *path, const void *head, size_t head_size, const void *data,
                     size_t size) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(head, 1, head_size, f), head_size);
  assert_int_equal(fwrite(data, 1, size, f), size);
  assert_int_equal(fclose(f), 0);
}

static void put_safetensors(const char *header, const void *data, size_t size) {
  unsigned char head[4096];
  const size_t length = strlen(header);
  for (int i = 0; i < 8; i++) head[i] = (unsigned char)((uint64_t)length >> (8 * i));
  memcpy(head + 8, header, length);
  put_file("t.safetensors", head, 8 + length, data, size);
}

static void put_npy(const char *path, int version, const char *header, const void *data,
                    size_t size) {
  unsigned char head[4096] = "\x93NUMPY";
  const size_t length = strlen(header), fixed = version == 1 ? 10 : 12;
  head[6] = (unsigned char)version;
  head[8] = (unsigned char)(length & 255);
  head[9] = (unsigned char)(length >> 8);
  memcpy(head + fixed, header, length);
  put_file(path, head, fixed + length, data, size);
}

/* Bad input: exit status 2, one line on stderr, nothing on stdout. */
static void expect_refused(int code) {
  const char *end = strchr(err, '\n');
  if (code != 2) print_error("exit status %d, stdout: %s stderr: %s\n", code, out, err);
  assert_int_equal(code, 2);
  assert_int_equal(strncmp(err, "detgemm: ", 9), 0);
  assert_non_null(end);
  assert_int_equal(end[1], '\0');
  assert_int_equal(out[0], '\0');
}

static int files_here(void) {
  int count = 0;
  DIR *directory = opendir(".");
  assert_non_null(directory);
  while (readdir(directory) != NULL) count++;
  closedir(directory);
  return count;
}

static void help_and_usage(void **unused) {
  (void)unused;
  static const char *const commands[] = {"info", "matmul", "compare", "verify", "bench"};
  for (int i = 0; i < 5; i++) {
    assert_int_equal(run("%s --help", commands[i]), 0);
    assert_non_null(strstr(out, "usage: detgemm"));
    expect_refused(run("%s --no-such-option", commands[i]));
    expect_refused(run("%s -x", commands[i]));
    expect_refused(run("%s --json=yes", commands[i]));
    expect_refused(run("%s --help=yes", commands[i]));
  }
  expect_refused(run("matmul --output"));
  expect_refused(run("info -d"));
  expect_refused(run("info --device nonsense:0"));
  expect_refused(run("verify --case fma/forward/bf16/f32/1x1/plain/none/whole/1"));
  expect_refused(run("verify --case fma/forward/bf16/f32/1x1x1/plain/none/whole/x"));
  assert_int_equal(run("--help"), 0);
  assert_int_equal(run("--version"), 0);
  expect_refused(run("nonsense"));
  expect_refused(run("matmul one"));
  expect_refused(run("matmul a.npy b.npy --order best"));
  expect_refused(run("matmul a.npy b.npy --threads -1"));
  expect_refused(run("matmul a.npy b.npy -o result.txt"));
  expect_refused(run("matmul a.txt b.npy"));
  expect_refused(run("info --device nonsense:0 extra"));
  expect_refused(run("verify --case nonsense"));
  expect_refused(run("bench --shape 1x2"));
}

static void info_is_json(void **unused) {
  (void)unused;
  json_error_t error;
  assert_int_equal(run("info --json"), 0);
  json_t *info = json_loads(out, 0, &error);
  assert_non_null(info);
  assert_true(json_array_size(json_object_get(info, "devices")) > 0);
  json_decref(info);
  assert_int_equal(run("info"), 0);
  assert_non_null(strstr(out, "cpu"));
}

/* With --json standard output holds one value whatever happens. */
static void failures_are_json(void **unused) {
  (void)unused;
  static const char *const commands[] = {"--json",
                                         "nonsense --json",
                                         "info --json --no-such-option",
                                         "info --nonsense --js",
                                         "matmul --json",
                                         "matmul --json a.npy missing.npy",
                                         "compare x.npy y.npy --json",
                                         "matmul a.npy b.npy --order best --json",
                                         "compare \xff\xc3.npy y.npy --json",
                                         "verify --json --device nonsense",
                                         "verify --json --device \xff\xfe",
                                         "verify --json --case x",
                                         "verify --kernel nothing --json",
                                         "bench --json --shape 1x1",
                                         "bench --json --peer nobody",
                                         "bench --device cuda:77 --json",
                                         "bench --json --shape 4294967296x4294967296x1 --peer none",
                                         "bench --json --shape 1x1x1 --peer none --svg chart.svg"};
  json_error_t error;
  for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
    const int code = run("%s", commands[i]);
    json_t *answer = json_loads(out, 0, &error);
    if (answer == NULL) print_error("%s printed %s\n", commands[i], out);
    assert_true(json_is_string(json_object_get(answer, "error")));
    json_decref(answer);
    out[0] = '\0';
    expect_refused(code);
  }
  assert_int_equal(run("info --json --device \xff\xfe"), 2);
  json_t *answer = json_loads(out, 0, &error);
  assert_int_equal(json_array_size(json_object_get(answer, "devices")), 1);
  json_decref(answer);
}

/* Each operation on a vector of the order, bit for bit. */
static void check_vector(const char *order, const char *file) {
  static const char *const products[] = {
      "matmul %s:a %s:b --order %s --against %s:forward",
      "matmul %s:a %s:b_transposed --rhs-transposed --order %s --against %s:forward",
      "matmul %s:a %s:b --out-dtype f32 --order %s --against %s:forward_fp32",
      "matmul %s:grad_c %s:b --op grad-a --order %s --against %s:grad_a",
      "matmul %s:a %s:grad_c --op grad-b --order %s --against %s:grad_b",
      "matmul %s:a %s:grad_c --op grad-b --out-dtype f32 --order %s --against %s:grad_b_fp32",
      "matmul %s:a %s:grad_c --op grad-b-transposed --order %s --against %s:grad_b_transposed"};
  char command[1024], path[256];
  snprintf(path, sizeof path, "@/%s", file);
  for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
    size_t used = 0;
    const char *arguments[] = {path, path, order, path};
    int next = 0;
    for (const char *c = products[i]; *c && used < sizeof command - 256; c++) {
      if (*c != '%') command[used++] = *c;
      else {
        used += (size_t)snprintf(command + used, sizeof command - used, "%s", arguments[next++]);
        c++;
      }
    }
    command[used] = '\0';
    assert_int_equal(run("%s", command), 0);
  }
  assert_int_equal(run("matmul %s:a %s:b --start %s:c_in --out-dtype f32 --order %s --against "
                       "%s:forward_continue_fp32",
                       path, path, path, order, path),
                   0);
}

static void vectors_match(void **unused) {
  (void)unused;
  check_vector("fma", "fma-special-17x16x9.safetensors");
  check_vector("fma", "fma-tiny-5x37x7.safetensors");
  check_vector("tc16", "tc16-plain-31x70x65.safetensors");
  check_vector("tc16", "tc16-overflow-5x37x7.safetensors");
}

static void differences_are_found(void **unused) {
  (void)unused;
  const char *file = "@/fma-wide-5x37x7.safetensors";
  assert_int_equal(run("compare %s:a %s:a", file, file), 0);
  assert_int_equal(run("compare %s:forward_fp32 %s:forward_continue_fp32", file, file), 1);
  assert_non_null(strstr(out, "elements differ"));
  assert_non_null(strstr(out, "first at [0, "));
  assert_int_equal(run("compare --json %s:forward_fp32 %s:forward_continue_fp32", file, file), 1);
  assert_int_equal(
      run("matmul %s:a %s:b --out-dtype f32 --against %s:forward_continue_fp32", file, file, file),
      1);
  expect_refused(run("compare %s:a %s:b", file, file));
  expect_refused(run("compare %s:forward %s:forward_fp32", file, file));
  expect_refused(run("compare %s:a %s:nothing", file, file));
  expect_refused(run("matmul %s:a %s:a", file, file));
  expect_refused(
      run("matmul %s:forward_fp32 %s:forward_fp32 --op grad-b --order tc16", file, file));
  assert_int_equal(
      run("matmul %s:forward_fp32 %s:forward_fp32 --op grad-b --order tc16 --cast", file, file), 0);
}

static void results_are_written(void **unused) {
  (void)unused;
  const char *file = "@/tc16-plain-64x48x33.safetensors";
  static const char *const names[] = {"r.npy", "r.safetensors:x.y:z", "r.safetensors"};
  for (int i = 0; i < 3; i++) {
    assert_int_equal(run("matmul %s:a %s:b --order tc16 -o %s", file, file, names[i]), 0);
    assert_int_equal(run("compare %s %s:forward", names[i], file), 0);
  }
  const int before = files_here();
  static const char *const bad[] = {"missing/r.npy",
                                    "stdout/r.npy",
                                    "r.safetensors:\xff",
                                    "r.safetensors:",
                                    "r.safetensors:__metadata__",
                                    "/dev/null"};
  for (int i = 0; i < 6; i++) expect_refused(run("matmul %s:a %s:b -o %s", file, file, bad[i]));
  assert_int_equal(mkdir("folder.npy", 0700), 0);
  expect_refused(run("matmul %s:a %s:b -o folder.npy", file, file));
  assert_int_equal(rmdir("folder.npy"), 0);
  expect_refused(run("bench --shape 1x1x1 --svg missing/chart.svg"));
  assert_int_equal(files_here(), before);
  char longest[256]; /* a name that has no room for more */
  memset(longest, 'n', 251);
  memcpy(longest + 251, ".npy", 5);
  json_error_t error;
  assert_int_equal(run("matmul %s:a %s:b --json -o %s", file, file, longest), 0);
  assert_int_equal(unlink(longest), 0);
  assert_int_equal(run("matmul %s:a %s:b --json -o \xff.npy", file, file), 0);
  json_t *answer = json_loads(out, 0, &error);
  assert_string_equal(json_string_value(json_object_get(answer, "output")), "?.npy");
  json_decref(answer);
  assert_int_equal(unlink("\xff.npy"), 0);
  unlink("r.npy");
  unlink("r.safetensors");
}

/* What is printed never ends in the result's file, and a report that is lost is a failure. */
static void closed_output(void **unused) {
  (void)unused;
  const char *file = "@/tc16-plain-64x48x33.safetensors";
  stdout_closed = true;
  const int code = run("matmul %s:a %s:b --order tc16 -o r.npy", file, file);
  stdout_closed = false;
  expect_refused(code);
  assert_int_equal(run("compare r.npy %s:forward", file), 0);
  unlink("r.npy");
}

static void batches(void **unused) {
  (void)unused;
  const float left[] = {1, 2, 3, 4}, right[] = {5, 6}, bias[] = {0.5f}, want[] = {17.5f, 39.5f};
  put_npy("a.npy", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1, 2), }", left, 16);
  put_npy("b.npy", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }", right, 8);
  put_npy("bias.npy", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", bias, 4);
  put_npy("c.npy", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1, 1), }", want, 8);
  assert_int_equal(run("matmul a.npy b.npy --bias bias.npy --against c.npy"), 0);
  assert_int_equal(run("matmul a.npy b.npy --bias bias.npy --threads 3 --json --against c.npy"), 0);
  expect_refused(run("matmul a.npy b.npy --bias a.npy"));
  expect_refused(run("matmul a.npy b.npy --start c.npy --op grad-a"));
}

static void npy_variants(void **unused) {
  (void)unused;
  const uint16_t half[] = {0x3c00, 0x4000, 0x7e00, 0x4400, 0x4500, 0xfc00};
  const uint16_t fortran[] = {0x3c00, 0x4400, 0x4000, 0x4500, 0x7e00, 0xfc00};
  uint16_t swapped[6];
  for (int i = 0; i < 6; i++) swapped[i] = (uint16_t)(half[i] << 8 | half[i] >> 8);
  put_npy("h.npy", 1, "{'descr': '<f2', 'fortran_order': False, 'shape': (2, 3), }", half, 12);
  put_npy("f.npy", 2, "{'descr': '<f2', 'fortran_order': True, 'shape': (2, 3), }\n", fortran, 12);
  put_npy("s.npy", 3, "{\"shape\": (2, 3), 'descr': '>f2', 'fortran_order': False}", swapped, 12);
  put_npy("u.npy", 1, "{'descr': '<u2', 'fortran_order': False, 'shape': (2, 3), }", half, 12);
  put_npy("v.npy", 1, "{'descr': '<V2', 'fortran_order': False, 'shape': (2, 3), }", half, 12);
  put_npy("p.npy", 1, "{'descr': 'f2', 'fortran_order': False, 'shape': (2L, 3L), }\n", half, 12);
  assert_int_equal(run("compare h.npy p.npy"), 0); /* as Python 2 wrote it */
  unlink("p.npy");
  put_npy("z.npy", 1, "{'descr': '<f2', 'fortran_order': False, 'shape': (3, 0), }", half, 0);
  assert_int_equal(run("compare h.npy f.npy"), 0);
  assert_int_equal(run("compare h.npy s.npy"), 0);
  assert_int_equal(run("compare u.npy v.npy --npy-bf16"), 0);
  assert_int_equal(run("compare z.npy z.npy"), 0);
  assert_int_equal(run("matmul h.npy z.npy"), 0);
  assert_int_equal(run("matmul h.npy f.npy --rhs-transposed --out-dtype f32 -o nan.npy"), 0);
  assert_int_equal(run("compare nan.npy nan.npy"), 0);
  expect_refused(run("compare u.npy v.npy"));
}

static void bad_npy_files(void **unused) {
  (void)unused;
  static const struct {
    int version;
    const char *header;
  } bad[] = {
      {1, "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"},
      {1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }"},
      {1, "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }"},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }"},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }"},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1), }"},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (01,), }"},
      {1, "{'descr': '', 'fortran_order': False, 'shape': (1,), }"},
      {1, "{'descr': '<', 'fortran_order': False, 'shape': (1,), }"},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }"},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }"},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }"},
      {1, "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (1,), }"},
      {1, "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,), }"},
      {1, "{'descr': '<f4', 'shape': (1,), }"},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } more"},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1"},
      {1, "[]"},
      {1, ""},
      {4, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    put_npy("t.npy", bad[i].version, bad[i].header, "0123456789abcdef", 16);
    expect_refused(run("compare t.npy t.npy"));
  }
  put_file("t.npy", "\x93NUMPY\1\0\377\377", 10, "{", 1); /* the header is longer than the file */
  expect_refused(run("compare t.npy t.npy"));
  put_file("t.npy", "", 0, "", 0);
  expect_refused(run("compare t.npy t.npy"));
  put_file("t.npy", "not an npy file", 15, "", 0);
  expect_refused(run("compare t.npy t.npy"));
}

static void bad_safetensors_files(void **unused) {
  (void)unused;
  static const char *const bad[] = {
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,8]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,8]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}}",
      "{\"a\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}",
      "{\"a\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]}}",
      "{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}",
      "{\"a\":[]}",
      "{\"__metadata__\":{\"x\":1},\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
      "{\"__metadata__\":\"x\",\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
      "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
      "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
      "{\"a\\u0000b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}} more",
      "[]",
      "",
  };
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    put_safetensors(bad[i], "01234567", 8);
    expect_refused(run("compare t.safetensors:a t.safetensors:a"));
  }
  char deep[4000];
  memset(deep, '[', sizeof deep);
  memcpy(deep, "{\"a\":", 5);
  deep[sizeof deep - 1] = '\0';
  put_safetensors(deep, "01234567", 8);
  expect_refused(run("compare t.safetensors:a t.safetensors:a"));
  put_file("t.safetensors", "\377\377\377\377\377\377\377\377{}", 10, "", 0);
  expect_refused(run("compare t.safetensors:a t.safetensors:a"));
  put_file("t.safetensors", "\1\0", 2, "", 0);
  expect_refused(run("compare t.safetensors:a t.safetensors:a"));
  expect_refused(run("compare . t.safetensors:a"));
  expect_refused(run("compare missing.safetensors:a t.safetensors:a"));
}

/* Tensors of other kinds in the file are no obstacle; a single tensor needs no name. */
static void other_tensors(void **unused) {
  (void)unused;
  put_safetensors(
      "{\"__metadata__\":{\"x\":\"y\"},\"b\":{\"dtype\":\"F4_NEW\",\"shape\":[3],\"data_offsets\":"
      "[4,8]},\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}   ",
      "01234567", 8);
  assert_int_equal(run("compare t.safetensors:a t.safetensors:a"), 0);
  expect_refused(run("compare t.safetensors:b t.safetensors:b"));
  expect_refused(run("compare t.safetensors t.safetensors:a"));
  expect_refused(run("compare t.safetensors:__metadata__ t.safetensors:a"));
  put_safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", "0123", 4);
  assert_int_equal(run("compare t.safetensors t.safetensors:a"), 0);
}

__attribute__((format(printf, 1, 2))) static int run_and_kill(const char *format, ...) {
  const struct timespec while_it_runs = {0, 300000000};
  va_list arguments;
  int status;
  va_start(arguments, format);
  const pid_t child = start_command(format, arguments);
  va_end(arguments);
  nanosleep(&while_it_runs, NULL);
  kill(child, SIGTERM);
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void signals_leave_nothing(void **unused) {
  (void)unused;
  const char *file = "@/tc16-plain-64x48x33.safetensors";
  const int before = files_here();
  assert_int_equal(run_and_kill("matmul %s:a %s:b --repeat 65536 -o killed.npy", file, file),
                   SIGTERM);
  assert_int_equal(files_here(), before);
}

static void shape_files(void **unused) {
  (void)unused;
  static const struct {
    const char *text;
    size_t size;
    int code;
  } files[] = {{"# nothing\n", 10, 2},
               {"1 2 3 4\n", 8, 2},
               {"1,2\n", 4, 2},
               {"-1,2,3\n", 7, 2},
               {"1,2,3\0004\n", 8, 2},
               {"1,2,99999999999999999999", 24, 2},
               {"\n 2x2x2 # two\n", 14, 0},
               {"3000000000,3000000000,0", 23, 2}};
  char text[700];
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    memset(text, '#', sizeof text); /* a long comment first */
    text[600] = '\n';
    put_file("shapes", text, 601, files[i].text, files[i].size);
    const int code = run("bench --peer none --shapes shapes");
    if (files[i].code == 0) assert_int_equal(code, 0);
    else expect_refused(code);
    if (i + 1 == sizeof files / sizeof files[0]) expect_refused(run("verify --shapes shapes"));
  }
  expect_refused(run("bench --peer none --shapes ."));
  unlink("shapes");
}

static void verify_and_bench(void **unused) {
  (void)unused;
  json_error_t error;
  assert_int_equal(
      run("verify --json --case fma/grad-b/bf16/f32/17x33x65/special/start+bias/continued/7"), 0);
  json_t *result = json_loads(out, 0, &error);
  assert_true(json_is_true(json_object_get(result, "same")));
  json_decref(result);
  expect_refused(run("verify --kernel nothing-like-it"));
  assert_int_equal(run("bench --shape 8x8x8 --peer none --json"), 0);
  result = json_loads(out, 0, &error);
  assert_int_equal(json_array_size(json_object_get(result, "rows")), 2);
  json_decref(result);
  expect_refused(run("bench --from nowhere.json --svg chart.svg"));
  expect_refused(run("bench --from nowhere.json"));
}

/* A record of an earlier run becomes a chart with a bar for every row that has a peer. */
static void charts(void **unused) {
  static const char record[] =
      "{\"description\": \"a <fast> & small machine\", \"peer\": \"cuBLAS\", \"rows\": ["
      "{\"order\": \"tc16\", \"op\": \"nt\", \"m\": 16, \"n\": 64, \"k\": 32, \"seconds\": 2e-6, "
      "\"peer_ratio\": 1.25},"
      "{\"order\": \"fma\", \"op\": \"grad-b\", \"m\": 7, \"n\": 8, \"k\": 9, \"seconds\": 1e-6}]}";
  (void)unused;
  put_file("record.json", record, sizeof record - 1, "", 0);
  assert_int_equal(run("bench --from record.json --svg chart.svg"), 0);
  slurp("chart.svg", out, sizeof out);
  assert_non_null(strstr(out, "tc16 nt 16 x 64 x 32"));
  assert_non_null(strstr(out, ">1.25<"));
  assert_non_null(strstr(out, "a &lt;fast> &amp; small machine"));
  assert_null(strstr(out, "7 x 8 x 9"));
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(help_and_usage),
                                     cmocka_unit_test(info_is_json),
                                     cmocka_unit_test(failures_are_json),
                                     cmocka_unit_test(closed_output),
                                     cmocka_unit_test(shape_files),
                                     cmocka_unit_test(vectors_match),
                                     cmocka_unit_test(differences_are_found),
                                     cmocka_unit_test(results_are_written),
                                     cmocka_unit_test(batches),
                                     cmocka_unit_test(npy_variants),
                                     cmocka_unit_test(bad_npy_files),
                                     cmocka_unit_test(bad_safetensors_files),
                                     cmocka_unit_test(other_tensors),
                                     cmocka_unit_test(signals_leave_nothing),
                                     cmocka_unit_test(verify_and_bench),
                                     cmocka_unit_test(charts)};
  char directory[] = "/tmp/detgemm-cli-XXXXXX";
  if (argc != 3 || mkdtemp(directory) == NULL || chdir(directory) != 0) return 99;
  tool = argv[1];
  vectors = argv[2];
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  DIR *here = opendir(".");
  for (struct dirent *entry; here && (entry = readdir(here)) != NULL;) unlink(entry->d_name);
  if (here) closedir(here);
  rmdir(directory);
  return failed;
}
