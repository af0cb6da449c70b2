#include "device_memory.h"

#include <stdlib.h>
#include <string.h>

#include "tool.h"

static bool host_open(device_memory *memory, int index) {
  (void)index;
  memory->state = NULL;
  return true;
}

static void host_close(device_memory *memory) { (void)memory; }

static void *host_alloc(device_memory *memory, size_t bytes) {
  (void)memory;
  void *data = malloc(bytes ? bytes : 1);
  if (data == NULL) complain("no memory for %zu bytes", bytes);
  return data;
}

static void host_release(device_memory *memory, void *data) {
  (void)memory;
  free(data);
}

static bool host_copy(device_memory *memory, void *to, const void *from, size_t bytes) {
  (void)memory;
  if (bytes) memcpy(to, from, bytes);
  return true;
}

static bool host_sync(device_memory *memory) {
  (void)memory;
  return true;
}

static const memory_platform memory_host = {"cpu",        host_open, host_close, host_alloc,
                                            host_release, host_copy, host_copy,  host_sync};

/* OpenCL devices take host memory. Elements must be aligned, as on a GPU. */
static const memory_platform memory_opencl = {"opencl",     host_open, host_close, host_alloc,
                                              host_release, host_copy, host_copy,  host_sync};

static const memory_platform *const platforms[] = {&memory_host, &memory_cuda, &memory_musa,
                                                   &memory_hip, &memory_opencl};

static const memory_platform *platform_of(const char *device) {
  const size_t length = strcspn(device, ":");
  for (size_t i = 0; i < sizeof platforms / sizeof platforms[0]; i++)
    if (strlen(platforms[i]->name) == length && memcmp(platforms[i]->name, device, length) == 0)
      return platforms[i];
  return NULL;
}

bool device_memory_known(const char *device) { return platform_of(device) != NULL; }

bool device_memory_open(device_memory *memory, const char *device) {
  const char *colon = strchr(device, ':');
  memory->platform = platform_of(device);
  if (memory->platform == NULL) {
    complain("%s: this tool cannot allocate memory on that device", device);
    return false;
  }
  if (memory->platform->open(memory, colon ? atoi(colon + 1) : 0)) return true;
  memory->platform = NULL;
  return false;
}

void device_memory_close(device_memory *memory) {
  if (memory->platform) memory->platform->close(memory);
  memory->platform = NULL;
}

bool device_memory_is_host(const device_memory *memory) { return memory->platform == &memory_host; }

bool device_memory_takes_host(const device_memory *memory) {
  return memory->platform == &memory_host || memory->platform == &memory_opencl;
}

void *device_memory_copy(device_memory *memory, const void *host, size_t bytes) {
  void *data = memory->platform->alloc(memory, bytes ? bytes : 1);
  if (data != NULL && !memory->platform->to_device(memory, data, host, bytes)) {
    memory->platform->release(memory, data);
    return NULL;
  }
  return data;
}
