#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "npy.h"
#include "safetensors.h"
#include "tool.h"

/* The temporary file to remove when a signal ends the process; set with signals blocked. */
static char temporary[4096];

static const int fatal[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGXFSZ};
enum { FATAL = sizeof fatal / sizeof fatal[0] };

static void remove_temporary(int number) {
  if (temporary[0]) unlink(temporary);
  signal(number, SIG_DFL);
  raise(number);
}

static void catch_signals(void) {
  struct sigaction action = {.sa_handler = remove_temporary};
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < FATAL; i++) {
    struct sigaction old;
    if (sigaction(fatal[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
      sigaction(fatal[i], &action, NULL);
  }
}

static void block_signals(sigset_t *old) {
  sigset_t set;
  sigemptyset(&set);
  for (int i = 0; i < FATAL; i++) sigaddset(&set, fatal[i]);
  sigprocmask(SIG_BLOCK, &set, old);
}

/* The length of the folder's part of a path, with its last '/'. */
static int folder_length(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? (int)(slash + 1 - path) : 0;
}

/* Creates ".detgemm-XXXXXX" in the destination's folder, with the mode a new file would get. */
static int create(const char *path) {
  char name[sizeof temporary];
  if ((size_t)snprintf(name, sizeof name, "%.*s.detgemm-XXXXXX", folder_length(path), path) >=
      sizeof name) {
    errno = ENAMETOOLONG;
    return -1;
  }
  sigset_t old;
  catch_signals();
  block_signals(&old);
  const int fd = mkostemp(name, O_CLOEXEC);
  if (fd >= 0) memcpy(temporary, name, sizeof temporary);
  sigprocmask(SIG_SETMASK, &old, NULL);
  const mode_t mask = umask(0);
  umask(mask);
  if (fd >= 0) (void)!fchmod(fd, 0666 & ~mask);
  return fd;
}

/* Renames the temporary file to its destination, or removes it. */
static bool finish(const char *path, int fd, bool good) {
  int error = errno;
  if (close(fd) != 0 && good) {
    error = errno;
    good = false;
  }
  sigset_t old;
  block_signals(&old);
  if (good && rename(temporary, path) != 0) {
    error = errno;
    good = false;
  }
  if (!good) unlink(temporary);
  temporary[0] = '\0';
  sigprocmask(SIG_SETMASK, &old, NULL);
  if (!good) complain("%s: %s", path, strerror(error));
  return good;
}

static bool write_all(int fd, const char *data, size_t bytes) {
  while (bytes > 0) {
    const size_t part = bytes < (1u << 30) ? bytes : (1u << 30);
    const ssize_t written = write(fd, data, part);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    data += written;
    bytes -= (size_t)written;
  }
  return true;
}

/* Hands the elements in C order and little-endian to sink, a block at a time. */
static bool each_block(const tensor *t, bool (*sink)(void *, const void *, size_t), void *context) {
  enum { BLOCK = 8192 };
  unsigned char block[4 * BLOCK];
  const int64_t count = tensor_count(t), size = dtype_bytes(t->dtype);
  for (int64_t first = 0; first < count; first += BLOCK) {
    const int64_t part = count - first < BLOCK ? count - first : BLOCK;
    for (int64_t i = 0; i < part; i++) {
      const uint32_t bits = tensor_bits(t, first + i);
      for (int64_t b = 0; b < size; b++) block[i * size + b] = (unsigned char)(bits >> (8 * b));
    }
    if (!sink(context, block, (size_t)(part * size))) return false;
  }
  return true;
}

static bool to_file(void *context, const void *data, size_t bytes) {
  return write_all(*(const int *)context, data, bytes);
}

static bool to_digest(void *context, const void *data, size_t bytes) {
  return EVP_DigestUpdate(context, data, bytes) == 1;
}

/* The path of spec, and the tensor name in it if it is a safetensors file. NULL: neither format. */
static char *split(const char *spec, const char **name) {
  const char *colon = strstr(spec, ".safetensors:");
  const size_t length = strlen(spec);
  *name = NULL;
  if (colon) {
    *name = colon + strlen(".safetensors:");
    return strndup(spec, (size_t)(*name - spec) - 1);
  }
  if (length > 12 && strcmp(spec + length - 12, ".safetensors") == 0) *name = "out";
  else if (length <= 4 || strcmp(spec + length - 4, ".npy") != 0) return NULL;
  return strdup(spec);
}

bool output_check_path(const char *path) {
  char folder[sizeof temporary];
  struct stat info;
  int error = 0;
  if ((size_t)snprintf(folder, sizeof folder, "%.*s.", folder_length(path), path) >= sizeof folder)
    error = ENAMETOOLONG;
  else if (access(folder, W_OK | X_OK) != 0) error = errno;
  else if (stat(path, &info) == 0) error = S_ISDIR(info.st_mode) ? EISDIR : 0;
  else if (errno != ENOENT) error = errno;
  if (error != 0) complain("%s: %s", path, strerror(error));
  return error == 0;
}

/* Whether a tensor may have that name: UTF-8, and not the one the format keeps for itself. */
static bool is_tensor_name(const char *name) {
  json_t *text = json_string(name);
  json_decref(text);
  return text != NULL && *name && strcmp(name, "__metadata__") != 0;
}

bool output_check(const char *spec) {
  const char *name;
  char *path = split(spec, &name);
  bool good = path != NULL && (name == NULL || is_tensor_name(name));
  if (!good) complain("\"%s\" names no output; write FILE.safetensors[:TENSOR] or FILE.npy", spec);
  good = good && output_check_path(path);
  free(path);
  return good;
}

bool output_write(const char *spec, const tensor *t) {
  const char *name;
  size_t bytes = 0;
  char *path = split(spec, &name);
  void *head = name ? safetensors_head(t, name, &bytes) : npy_head(t, &bytes);
  bool good = path != NULL && head != NULL;
  if (!good) complain("%s: no memory", spec);
  if (good) {
    int fd = create(path);
    if (fd < 0) {
      complain("%s: %s", path, strerror(errno));
      good = false;
    } else {
      good = finish(path, fd, write_all(fd, head, bytes) && each_block(t, to_file, &fd));
    }
  }
  free(head);
  free(path);
  return good;
}

bool output_text(const char *path, const char *text) {
  const int fd = create(path);
  if (fd >= 0) return finish(path, fd, write_all(fd, text, strlen(text)));
  complain("%s: %s", path, strerror(errno));
  return false;
}

bool output_digest(const tensor *t, char hex[65]) {
  unsigned char digest[32];
  EVP_MD_CTX *context = EVP_MD_CTX_new();
  const bool good = context != NULL && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1 &&
                    each_block(t, to_digest, context) &&
                    EVP_DigestFinal_ex(context, digest, NULL) == 1;
  EVP_MD_CTX_free(context);
  for (int i = 0; good && i < 32; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
  if (!good) complain("SHA-256 failed in libcrypto");
  return good;
}
