/* The driver API of a GPU platform as the executor sees it. The platforms' APIs are one design
 * under different names, so each fills this table from its library at run time; the prototypes are
 * ours, no vendor header is needed. */
#ifndef DETGEMM_GPU_DRIVER_H
#define DETGEMM_GPU_DRIVER_H

#include "../internal.h"
#include "gpu.h"

/* CUlaunchConfig and CUlaunchAttribute. */
typedef struct dg_gpu_attribute {
  int id, padding;
  union {
    uint32_t cluster[3];
    int32_t overlap;
    char bytes[64];
  } value;
} dg_gpu_attribute;

typedef struct dg_gpu_config {
  uint32_t grid[3], block[3], shared_bytes;
  void *stream;
  dg_gpu_attribute *attributes;
  uint32_t attribute_count;
} dg_gpu_config;

/* CUtensorMap. */
typedef struct dg_gpu_tensor_map {
  _Alignas(64) uint64_t opaque[16];
} dg_gpu_tensor_map;

/* Contexts, modules, functions and streams are void *. All but error_name return the driver's error
 * number, 0 for success. Where a platform has no such function the field stays NULL if it is said
 * to be optional here, and a platform whose function looks different puts its own wrapper in. */
typedef struct dg_gpu_driver {
  int (*init)(unsigned flags);
  int (*error_name)(int error, const char **name);
  int (*version)(int *version); /* 1000 * major + 10 * minor */
  int (*device_count)(int *count);
  int (*device_get)(int *device, int index);
  int (*device_name)(char *name, int size, int device);
  int (*device_attribute)(int *value, int attribute, int device);
  int (*context_retain)(void **context, int device); /* the device's primary context */
  int (*context_release)(int device);
  int (*context_get)(void **context);
  int (*context_push)(void *context);
  int (*context_pop)(void **context);
  int (*module_load)(void **module, const void *image);
  int (*module_unload)(void *module);
  int (*module_function)(void **function, void *module, const char *symbol);
  int (*function_get)(int *value, int attribute, void *function); /* optional */
  int (*function_set)(void *function, int attribute, int value);  /* optional */
  int (*launch)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream,
                void **parameters, void **extra);
  int (*launch_config)(const dg_gpu_config *config, void *function, void **parameters,
                       void **extra); /* optional: clusters and overlap */
  int (*encode_map)(dg_gpu_tensor_map *map, int type, uint32_t rank, void *base,
                    const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
                    const uint32_t *element_strides, int interleave, int swizzle, int promotion,
                    int fill); /* optional: tensor maps */
  int (*pointer_get)(unsigned count, const int *attributes, void **values,
                     void *pointer); /* optional: what an unknown pointer has is zero */
  int (*pointer_get_one)(void *value, int attribute,
                         void *pointer); /* optional, instead: an unknown pointer is an error */
  int (*alloc)(void **data, size_t bytes);
  int (*release)(void *data);
  int (*copy_in)(void *to, const void *from, size_t bytes);
  int (*copy_out)(void *to, const void *from, size_t bytes);
} dg_gpu_driver;

/* Where a field of the table comes from: the first of the names that the library exports. */
typedef struct dg_gpu_symbol {
  size_t field; /* offsetof */
  const char *names[2];
  bool optional;
} dg_gpu_symbol;

/* What a platform calls its attributes. */
typedef struct dg_gpu_attributes {
  int major, minor, multiprocessors, shared_optin;     /* of a device */
  int function_static_shared, function_dynamic_shared; /* of a function */
  int pageable;                                        /* of a device: it reads any host memory */
  int pointer_type, pointer_device, pointer_access, pointer_managed; /* of a pointer */
} dg_gpu_attributes;

/* A platform: constants, and what loading its driver gave, once per process. */
typedef struct dg_gpu_platform {
  const char *name;         /* the device name before the colon */
  const char *title;        /* "CUDA" */
  const char *capability;   /* what it calls facts.arch: "compute capability" */
  const char *no_library;   /* what to do where there is no driver library */
  const char *no_device;    /* what to do where the driver finds no device */
  const char *no_images;    /* how to get kernels into a build without them */
  const char *libraries[5]; /* tried in turn, up to the first NULL */
  const dg_gpu_symbol *symbols;
  int symbol_count;
  dg_gpu_attributes attributes;
  const dg_gpu_kernel *(*row)(int index); /* NULL past the end */
  const char *(*unmeasured)(int order);   /* why an order's rows are tied to their architectures */
  /* Puts wrappers over functions that look different in this platform's library; NULL: none do. */
  void (*adapt)(dg_gpu_driver *driver, void *library);
  /* Sets *why to the reason why what a device says of itself cannot be believed, if there is one;
   * returns the driver's error. NULL: everything is believed. */
  int (*doubt)(const dg_gpu_driver *driver, int device, dg_gpu_facts *facts, const char **why);

  /* below: under dg_gpu_lock() */
  bool tried;
  char why[320]; /* why the driver is not to be had; empty: it is */
  int count;     /* devices */
  dg_gpu_driver driver;
  struct dg_gpu_state *devices[16]; /* opened once at least; kept for the process */
} dg_gpu_platform;

/* A device of the process, shared by its handles. The verdicts of the probe outlive the rest. */
typedef struct dg_gpu_state {
  dg_gpu_platform *platform;
  int device, handles;
  void *context;
  dg_gpu_facts facts;
  bool check_pointers;
  int memory_type; /* what pointer_get_one calls the device's own memory */
  char description[160];
  void *images[DG_GPU_MAX_ROWS], *modules[DG_GPU_MAX_ROWS]; /* loaded, with the image of each */
  int module_count;
  void *functions[DG_GPU_MAX_ROWS]; /* by row; NULL: not here */
  dg_verdict verdicts[DG_GPU_MAX_ROWS];
} dg_gpu_state;

/* load.c: one lock for loading drivers, opening and closing. */
void dg_gpu_lock(void);
void dg_gpu_unlock(void);

/* load.c: loads the driver once; on failure platform->why says what is missing. Call with the lock
 * held. */
bool dg_gpu_load(dg_gpu_platform *platform);

/* load.c: whether this process was forked after its parent had loaded a driver, which no GPU driver
 * survives. */
bool dg_gpu_forked(void);

/* load.c: to be called before a driver is used in another way than by dg_gpu_load(). */
void dg_gpu_mark_used(void);

/* Errors of a launch that speak of the kernel and not of the device. */
enum { DG_GPU_INVALID_VALUE = 1, DG_GPU_OUT_OF_RESOURCES = 701 };

/* load.c: a failed driver call as a status and a sentence. */
dg_status dg_gpu_fail(const dg_gpu_platform *platform, int error, const char *call);

/* open.c: the back end's functions of one platform. */
int dg_gpu_count(dg_gpu_platform *platform);
dg_status dg_gpu_open(dg_gpu_platform *platform, dg_device *device, int index);
void dg_gpu_close(dg_device *device);

/* What a row needs to compute a problem, and the problem again at other addresses. */
typedef struct dg_gpu_plan {
  int kernel;
  bool exchanged; /* the problem is to be exchanged first */
  dg_gpu_launch launch;
  const void *mapped[2]; /* what the maps were encoded for; NULL: not yet */
  dg_gpu_tensor_map maps[2];
} dg_gpu_plan;

/* run.c: the rest of them. */
dg_status dg_gpu_choose(const dg_device *device, const dg_problem *p, int *kernel);

/* recall.c: dg_gpu_choose, remembered. */
dg_status dg_gpu_recall(const dg_device *device, const dg_problem *p, int *kernel);

/* recall.c: the plan of the calling thread's last such choice, or NULL: there is none that suits p
 * and kernel. It is the thread's own. */
dg_gpu_plan *dg_gpu_recall_plan(const dg_device *device, const dg_problem *p, int kernel);

/* run.c: plans a row's launch; false: it does not take p. */
bool dg_gpu_make_plan(const dg_device *device, const dg_problem *p, int kernel, dg_gpu_plan *plan);

bool dg_gpu_takes(const dg_device *device, const dg_problem *p, int kernel);
dg_status dg_gpu_run(dg_device *device, const dg_problem *p, int kernel, void *stream);

/* run.c: a GPU faults where a CPU would not: element alignment is checked, once per call. */
dg_status dg_gpu_check_alignment(const dg_problem *p);

/* run.c: launches a row in the device's context. p: the problem, already exchanged where the plan
 * says so; first: the kernel's first parameter, which is p or holds it; offsets: of a grouped
 * product, or NULL. */
dg_status dg_gpu_execute(dg_device *device, dg_gpu_plan *plan, const dg_problem *p, void *first,
                         const void *offsets, void *stream);

/* pointers.c: whether the device can use the memory of a product. */
dg_status dg_gpu_check_pointers(const dg_device *device, const dg_problem *p, const void *offsets);

/* pointers.c: asks the driver about memory that is known, in the device's context: its pointers are
 * checked where the answers are right. Returns the driver's error. */
int dg_gpu_try_pointers(dg_gpu_state *state);

/* grouped.c */
dg_status dg_gpu_run_grouped(dg_device *device, const dg_grouped *g, void *stream);

/* run.c: makes the device's context current. *pushed tells whether to call leave. */
int dg_gpu_enter(const dg_gpu_state *state, bool *pushed);
void dg_gpu_leave(const dg_gpu_state *state, bool pushed);

#endif
