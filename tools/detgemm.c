/* The command-line tool: finds the command and runs it. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "answer.h"
#include "tool.h"

static const struct {
  const char *name, *summary;
  int (*run)(int argc, char **argv);
} commands[] = {
    {"info", "devices, kernels, and what is withheld and why", command_info},
    {"matmul", "multiply two tensors from files", command_matmul},
    {"compare", "are two tensors the same bits?", command_compare},
    {"verify", "prove the promises on this machine", command_verify},
    {"bench", "measure speed, beside a peer and the machine's limits", command_bench},
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static void print_help(void) {
  puts(
      "usage: detgemm COMMAND ...\n\nMatrix products whose bits are defined by a written order.\n");
  for (int i = 0; i < COMMANDS; i++) printf("  %-8s  %s\n", commands[i].name, commands[i].summary);
  puts(
      "\ndetgemm COMMAND --help explains a command; detgemm --version prints the version.\n"
      "Exit status: 0 good, 1 bits differ, 2 bad usage or input.");
}

/* A standard stream that is closed would give its number to the next file that is opened, and
 * output would go there. In its place comes one that fails. */
static void fill_streams(void) {
  for (int fd = 0; fd <= 2; fd++)
    if (fcntl(fd, F_GETFD) < 0) (void)!open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

static int run(int argc, char **argv) {
  if (argc < 2) return complain("no command; see detgemm --help");
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
      strcmp(argv[1], "help") == 0) {
    print_help();
    return EXIT_GOOD;
  }
  if (strcmp(argv[1], "--version") == 0) {
    printf("detgemm %s\n", dg_version());
    return EXIT_GOOD;
  }
  for (int i = 0; i < COMMANDS; i++)
    if (strcmp(argv[1], commands[i].name) == 0) return commands[i].run(argc - 1, argv + 1);
  return complain("\"%s\" is no command; see detgemm --help", argv[1]);
}

int main(int argc, char **argv) {
  fill_streams();
  answer_begin(argc, argv);
  return answer_end(run(argc, argv));
}
