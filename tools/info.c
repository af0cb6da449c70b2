/* detgemm info: devices, their kernels, and what is withheld and why. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "device_memory.h"
#include "tool.h"

static const char help[] =
    "usage: detgemm info [--device NAME] [--json]\n"
    "\n"
    "Lists the devices of this machine, the kernels of each order on them, and what is withheld\n"
    "or missing and why.\n"
    "\n"
    "  -d, --device NAME  only this device (cpu, cuda:0, ...); of a GPU also what opening it took\n"
    "      --json         machine-readable output\n"
    "  -h, --help         this text\n";

static json_t *describe_kernels(const dg_device *device) {
  json_t *kernels = json_array();
  dg_kernel_info k;
  for (int i = 0; dg_kernel_at(device, i, &k) == DG_OK; i++)
    json_array_append_new(
        kernels, json_pack("{s:s, s:s, s:b, s:o}", "name", k.name, "order", order_name(k.order),
                           "used", k.withheld == NULL, "withheld", answer_text(k.withheld)));
  return kernels;
}

/* Seconds that the first opening of a device takes in a process, by what they go to. */
typedef struct opening {
  double driver, context, kernels, probe;
} opening;

static bool is_there(const char *name) {
  for (int i = 0; i < dg_device_count(); i++)
    if (strcmp(dg_device_name_at(i), name) == 0) return true;
  return false;
}

/* Opens a GPU in steps: a device that is not there, for which the driver is loaded all the same;
 * the context, held beside the library; the device; the device again, which is not probed again. */
static dg_device *open_in_steps(const char *name, opening *o) {
  const int length = (int)strcspn(name, ":");
  char nobody[48], full[48];
  device_memory memory;
  dg_device *device;
  snprintf(nobody, sizeof nobody, "%.*s:9999", length, name);
  snprintf(full, sizeof full, "%s%s", name, name[length] ? "" : ":0");
  double begin = now();
  if (dg_device_open(nobody, &device) == DG_OK) dg_device_close(device);
  o->driver = now() - begin;
  if (!is_there(full)) return NULL;
  begin = now();
  if (!device_memory_open(&memory, full)) return NULL;
  o->context = now() - begin;
  begin = now();
  if (dg_device_open(full, &device) == DG_OK) {
    o->probe = now() - begin;
    dg_device_close(device);
    begin = now();
    if (dg_device_open(full, &device) != DG_OK) device = NULL;
    o->kernels = now() - begin;
    o->probe -= o->kernels;
  }
  device_memory_close(&memory);
  return device;
}

static json_t *describe_opening(const opening *o) {
  return json_pack("{s:f, s:f, s:f, s:f}", "driver", o->driver, "context", o->context, "kernels",
                   o->kernels, "probe", o->probe);
}

static bool is_gpu(const char *name) {
  return strncmp(name, "cuda", 4) == 0 || strncmp(name, "musa", 4) == 0 ||
         strncmp(name, "hip", 3) == 0;
}

/* alone: nothing of the device has been used in this process. */
static json_t *describe(const char *name, bool alone) {
  opening o;
  dg_device *device = alone && is_gpu(name) ? open_in_steps(name, &o) : NULL;
  const bool timed = device != NULL;
  if (!timed && dg_device_open(name, &device) != DG_OK)
    return json_pack("{s:o, s:b, s:o}", "name", answer_text(name), "available", 0, "reason",
                     answer_text(dg_last_error()));
  json_t *d = json_pack("{s:s, s:b, s:o, s:o}", "name", dg_device_name(device), "available", 1,
                        "description", answer_text(dg_device_description(device)), "kernels",
                        describe_kernels(device));
  if (timed) json_object_set_new(d, "opening_seconds", describe_opening(&o));
  dg_device_close(device);
  return d;
}

static bool starts_with(const char *name, const char *platform) {
  const size_t length = strlen(platform);
  return strncmp(name, platform, length) == 0 && (name[length] == ':' || name[length] == '\0');
}

/* All devices there are, and for each platform without one the reason. */
static json_t *describe_all(void) {
  static const char *const all[] = {"cpu", "cuda", "musa", "hip", "opencl"};
  json_t *devices = json_array();
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
    bool any = false;
    for (int n = 0; n < dg_device_count(); n++) {
      char name[40];
      snprintf(name, sizeof name, "%s", dg_device_name_at(n));
      if (!starts_with(name, all[i])) continue;
      any = true;
      json_array_append_new(devices, describe(name, false));
    }
    if (!any) json_array_append_new(devices, describe(all[i], false));
  }
  return devices;
}

static const char *get(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text ? text : "";
}

static double milliseconds(const json_t *seconds, const char *key) {
  return 1e3 * json_real_value(json_object_get(seconds, key));
}

static void print_device(const json_t *d) {
  size_t i;
  json_t *k;
  const json_t *o = json_object_get(d, "opening_seconds");
  if (!json_is_true(json_object_get(d, "available"))) {
    printf("%-8s  not available: %s\n", get(d, "name"), get(d, "reason"));
    return;
  }
  printf("%-8s  %s\n", get(d, "name"), get(d, "description"));
  if (o)
    printf("  opened in %.0f ms: driver %.0f, context %.0f, kernels %.0f, probe %.0f\n",
           milliseconds(o, "driver") + milliseconds(o, "context") + milliseconds(o, "kernels") +
               milliseconds(o, "probe"),
           milliseconds(o, "driver"), milliseconds(o, "context"), milliseconds(o, "kernels"),
           milliseconds(o, "probe"));
  json_array_foreach(json_object_get(d, "kernels"), i, k) {
    const bool used = json_is_true(json_object_get(k, "used"));
    printf("  %-5s %-24s %s%s\n", get(k, "order"), get(k, "name"),
           used ? "ready" : "withheld: ", get(k, "withheld"));
  }
}

static void print_text(const json_t *info) {
  size_t i;
  json_t *d;
  printf("detgemm %s, ABI %d\n", get(info, "version"), dg_abi());
  static const char *const variables[] = {"DETGEMM_CPU", "DETGEMM_KERNEL"};
  for (int v = 0; v < 2; v++)
    if (getenv(variables[v])) printf("%s=%s is set\n", variables[v], getenv(variables[v]));
  json_array_foreach(json_object_get(info, "devices"), i, d) print_device(d);
}

static bool available(const json_t *info) {
  return json_is_true(
      json_object_get(json_array_get(json_object_get(info, "devices"), 0), "available"));
}

int command_info(int argc, char **argv) {
  static const struct option options[] = {{"device", required_argument, NULL, 'd'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
  const char *device = NULL;
  bool json = false;
  for (int c; (c = next_option(argc, argv, ":d:h", options)) != -1;) switch (c) {
      case 'd': device = optarg; break;
      case 'j': json = true; break;
      case 'h': fputs(help, stdout); return EXIT_GOOD;
      default: return EXIT_BAD;
    }
  if (optind != argc) return usage_error("info", "info takes no operand");
  json_t *devices = device ? json_pack("[o]", describe(device, true)) : describe_all();
  json_t *info =
      json_pack("{s:s, s:i, s:o}", "version", dg_version(), "abi", dg_abi(), "devices", devices);
  const bool missing = device && !available(info);
  if (missing) complain("%s", get(json_array_get(devices, 0), "reason"));
  else if (!json) print_text(info);
  if (json) answer_json(info);
  else json_decref(info);
  return missing ? EXIT_BAD : EXIT_GOOD;
}
