/* Makes the tool one whose GPU is a double: the portable kernels run natively on this processor,
 * the others are computed by the scalar reference. FAKE_LIBRARY names the double's library, which
 * must be the first of that name in LD_LIBRARY_PATH. Linked with the tool's own files. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "../src/order.h"
#include "native_kernels.h"

static void execute(const fake_launch *launch) {
  if (native_has(launch->symbol)) native_run(launch);
  else dg_reference_run(launch->parameters[0]);
}

__attribute__((constructor)) static void prepare(void) {
  const char *name = getenv("FAKE_LIBRARY");
  void *library = dlopen(name ? name : "no library", RTLD_NOW);
  fake_driver *fake = library ? dlsym(library, "fake_driver_state") : NULL;
  if (fake == NULL) {
    fprintf(stderr, "FAKE_LIBRARY is no double of a driver\n");
    exit(2);
  }
  fake->devices = 1;
  fake->execute = execute;
}
