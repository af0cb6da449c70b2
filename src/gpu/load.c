/* Finds a platform's driver library and its functions. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "driver.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile bool used; /* a driver, by this process or the one it was forked from */
static volatile bool forked;

void dg_gpu_lock(void) { pthread_mutex_lock(&lock); }
void dg_gpu_unlock(void) { pthread_mutex_unlock(&lock); }

/* Another thread may hold the lock while a process forks. Waiting for it before the fork could wait
 * forever, since drivers fork too, to run helper programs, and hold locks of their own. In the
 * child what the lock protects is not used any more. */
static void in_child(void) {
  static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
  lock = unlocked;
  forked = used;
}

__attribute__((constructor)) static void prepare_for_forks(void) {
  pthread_atfork(NULL, NULL, in_child);
}

bool dg_gpu_forked(void) { return forked; }

void dg_gpu_mark_used(void) { used = true; }

static void *open_library(dg_gpu_platform *platform) {
  void *library = NULL;
  for (int i = 0; library == NULL && platform->libraries[i]; i++)
    library = dlopen(platform->libraries[i], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL)
    snprintf(platform->why, sizeof platform->why, "%s cannot be loaded; %s", platform->libraries[0],
             platform->no_library);
  return library;
}

static bool find_symbols(dg_gpu_platform *platform, void *library) {
  for (int i = 0; i < platform->symbol_count; i++) {
    const dg_gpu_symbol *s = &platform->symbols[i];
    void *address = dlsym(library, s->names[0]);
    if (address == NULL && s->names[1]) address = dlsym(library, s->names[1]);
    if (address == NULL && !s->optional) {
      snprintf(platform->why, sizeof platform->why,
               "%s has no %s; its driver is too old for this library: update it",
               platform->libraries[0], s->names[0]);
      return false;
    }
    memcpy((char *)&platform->driver + s->field, &address, sizeof address);
  }
  if (platform->adapt) platform->adapt(&platform->driver, library);
  return true;
}

static const char *name_of(const dg_gpu_platform *platform, int error) {
  const char *name = NULL;
  return platform->driver.error_name(error, &name) == 0 && name ? name : "unknown error";
}

static bool find_devices(dg_gpu_platform *platform) {
  enum { NO_DEVICE = 100 };
  int error = platform->driver.init(0);
  if (error == 0) error = platform->driver.device_count(&platform->count);
  if (error == 0 && platform->count == 0) error = NO_DEVICE;
  if (error == 0) return true;
  platform->count = 0;
  snprintf(platform->why, sizeof platform->why, "the %s driver finds no device: %s (%d); %s",
           platform->title, name_of(platform, error), error, platform->no_device);
  return false;
}

bool dg_gpu_load(dg_gpu_platform *platform) {
  if (platform->tried) return platform->why[0] == '\0';
  platform->tried = true;
  if (platform->row(0)->image == NULL) {
    snprintf(platform->why, sizeof platform->why, "this build has no %s kernels; %s",
             platform->title, platform->no_images);
    return false;
  }
  const bool before = used;
  used = true;                            /* from before the library's own initialisation */
  void *library = open_library(platform); /* stays loaded: drivers do not like to be unloaded */
  if (library == NULL) used = before;
  if (library == NULL || !find_symbols(platform, library)) return false;
  return find_devices(platform);
}

dg_status dg_gpu_fail(const dg_gpu_platform *platform, int error, const char *call) {
  enum { OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, DEINITIALIZED = 4 };
  enum {
    INVALID_IMAGE = 200,
    NO_BINARY = 209,
    INVALID_PTX = 218,
    PTX_VERSION = 222,
    INVALID_HANDLE = 400
  };
  enum { ILLEGAL_ADDRESS = 700, DESTROYED = 709, LAUNCH_FAILED = 719 };
  const char *name = name_of(platform, error),
             *hint = "see the driver's documentation of this error";
  switch (error) {
    case OUT_OF_MEMORY:
      return dg_fail(DG_ERROR_MEMORY, "%s failed: %s (%d); free memory of the device and try again",
                     call, name, error);
    case DG_GPU_INVALID_VALUE:
    case DG_GPU_OUT_OF_RESOURCES: hint = "this device cannot do it"; break;
    case NOT_INITIALIZED:
    case DEINITIALIZED: hint = "the driver is not running in this process (any more)"; break;
    case INVALID_IMAGE:
    case NO_BINARY:
    case INVALID_PTX:
    case PTX_VERSION: hint = "the library's kernels do not suit this device or its driver"; break;
    case INVALID_HANDLE: hint = "pass a live stream of this device"; break;
    case DESTROYED: hint = "the device was reset; close and open it again"; break;
    default:
      if (error >= ILLEGAL_ADDRESS && error <= LAUNCH_FAILED)
        hint =
            "an earlier kernel of this process failed, whoever launched it, and the device is "
            "lost to the process: restart it";
  }
  return dg_fail(DG_ERROR_DEVICE, "%s failed: %s (%d); %s", call, name, error, hint);
}
