/* detgemm._core: the C library for Python, in the limited API (one binary for Python 3.9 and
 * later).
 *
 * A view comes in as a tuple (address, dtype, rows, columns, row stride, column stride, batch
 * stride), strides in elements; None is a view that is not there. Addresses are plain integers, so
 * the same functions serve host and device memory; whoever calls keeps the memory alive. */
#include "_core.h"

/* ---- errors ---- */

PyObject *core_raise(dg_status status) {
  PyObject *type = PyExc_RuntimeError;
  if (status == DG_ERROR_ARGUMENT) type = PyExc_ValueError;
  if (status == DG_ERROR_UNSUPPORTED) type = PyExc_NotImplementedError;
  if (status == DG_ERROR_MEMORY) type = PyExc_MemoryError;
  PyErr_SetString(type, dg_last_error());
  return NULL;
}

/* ---- arguments ---- */

enum { VIEW_FIELDS = 7 };

static int read_view(const char *name, PyObject *tuple, dg_view *view) {
  int64_t fields[VIEW_FIELDS];
  if (tuple == Py_None) return 0;
  if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != VIEW_FIELDS) {
    PyErr_Format(PyExc_TypeError,
                 "%s must be None or a tuple (address, dtype, rows, columns, row stride, column "
                 "stride, batch stride)",
                 name);
    return -1;
  }
  PyObject *address = PyTuple_GetItem(tuple, 0);
  view->data = PyLong_AsVoidPtr(address);
  if (view->data == NULL && PyErr_Occurred()) return -1;
  for (Py_ssize_t i = 1; i < VIEW_FIELDS; i++) {
    fields[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
    if (fields[i] == -1 && PyErr_Occurred()) return -1;
  }
  view->dtype = (dg_dtype)fields[1];
  view->rows = fields[2];
  view->cols = fields[3];
  view->row_stride = fields[4];
  view->col_stride = fields[5];
  view->batch_stride = fields[6];
  return 0;
}

/* (order, batch, stream, a, b, out, start, bias) */
enum { GEMM_ARGUMENTS = 8 };

static int read_gemm(PyObject *tuple, dg_gemm_args *args) {
  static const char *const names[] = {"a", "b", "out", "start", "bias"};
  dg_view *const views[] = {&args->a, &args->b, &args->out, &args->start, &args->bias};
  *args = dg_gemm_args_init();
  if (PyTuple_Size(tuple) != GEMM_ARGUMENTS) {
    PyErr_Format(PyExc_TypeError, "takes 8 arguments (order, batch, stream and 5 views), not %zd",
                 PyTuple_Size(tuple));
    return -1;
  }
  args->order = (dg_order)PyLong_AsLong(PyTuple_GetItem(tuple, 0));
  args->batch = PyLong_AsLongLong(PyTuple_GetItem(tuple, 1));
  args->stream = PyLong_AsVoidPtr(PyTuple_GetItem(tuple, 2));
  if (PyErr_Occurred()) return -1;
  for (Py_ssize_t i = 0; i < 5; i++)
    if (read_view(names[i], PyTuple_GetItem(tuple, 3 + i), views[i]) != 0) return -1;
  return 0;
}

/* ---- Device ---- */

typedef struct device_object {
  PyObject_HEAD dg_device *device;
} device_object;

dg_device *core_device(PyObject *self) { return ((device_object *)self)->device; }

static PyObject *device_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  const char *name;
  if (kwargs != NULL && PyDict_Size(kwargs) != 0) {
    PyErr_SetString(PyExc_TypeError, "Device takes a name and no keyword");
    return NULL;
  }
  if (!PyArg_ParseTuple(args, "s:Device", &name)) return NULL;
  dg_device *device = NULL;
  dg_status status;
  /* Opening proves every kernel, which takes milliseconds. */
  Py_BEGIN_ALLOW_THREADS status = dg_device_open(name, &device);
  Py_END_ALLOW_THREADS if (status != DG_OK) return core_raise(status);
  allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  PyObject *self = allocate(type, 0);
  if (self == NULL) {
    dg_device_close(device);
    return NULL;
  }
  ((device_object *)self)->device = device;
  return self;
}

static void device_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  dg_device_close(core_device(self));
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

static PyObject *device_gemm(PyObject *self, PyObject *tuple) {
  dg_gemm_args args;
  dg_status status;
  if (read_gemm(tuple, &args) != 0) return NULL;
  Py_BEGIN_ALLOW_THREADS status = dg_gemm(core_device(self), &args);
  Py_END_ALLOW_THREADS if (status != DG_OK) return core_raise(status);
  Py_RETURN_NONE;
}

static PyObject *device_kernel(PyObject *self, PyObject *tuple) {
  dg_gemm_args args;
  dg_kernel_info info;
  if (read_gemm(tuple, &args) != 0) return NULL;
  const dg_status status = dg_gemm_kernel(core_device(self), &args, &info);
  return status == DG_OK ? PyUnicode_FromString(info.name) : core_raise(status);
}

/* (order, split, groups, offsets, bytes of an offset, stream, a, b, out, start, bias) */
static PyObject *device_grouped(PyObject *self, PyObject *tuple) {
  static const char *const names[] = {"a", "b", "out", "start", "bias"};
  dg_grouped_args args = dg_grouped_args_init();
  dg_view *const views[] = {&args.a, &args.b, &args.out, &args.start, &args.bias};
  int order, split;
  PyObject *offsets, *stream, *tuples[5];
  if (!PyArg_ParseTuple(tuple, "iiLOiOOOOOO:grouped", &order, &split, &args.groups.count, &offsets,
                        &args.groups.offset_bytes, &stream, &tuples[0], &tuples[1], &tuples[2],
                        &tuples[3], &tuples[4]))
    return NULL;
  args.order = (dg_order)order;
  args.split = (dg_split)split;
  args.groups.offsets = PyLong_AsVoidPtr(offsets);
  args.stream = PyLong_AsVoidPtr(stream);
  if (PyErr_Occurred()) return NULL;
  for (int i = 0; i < 5; i++)
    if (read_view(names[i], tuples[i], views[i]) != 0) return NULL;
  dg_status status;
  Py_BEGIN_ALLOW_THREADS status = dg_gemm_grouped(core_device(self), &args);
  Py_END_ALLOW_THREADS if (status != DG_OK) return core_raise(status);
  Py_RETURN_NONE;
}

static PyObject *device_set_threads(PyObject *self, PyObject *count) {
  const long threads = PyLong_AsLong(count);
  if (threads == -1 && PyErr_Occurred()) return NULL;
  const int clipped = threads < -1 ? -1 : threads > 1 << 20 ? 1 << 20 : (int)threads;
  const dg_status status = dg_device_set_threads(core_device(self), clipped);
  if (status != DG_OK) return core_raise(status);
  Py_RETURN_NONE;
}

static PyObject *device_kernels(PyObject *self, PyObject *unused) {
  (void)unused;
  PyObject *list = PyList_New(0);
  dg_kernel_info info;
  for (int i = 0; list && dg_kernel_at(core_device(self), i, &info) == DG_OK; i++) {
    PyObject *row = Py_BuildValue("(siz)", info.name, (int)info.order, info.withheld);
    if (row == NULL || PyList_Append(list, row) != 0) Py_CLEAR(list);
    Py_XDECREF(row);
  }
  return list;
}

static PyObject *device_name(PyObject *self, void *unused) {
  (void)unused;
  return PyUnicode_FromString(dg_device_name(core_device(self)));
}

static PyObject *device_description(PyObject *self, void *unused) {
  (void)unused;
  return PyUnicode_FromString(dg_device_description(core_device(self)));
}

static PyMethodDef device_methods[] = {
    {"gemm", device_gemm, METH_VARARGS,
     "gemm(order, batch, stream, a, b, out, start, bias)\n--\n\nThe product, into out."},
    {"kernel", device_kernel, METH_VARARGS,
     "kernel(order, batch, stream, a, b, out, start, bias)\n--\n\nThe kernel gemm would use."},
    {"grouped", device_grouped, METH_VARARGS,
     "grouped(order, split, groups, offsets, offset_bytes, stream, a, b, out, start, bias)\n--\n\n"
     "The product of every group (split 1: rows of a and out, 2: the sum), into out."},
    {"set_threads", device_set_threads, METH_O, "set_threads(count)\n--\n\n0 is the default."},
    {"kernels", device_kernels, METH_NOARGS,
     "kernels()\n--\n\nA list of (name, order, why it is withheld or None)."},
    {0},
};

static PyGetSetDef device_properties[] = {
    {"name", device_name, NULL, "The canonical name, such as \"cuda:0\".", NULL},
    {"description", device_description, NULL, "One line about the hardware.", NULL},
    {0},
};

static PyType_Slot device_slots[] = {
    {Py_tp_doc, "Device(name)\n--\n\nAn opened device of the library."},
    {Py_tp_new, device_new},
    {Py_tp_dealloc, device_dealloc},
    {Py_tp_methods, device_methods},
    {Py_tp_getset, device_properties},
    {0, NULL},
};

static PyType_Spec device_spec = {
    .name = "detgemm._core.Device",
    .basicsize = sizeof(device_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = device_slots,
};

/* ---- functions ---- */

static PyObject *core_reference(PyObject *module, PyObject *tuple) {
  dg_gemm_args args;
  dg_status status;
  (void)module;
  if (read_gemm(tuple, &args) != 0) return NULL;
  Py_BEGIN_ALLOW_THREADS status = dg_reference(&args);
  Py_END_ALLOW_THREADS if (status != DG_OK) return core_raise(status);
  Py_RETURN_NONE;
}

static PyObject *core_device_names(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  PyObject *list = PyList_New(0);
  const int count = dg_device_count();
  for (int i = 0; list && i < count; i++) {
    PyObject *name = PyUnicode_FromString(dg_device_name_at(i));
    if (name == NULL || PyList_Append(list, name) != 0) Py_CLEAR(list);
    Py_XDECREF(name);
  }
  return list;
}

/* What a DLPack capsule holds (the layout is the ABI of DLPack 0.x, "dltensor" capsules). */
typedef struct dlpack_tensor {
  void *data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides; /* strides in elements; NULL: row-major */
  uint64_t byte_offset;
} dlpack_tensor;

static PyObject *integers(const int64_t *values, int32_t count) {
  PyObject *tuple = PyTuple_New(count);
  for (int32_t i = 0; tuple && i < count; i++) {
    PyObject *value = PyLong_FromLongLong(values[i]);
    if (value == NULL) Py_CLEAR(tuple);
    else PyTuple_SetItem(tuple, i, value);
  }
  return tuple;
}

/* Reads a capsule without consuming it: its owner still frees the tensor, when the capsule goes. */
static PyObject *core_read_dlpack(PyObject *module, PyObject *capsule) {
  (void)module;
  const dlpack_tensor *t = PyCapsule_GetPointer(capsule, "dltensor");
  if (t == NULL) return NULL;
  PyObject *shape = integers(t->shape, t->ndim);
  PyObject *strides = t->strides ? integers(t->strides, t->ndim) : Py_BuildValue("");
  if (shape == NULL || strides == NULL) {
    Py_XDECREF(shape);
    Py_XDECREF(strides);
    return NULL;
  }
  const unsigned long long address = (unsigned long long)(uintptr_t)t->data + t->byte_offset;
  return Py_BuildValue("(iiKiiiNN)", (int)t->device_type, (int)t->device_id, address, (int)t->code,
                       (int)t->bits, (int)t->lanes, shape, strides);
}

static PyMethodDef functions[] = {
    {"reference", core_reference, METH_VARARGS,
     "reference(order, batch, stream, a, b, out, start, bias)\n--\n\n"
     "The scalar definition of the order, on host memory."},
    {"device_names", core_device_names, METH_NOARGS,
     "device_names()\n--\n\nThe devices this process could open."},
    {"read_dlpack", core_read_dlpack, METH_O,
     "read_dlpack(capsule)\n--\n\n(device type, device id, address, dtype code, bits, lanes, "
     "shape, strides or None)."},
    {0},
};

static int add_type(PyObject *module, const char *name, PyType_Spec *spec) {
  PyObject *type = PyType_FromSpec(spec);
  if (type != NULL && PyModule_AddObject(module, name, type) == 0) return 0;
  Py_XDECREF(type);
  return -1;
}

static int fill_module(PyObject *module) {
  if (add_type(module, "Device", &device_spec) != 0) return -1;
  if (add_type(module, "Tensors", &core_tensors_spec) != 0) return -1;
  if (PyModule_AddStringConstant(module, "version", dg_version()) != 0) return -1;
  return PyModule_AddIntConstant(module, "abi", dg_abi());
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)fill_module},
    {0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,  .m_name = "_core",       .m_doc = "The C library.",
    .m_methods = functions, .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&module); }
