/* What the files of detgemm._core share. */
#ifndef DETGEMM_CORE_H
#define DETGEMM_CORE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "detgemm.h"

/* Sets the exception of a status, with dg_last_error()'s sentence, and gives NULL. */
PyObject *core_raise(dg_status status);

/* The device of a Device object, which the caller has checked. */
dg_device *core_device(PyObject *self);

/* The type of detgemm._core.Tensors. */
extern PyType_Spec core_tensors_spec;

#endif
