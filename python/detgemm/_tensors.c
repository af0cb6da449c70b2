/* detgemm._core.Tensors: what every call on PyTorch tensors does, with as little Python as can be.
 * Tensors are known by their attributes alone; nothing is compiled against PyTorch. */
#include <stddef.h>

#include "_core.h"

/* What the object is made from, in the sequence of its arguments. */
enum {
  TYPES,      /* the two types that are memory and nothing more: Tensor and Parameter */
  DTYPES,     /* a dict: dtype to the library's number */
  STRIDED,    /* torch.strided */
  FLOAT32,    /* torch.float32 */
  DEVICE,     /* the type of the library's devices */
  DEVICES,    /* the types of devices other than cpu and cuda */
  FORWARD_AD, /* the module torch.autograd.forward_ad */
  MODES,      /* how many dispatch modes are on */
  TRANSFORMS, /* whether a torch.func transform is on */
  TRACING,    /* the state of torch.jit.trace, or None */
  AUTOCAST,   /* whether autocast is on for a type of device */
  GRADIENTS,  /* whether gradients are recorded */
  GIVEN
};

/* Attribute names, made once. */
enum {
  NAME_DTYPE,
  NAME_LAYOUT,
  NAME_DEVICE,
  NAME_SHAPE,
  NAME_STRIDE,
  NAME_DATA_PTR,
  NAME_EMPTY,
  NAME_IS_CPU,
  NAME_IS_CUDA,
  NAME_TYPE,
  NAME_IS_NEG,
  NAME_REQUIRES_GRAD,
  NAME_LEVEL,
  NAME_CPU,
  NAME_CUDA,
  NAMES
};

static const char *const names[NAMES] = {
    "dtype",  "layout",  "device", "shape",  "stride",        "data_ptr",       "new_empty_strided",
    "is_cpu", "is_cuda", "type",   "is_neg", "requires_grad", "_current_level", "cpu",
    "cuda"};

typedef struct tensors_object {
  PyObject_HEAD PyObject *given[GIVEN], *name[NAMES];
} tensors_object;

static PyObject *tensors_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  if (kwargs != NULL || PyTuple_Size(args) != GIVEN) {
    PyErr_Format(PyExc_TypeError, "Tensors takes %d arguments", (int)GIVEN);
    return NULL;
  }
  allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  tensors_object *self = (tensors_object *)allocate(type, 0);
  if (self == NULL) return NULL;
  for (int i = 0; i < GIVEN; i++) {
    self->given[i] = PyTuple_GetItem(args, i);
    Py_INCREF(self->given[i]);
  }
  for (int i = 0; i < NAMES; i++) {
    self->name[i] = PyUnicode_InternFromString(names[i]);
    if (self->name[i] == NULL) {
      Py_DECREF(self);
      return NULL;
    }
  }
  return (PyObject *)self;
}

static void tensors_dealloc(PyObject *object) {
  tensors_object *self = (tensors_object *)object;
  PyTypeObject *type = Py_TYPE(object);
  for (int i = 0; i < GIVEN; i++) Py_XDECREF(self->given[i]);
  for (int i = 0; i < NAMES; i++) Py_XDECREF(self->name[i]);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(object);
  Py_DECREF(type);
}

/* ---- whether anybody watches: -1 is an exception ---- */

/* The truth of a new reference, which goes. */
static int truth(PyObject *value) {
  if (value == NULL) return -1;
  const int result = value == Py_True ? 1 : value == Py_False ? 0 : PyObject_IsTrue(value);
  Py_DECREF(value);
  return result;
}

static int attribute(tensors_object *self, PyObject *x, int name) {
  return truth(PyObject_GetAttr(x, self->name[name]));
}

static int call(tensors_object *self, int function) {
  return truth(PyObject_CallObject(self->given[function], NULL));
}

/* An ordinary tensor, whose memory holds the values as they are. */
static int simple(tensors_object *self, PyObject *x) {
  PyObject *type = (PyObject *)Py_TYPE(x);
  PyObject *types = self->given[TYPES];
  if (type != PyTuple_GetItem(types, 0) && type != PyTuple_GetItem(types, 1)) return 0;
  const int negative = truth(PyObject_CallMethodObjArgs(x, self->name[NAME_IS_NEG], NULL));
  return negative < 0 ? -1 : !negative;
}

/* Whether the tensor is on a device of ours where autocast is off. */
static int undisturbed(tensors_object *self, PyObject *x) {
  PyObject *kind = NULL;
  int found = attribute(self, x, NAME_IS_CPU);
  if (found > 0) kind = self->name[NAME_CPU];
  if (found == 0 && (found = attribute(self, x, NAME_IS_CUDA)) > 0) kind = self->name[NAME_CUDA];
  Py_XINCREF(kind);
  if (found == 0) {
    PyObject *device = PyObject_GetAttr(x, self->name[NAME_DEVICE]);
    if (device != NULL) kind = PyObject_GetAttr(device, self->name[NAME_TYPE]);
    Py_XDECREF(device);
    if (kind != NULL) found = PySequence_Contains(self->given[DEVICES], kind);
  }
  if (kind == NULL || found <= 0) {
    Py_XDECREF(kind);
    return kind == NULL ? -1 : found;
  }
  const int cast = truth(PyObject_CallFunctionObjArgs(self->given[AUTOCAST], kind, NULL));
  Py_DECREF(kind);
  return cast < 0 ? -1 : !cast;
}

/* Whether nothing is on that watches or changes operators. */
static int unwatched(tensors_object *self) {
  int on = call(self, MODES);
  if (on == 0) on = call(self, TRANSFORMS);
  if (on == 0) {
    PyObject *tracing = PyObject_CallObject(self->given[TRACING], NULL);
    on = tracing == NULL ? -1 : tracing != Py_None;
    Py_XDECREF(tracing);
  }
  if (on == 0) {
    PyObject *level = PyObject_GetAttr(self->given[FORWARD_AD], self->name[NAME_LEVEL]);
    const long value = level == NULL ? -1 : PyLong_AsLong(level);
    Py_XDECREF(level);
    on = PyErr_Occurred() ? -1 : value >= 0;
  }
  return on < 0 ? -1 : !on;
}

/* 0: somebody watches, or a tensor is no ordinary one; 1: neither; 2: and a gradient is recorded.
 */
static PyObject *tensors_state(PyObject *object, PyObject *tuple) {
  tensors_object *self = (tensors_object *)object;
  const Py_ssize_t count = PyTuple_Size(tuple);
  int plain = count < 1 ? 0 : unwatched(self);
  for (Py_ssize_t i = 0; i < count && plain == 1; i++) {
    PyObject *x = PyTuple_GetItem(tuple, i);
    if (x != Py_None) plain = simple(self, x);
    else plain = i > 0;
  }
  if (plain == 1) plain = undisturbed(self, PyTuple_GetItem(tuple, 0));
  int recorded = plain == 1 ? call(self, GRADIENTS) : 0;
  if (recorded > 0) {
    recorded = 0;
    for (Py_ssize_t i = 0; i < count && recorded == 0; i++) {
      PyObject *x = PyTuple_GetItem(tuple, i);
      if (x != Py_None) recorded = attribute(self, x, NAME_REQUIRES_GRAD);
    }
  }
  if (plain < 0 || recorded < 0) return NULL;
  return PyLong_FromLong(recorded ? 2 : plain);
}

/* ---- the product of two matrices ---- */

enum { MOST_DIMS = 8 };

/* What is to be exchanged before the product, or of its result. */
enum { A_TRANSPOSED = 1, B_TRANSPOSED = 2, OUT_TRANSPOSED = 4 };

/* A tensor's memory as one matrix, and the shape it had. */
typedef struct matrix {
  dg_view view;
  int dims;
  int64_t shape[MOST_DIMS];
} matrix;

/* A call of a method without arguments. */
static PyObject *method(tensors_object *self, PyObject *x, int name) {
  return PyObject_CallMethodObjArgs(x, self->name[name], NULL);
}

/* The numbers of a tuple, whose reference goes; how many there are, or -1. */
static int numbers(PyObject *tuple, int64_t *values) {
  int count = tuple != NULL && PyTuple_Check(tuple) ? (int)PyTuple_Size(tuple) : -1;
  if (count > MOST_DIMS) count = -1;
  for (int i = 0; i < count; i++) {
    values[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
    if (values[i] == -1 && PyErr_Occurred()) count = -1;
  }
  Py_XDECREF(tuple);
  return count;
}

static int address(tensors_object *self, PyObject *x, void **data) {
  PyObject *value = method(self, x, NAME_DATA_PTR);
  if (value == NULL) return 0;
  *data = PyLong_AsVoidPtr(value);
  Py_DECREF(value);
  return !PyErr_Occurred();
}

/* Whether the tensor's dtype is the library's, its layout strided and its device the given one. */
static int read_kind(tensors_object *self, PyObject *x, PyObject *device, dg_view *view) {
  PyObject *dtype = PyObject_GetAttr(x, self->name[NAME_DTYPE]);
  if (dtype == NULL) return 0;
  PyObject *code = PyDict_GetItemWithError(self->given[DTYPES], dtype); /* borrowed */
  Py_DECREF(dtype);
  if (code == NULL) return 0;
  view->dtype = (dg_dtype)PyLong_AsLong(code);
  PyObject *layout = PyObject_GetAttr(x, self->name[NAME_LAYOUT]);
  const int strided = layout == self->given[STRIDED];
  Py_XDECREF(layout);
  if (!strided) return 0;
  PyObject *own = PyObject_GetAttr(x, self->name[NAME_DEVICE]);
  const int same = own == NULL ? 0 : PyObject_RichCompareBool(own, device, Py_EQ);
  Py_XDECREF(own);
  return same == 1;
}

/* All dimensions but the last become rows, where they step evenly. */
static int join_rows(const matrix *x, const int64_t *strides, dg_view *view) {
  view->rows = 1;
  view->row_stride = x->dims > 1 ? strides[x->dims - 2] : x->shape[0];
  for (int i = x->dims - 2; i >= 0; i--) {
    if (x->shape[i] == 1) continue;
    if (view->rows == 1) view->row_stride = strides[i];
    else if (strides[i] != view->row_stride * view->rows) return 0;
    view->rows *= x->shape[i];
  }
  return 1;
}

/* Whatever is otherwise than in most calls gives 0, with or without an exception. */
static int read_matrix(tensors_object *self, PyObject *x, PyObject *device, matrix *result) {
  int64_t strides[MOST_DIMS];
  *result = (matrix){.dims = 0};
  dg_view *view = &result->view;
  if (!read_kind(self, x, device, view)) return 0;
  result->dims = numbers(PyObject_GetAttr(x, self->name[NAME_SHAPE]), result->shape);
  if (result->dims < 1) return 0;
  if (numbers(method(self, x, NAME_STRIDE), strides) != result->dims) return 0;
  view->cols = result->shape[result->dims - 1];
  view->col_stride = strides[result->dims - 1];
  return join_rows(result, strides, view) && address(self, x, &view->data);
}

static void transpose(dg_view *view) {
  const dg_view x = *view;
  view->rows = x.cols, view->cols = x.rows;
  view->row_stride = x.col_stride, view->col_stride = x.row_stride;
}

/* Both operands and the bias. a keeps its leading dimensions in the result, except where it is
 * transposed; b has two. */
static int read_operands(tensors_object *self, PyObject *a, PyObject *b, int flags, PyObject *bias,
                         dg_gemm_args *args, matrix *left) {
  matrix right, vector = {.dims = 1};
  PyObject *device = PyObject_GetAttr(a, self->name[NAME_DEVICE]);
  if (device == NULL) return 0;
  const int read = read_matrix(self, a, device, left) && read_matrix(self, b, device, &right) &&
                   (bias == Py_None || read_matrix(self, bias, device, &vector));
  Py_DECREF(device);
  if (!read || vector.dims != 1) return 0;
  if (right.dims != 2 && !(flags & A_TRANSPOSED)) return 0;
  args->a = left->view;
  args->b = right.view;
  args->bias = vector.view;
  if (flags & A_TRANSPOSED) transpose(&args->a);
  if (flags & B_TRANSPOSED) transpose(&args->b);
  const int in_order = args->order != DG_ORDER_TC16 || args->a.dtype != DG_F32;
  return in_order && args->a.dtype == args->b.dtype && args->a.cols == args->b.rows &&
         (bias == Py_None || args->bias.cols == args->b.cols);
}

static PyObject *tuple_of(const int64_t *values, int count) {
  PyObject *tuple = PyTuple_New(count);
  for (int i = 0; tuple && i < count; i++) {
    PyObject *value = PyLong_FromLongLong(values[i]);
    if (value == NULL) Py_CLEAR(tuple);
    else PyTuple_SetItem(tuple, i, value);
  }
  return tuple;
}

/* A contiguous tensor like a, of another shape. */
static PyObject *new_tensor(tensors_object *self, PyObject *a, const int64_t *shape, int dims,
                            int fp32) {
  int64_t steps[MOST_DIMS], step = 1;
  for (int i = dims - 1; i >= 0; i--) {
    steps[i] = step;
    step *= shape[i] > 1 ? shape[i] : 1;
  }
  PyObject *size = tuple_of(shape, dims), *strides = tuple_of(steps, dims), *result = NULL;
  if (size != NULL && strides != NULL && !fp32)
    result = PyObject_CallMethodObjArgs(a, self->name[NAME_EMPTY], size, strides, NULL);
  if (size != NULL && strides != NULL && fp32) {
    PyObject *function = PyObject_GetAttr(a, self->name[NAME_EMPTY]);
    PyObject *both = PyTuple_Pack(2, size, strides), *keywords = PyDict_New();
    if (function != NULL && both != NULL && keywords != NULL &&
        PyDict_SetItem(keywords, self->name[NAME_DTYPE], self->given[FLOAT32]) == 0)
      result = PyObject_Call(function, both, keywords);
    Py_XDECREF(function);
    Py_XDECREF(both);
    Py_XDECREF(keywords);
  }
  Py_XDECREF(size);
  Py_XDECREF(strides);
  return result;
}

/* The result's tensor, and its memory as the product's output. */
static PyObject *new_output(tensors_object *self, PyObject *a, const matrix *left, int flags,
                            int fp32, dg_gemm_args *args) {
  int64_t shape[MOST_DIMS] = {args->a.rows, args->b.cols};
  int dims = 2;
  if (flags & OUT_TRANSPOSED) shape[0] = args->b.cols, shape[1] = args->a.rows;
  if (!(flags & A_TRANSPOSED)) {
    dims = left->dims;
    for (int i = 0; i < dims - 1; i++) shape[i] = left->shape[i];
    shape[dims - 1] = args->b.cols;
  }
  PyObject *result = new_tensor(self, a, shape, dims, fp32);
  const int out = flags & OUT_TRANSPOSED;
  args->out = (dg_view){.dtype = fp32 ? DG_F32 : args->a.dtype,
                        .rows = out ? args->b.cols : args->a.rows,
                        .cols = out ? args->a.rows : args->b.cols,
                        .row_stride = out ? args->a.rows : args->b.cols,
                        .col_stride = 1};
  if (out) transpose(&args->out);
  if (result != NULL && !address(self, result, &args->out.data)) Py_CLEAR(result);
  return result;
}

/* (device, stream, order, a, b, flags, bias, fp32) */
static PyObject *tensors_product(PyObject *object, PyObject *tuple) {
  tensors_object *self = (tensors_object *)object;
  PyObject *device, *stream, *a, *b, *bias;
  int order, flags, fp32;
  matrix left;
  dg_gemm_args args = dg_gemm_args_init();
  if (!PyArg_ParseTuple(tuple, "OOiOOiOp:product", &device, &stream, &order, &a, &b, &flags, &bias,
                        &fp32))
    return NULL;
  if ((PyObject *)Py_TYPE(device) != self->given[DEVICE]) {
    PyErr_SetString(PyExc_TypeError, "device must be a Device");
    return NULL;
  }
  args.order = (dg_order)order;
  args.stream = PyLong_AsVoidPtr(stream);
  if (PyErr_Occurred()) return NULL;
  if (!read_operands(self, a, b, flags, bias, &args, &left)) {
    PyErr_Clear();
    Py_RETURN_NONE;
  }
  PyObject *result = new_output(self, a, &left, flags, fp32, &args);
  if (result == NULL) return NULL;
  dg_status status;
  Py_BEGIN_ALLOW_THREADS status = dg_gemm(core_device(device), &args);
  Py_END_ALLOW_THREADS if (status == DG_OK) return result;
  Py_DECREF(result);
  return core_raise(status);
}

static PyMethodDef tensors_methods[] = {
    {"state", tensors_state, METH_VARARGS,
     "state(*tensors)\n--\n\n0: somebody watches, or a tensor is no ordinary one; 1: neither; 2: "
     "and a gradient is to be recorded."},
    {"product", tensors_product, METH_VARARGS,
     "product(device, stream, order, a, b, flags, bias, fp32)\n--\n\na b as a new tensor; None "
     "where "
     "something is unusual: then the general way computes it or says what is wrong. flags: 1: a, "
     "2: b, "
     "4: the result is transposed."},
    {0},
};

static PyType_Slot tensors_slots[] = {
    {Py_tp_doc, "Tensors(types, dtypes, ...)\n--\n\nCalls on PyTorch tensors."},
    {Py_tp_new, tensors_new},
    {Py_tp_dealloc, tensors_dealloc},
    {Py_tp_methods, tensors_methods},
    {0, NULL},
};

PyType_Spec core_tensors_spec = {
    .name = "detgemm._core.Tensors",
    .basicsize = sizeof(tensors_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = tensors_slots,
};
