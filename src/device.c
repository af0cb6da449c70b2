/* Device names and handles. */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* Back ends that exist in the source, so that a name this build lacks gets a better answer than a
 * misspelt one. */
static const struct {
  const char *name, *option;
} platforms[] = {{"musa", "DETGEMM_MUSA"}, {"hip", "DETGEMM_HIP"}, {"opencl", "DETGEMM_OPENCL"}};

static dg_status no_such_backend(const char *name, size_t length) {
  for (size_t i = 0; i < sizeof platforms / sizeof platforms[0]; i++)
    if (strlen(platforms[i].name) == length && memcmp(platforms[i].name, name, length) == 0)
      return dg_fail(DG_ERROR_DEVICE,
                     "device \"%.60s\": this build has no %s back end; configure it with -D%s=ON",
                     name, platforms[i].name, platforms[i].option);
  return dg_fail(DG_ERROR_ARGUMENT,
                 "device \"%.60s\" names no back end; names are \"cpu\", \"cuda:0\", \"musa:0\", "
                 "\"hip:0\", \"opencl:0\"",
                 name);
}

static dg_status parse(const char *name, const dg_backend **backend, int *index) {
  const char *colon = strchr(name, ':');
  const size_t length = colon ? (size_t)(colon - name) : strlen(name);
  *backend = NULL;
  *index = 0;
  for (int i = 0; i < dg_backend_count; i++)
    if (strlen(dg_backends[i]->name) == length && memcmp(dg_backends[i]->name, name, length) == 0)
      *backend = dg_backends[i];
  if (*backend == NULL) return no_such_backend(name, length);
  if (colon == NULL) return DG_OK;
  char *end;
  long number = strtol(colon + 1, &end, 10);
  if (colon[1] < '0' || colon[1] > '9' || *end || number > 9999 ||
      (number && !(*backend)->numbered))
    return dg_fail(DG_ERROR_ARGUMENT, "device \"%.60s\": \"%.40s\" is no device number; use %s%s",
                   name, colon + 1, (*backend)->name, (*backend)->numbered ? ":0, :1, ..." : "");
  *index = (int)number;
  return DG_OK;
}

dg_status dg_device_open(const char *name, dg_device **device) {
  const dg_backend *backend;
  int index;
  if (device == NULL) return dg_fail(DG_ERROR_ARGUMENT, "device is NULL; pass where to put it");
  *device = NULL;
  if (name == NULL) return dg_fail(DG_ERROR_ARGUMENT, "name is NULL; pass \"cpu\" or another name");
  dg_status status = parse(name, &backend, &index);
  if (status == DG_OK) status = dg_canary();
  if (status != DG_OK) return status;

  dg_device *d = calloc(1, sizeof *d);
  if (d == NULL) return dg_fail(DG_ERROR_MEMORY, "no memory for a device handle");
  static atomic_uint_least64_t opened;
  d->backend = backend;
  d->serial = atomic_fetch_add(&opened, 1) + 1;
  if (backend->numbered) snprintf(d->name, sizeof d->name, "%s:%d", backend->name, index);
  else snprintf(d->name, sizeof d->name, "%s", backend->name);
  status = backend->open(d, index);
  if (status != DG_OK) {
    dg_device_close(d);
    return status;
  }
  *device = d;
  return DG_OK;
}

void dg_device_close(dg_device *device) {
  if (device == NULL) return;
  device->backend->close(device);
  free(device->kernels);
  free(device);
}

dg_status dg_device_list_kernels(dg_device *device, int count,
                                 void (*row)(const dg_device *device, int index,
                                             dg_kernel_info *info)) {
  const char *pattern = getenv("DETGEMM_KERNEL");
  if (pattern != NULL && *pattern == '\0') pattern = NULL;
  bool any = pattern == NULL;
  device->kernels = calloc((size_t)count + 1, sizeof *device->kernels);
  if (device->kernels == NULL) return dg_fail(DG_ERROR_MEMORY, "no memory for a kernel list");
  device->kernel_count = count;
  for (int i = 0; i < count; i++) {
    row(device, i, &device->kernels[i]);
    if (pattern == NULL) continue;
    if (fnmatch(pattern, device->kernels[i].name, 0) == 0) any = true;
    else device->kernels[i].withheld = "its name does not match DETGEMM_KERNEL";
  }
  if (!any)
    return dg_fail(
        DG_ERROR_ARGUMENT,
        "DETGEMM_KERNEL=\"%.60s\" matches no kernel of %s; unset it, or take a name from "
        "`detgemm info`",
        pattern, device->name);
  return DG_OK;
}

dg_status dg_device_set_threads(dg_device *device, int threads) {
  if (device == NULL) return dg_fail(DG_ERROR_ARGUMENT, "device is NULL; open one first");
  if (threads < 0 || threads > 65536)
    return dg_fail(DG_ERROR_ARGUMENT, "threads is %d; it must be 0 (default) to 65536", threads);
  device->threads = threads;
  return DG_OK;
}

const char *dg_device_name(const dg_device *device) { return device ? device->name : ""; }

const char *dg_device_description(const dg_device *device) {
  return device ? device->description : "";
}

int dg_kernel_count(const dg_device *device) { return device ? device->kernel_count : 0; }

dg_status dg_kernel_at(const dg_device *device, int index, dg_kernel_info *info) {
  if (device == NULL || info == NULL)
    return dg_fail(DG_ERROR_ARGUMENT, "%s is NULL", device ? "info" : "device");
  if (index < 0 || index >= device->kernel_count)
    return dg_fail(DG_ERROR_ARGUMENT, "index is %d; %s has kernels 0 to %d", index, device->name,
                   device->kernel_count - 1);
  *info = device->kernels[index];
  return DG_OK;
}

int dg_device_count(void) {
  int count = 0;
  for (int i = 0; i < dg_backend_count; i++) count += dg_backends[i]->count();
  return count;
}

const char *dg_device_name_at(int index) {
  static _Thread_local char name[32];
  for (int i = 0; index >= 0 && i < dg_backend_count; i++) {
    const int count = dg_backends[i]->count();
    if (index < count) {
      if (!dg_backends[i]->numbered) return dg_backends[i]->name;
      snprintf(name, sizeof name, "%s:%d", dg_backends[i]->name, index);
      return name;
    }
    index -= count;
  }
  return NULL;
}
