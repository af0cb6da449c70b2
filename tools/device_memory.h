/* Memory of a device, for the commands: the library leaves memory to its caller. */
#ifndef DETGEMM_DEVICE_MEMORY_H
#define DETGEMM_DEVICE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

typedef struct device_memory device_memory;

/* One platform. Functions complain on failure. A new platform is one such table and one line in
 * device_memory_open(). */
typedef struct memory_platform {
  const char *name; /* the part of the device name before ':' */
  bool (*open)(device_memory *memory, int index);
  void (*close)(device_memory *memory);
  void *(*alloc)(device_memory *memory, size_t bytes);
  void (*release)(device_memory *memory, void *data);
  bool (*to_device)(device_memory *memory, void *device, const void *host, size_t bytes);
  bool (*to_host)(device_memory *memory, void *host, const void *device, size_t bytes);
  bool (*sync)(device_memory *memory);
} memory_platform;

struct device_memory {
  const memory_platform *platform;
  void *state;
};

/* Opens the memory of a device by the library's canonical name. Complains and returns false on
 * failure. */
bool device_memory_open(device_memory *memory, const char *device);

/* Whether there is a table for that device's platform. */
bool device_memory_known(const char *device);
void device_memory_close(device_memory *memory);

/* Whether it is the host's own memory. */
bool device_memory_is_host(const device_memory *memory);

/* Whether the device takes the host's memory: the CPU and OpenCL. */
bool device_memory_takes_host(const device_memory *memory);

/* A copy of host memory on the device, with at least one byte. NULL: failed (complained). */
void *device_memory_copy(device_memory *memory, const void *host, size_t bytes);

extern const memory_platform memory_cuda, memory_musa, memory_hip;

#endif
