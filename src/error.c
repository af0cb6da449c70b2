/* The last error of each thread. */
#include <stdarg.h>
#include <stdio.h>

#include "internal.h"

static _Thread_local char last_error[512];

/* One line of ASCII, whatever a device name or an environment variable held: users print it, parse
 * it and put it into JSON. */
dg_status dg_fail(dg_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(last_error, sizeof last_error, format, arguments);
  va_end(arguments);
  for (char *c = last_error; *c; c++)
    if (*c < 0x20 || *c > 0x7e) *c = '?';
  return status;
}

const char *dg_last_error(void) { return last_error; }

const char *dg_status_string(dg_status status) {
  switch (status) {
    case DG_OK: return "ok";
    case DG_ERROR_ARGUMENT: return "bad argument";
    case DG_ERROR_UNSUPPORTED: return "not supported here";
    case DG_ERROR_MEMORY: return "out of memory";
    case DG_ERROR_DEVICE: return "device error";
  }
  return "unknown status";
}
