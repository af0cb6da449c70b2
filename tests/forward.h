/* What the test doubles share that hand a vendor's driver calls to an NVIDIA driver: with NVIDIA
 * images in place of the vendor's, that back end's host path runs on an NVIDIA GPU. */
#ifndef DETGEMM_FORWARD_H
#define DETGEMM_FORWARD_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

static void *find(const char *name) {
  static void *library;
  if (library == NULL) library = dlopen("libcuda.so.1", RTLD_NOW);
  void *address = library ? dlsym(library, name) : NULL;
  if (address == NULL) {
    fprintf(stderr, "the double finds no %s in libcuda.so.1\n", name);
    abort();
  }
  return address;
}

typedef unsigned long long word;
typedef int call(word, word, word, word, word, word);

/* All arguments are integers and pointers, which travel alike. */
#define FORWARD(name, cuda)                                  \
  EXPORT int name(word, word, word, word, word, word);       \
  int name(word a, word b, word c, word d, word e, word f) { \
    static call *to;                                         \
    if (to == NULL) *(void **)&to = find(cuda);              \
    return to(a, b, c, d, e, f);                             \
  }

/* cuLaunchKernel has more arguments. */
#define FORWARD_LAUNCH(name)                                                                       \
  EXPORT int name(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,    \
                  void *, void **, void **);                                                       \
  int name(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,  \
           unsigned shared, void *stream, void **parameters, void **extra) {                       \
    static int (*to)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
                     void *, void **, void **);                                                    \
    if (to == NULL) *(void **)&to = find("cuLaunchKernel");                                        \
    return to(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);                       \
  }

/* By CUDA's number. */
static inline int cuda_attribute(int *value, int attribute, int device) {
  static int (*to)(int *, int, int);
  if (to == NULL) *(void **)&to = find("cuDeviceGetAttribute");
  return to(value, attribute, device);
}

#endif
