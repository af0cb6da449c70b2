"""The product and the named operations for arrays of any library."""

from __future__ import annotations

from typing import Any, Optional

from detgemm import _devices, _orders
from detgemm._arrays import Array, Output, device_of, dtype_code, library, new_like, take
from detgemm._product import NAMES, Strided, broadcast_shapes, multiply


def _as_matrices(a: Strided, b: Strided) -> tuple[Strided, Strided, tuple[bool, bool]]:
    """1-D operands become one row or one column, as in numpy.matmul."""
    if not a.shape or not b.shape:
        raise ValueError("a and b need at least one dimension; a scalar has none")
    vectors = (len(a.shape) == 1, len(b.shape) == 1)
    if vectors[0]:
        a = a._replace(shape=(1, *a.shape), strides=(0, *a.strides))
    if vectors[1]:
        b = b._replace(shape=(*b.shape, 1), strides=(*b.strides, 0))
    return a, b, vectors


def _as_output(x: Strided, vectors: tuple[bool, bool]) -> Strided:
    """An array of the result's shape with the dimensions that 1-D operands dropped put back."""
    if vectors[1]:
        x = x._replace(shape=(*x.shape, 1), strides=(*x.strides, 0))
    if vectors[0]:
        x = x._replace(
            shape=(*x.shape[:-1], 1, x.shape[-1]), strides=(*x.strides[:-1], 0, x.strides[-1])
        )
    return x


def _check_shape(name: str, x: Array, shape: tuple[int, ...], broadcast: bool) -> None:
    own = x.strided.shape
    fits = own == shape
    if broadcast and not fits and len(own) == len(shape) and own[-2:] == shape[-2:]:
        fits = all(n in (1, m) for n, m in zip(own, shape))
    if not fits:
        raise ValueError(f"{name} has shape {own}; it must be {shape}")


def _product(
    a: Any,
    b: Any,
    order: Optional[str],
    out_dtype: Any,
    start: Any,
    bias: Any,
    out: Any,
    transpose: tuple[bool, bool, bool] = (False, False, False),
) -> Any:
    """a b, each and the result transposed where asked."""
    x, y = take("a", a), take("b", b)
    optional = {
        "start": None if start is None else take("start", start),
        "bias": None if bias is None else take("bias", bias),
        "out": None if out is None else take("out", out),
    }
    device = device_of({"a": x, "b": y, **optional})
    if x.strided.dtype != y.strided.dtype:
        raise TypeError(
            f"a is {NAMES[x.strided.dtype]} and b is {NAMES[y.strided.dtype]}; make them one"
        )
    left, right, vectors = _as_matrices(x.strided, y.strided)
    left = left.transposed() if transpose[0] else left
    right = right.transposed() if transpose[1] else right
    if left.shape[-1] != right.shape[-2]:
        raise ValueError(
            f"shapes {x.strided.shape} of a and {y.strided.shape} of b do not go together: the sum "
            f"runs over {left.shape[-1]} elements of a and {right.shape[-2]} of b"
        )
    batch = broadcast_shapes(left.shape[:-2], right.shape[:-2])
    rows, cols = left.shape[-2], right.shape[-1]
    if transpose[2]:
        rows, cols = cols, rows
    shape = batch + (() if vectors[0] else (rows,)) + (() if vectors[1] else (cols,))
    given = optional["out"]
    if given is not None:
        _check_shape("out", given, shape, broadcast=False)
        if not given.writable:
            raise ValueError("out is read-only; pass an array that may be written")
        if out_dtype is not None and dtype_code(out_dtype) != given.strided.dtype:
            raise TypeError(f"out is {NAMES[given.strided.dtype]} but out_dtype is {out_dtype}")
        target, finish = Output(given, lambda: out)
    else:
        code = x.strided.dtype if out_dtype is None else dtype_code(out_dtype)
        target, finish = new_like(x, shape, code)
    result = _as_output(target.strided, vectors)
    state = optional["start"]
    if state is not None:
        _check_shape("start", state, shape, broadcast=True)
    vector = optional["bias"]
    if vector is not None:
        _check_shape("bias", vector, (right.shape[-1],), broadcast=False)
    if order is None and not _orders.chosen():
        _devices.consider_hint(device)
    multiply(
        _devices.handle(device).gemm,
        _orders.CODES[_orders.resolve(order)],
        x.stream,
        left,
        right,
        result.transposed() if transpose[2] else result,
        None if state is None else _as_output(state.strided, vectors),
        None if vector is None else vector.strided,
    )
    return finish()


def matmul(
    a: Any,
    b: Any,
    *,
    order: Optional[str] = None,
    out_dtype: Any = None,
    start: Any = None,
    bias: Any = None,
    out: Any = None,
) -> Any:
    """a b with the bits of an order: round(bias + (start + sum over k of a[..., k] b[k, ...])).

    a and b are arrays of NumPy, CuPy, JAX, PyTorch or anything else with DLPack,
    ``__array_interface__`` or ``__cuda_array_interface__``, of bfloat16 (also as uint16 bits),
    float16 or, for the fma order, float32. Any strides; 1-D operands and batch dimensions as in
    numpy.matmul. start is the FP32 state to continue from, bias a vector added once at the end.
    The result is a new array of a's library, or out. PyTorch tensors are differentiable.

    order is "fma" (the same bits on every device) unless another default was chosen.
    """
    if library(a) == "torch" or library(b) == "torch":
        from detgemm import torch as dt

        return dt.matmul(a, b, order=order, out_dtype=out_dtype, start=start, bias=bias, out=out)
    return _product(a, b, order, out_dtype, start, bias, out)


def _two_dimensional(names: tuple[str, str], x: Any, y: Any) -> None:
    for name, array in zip(names, (x, y)):
        shape = tuple(getattr(array, "shape", ()))
        if len(shape) != 2:
            raise ValueError(f"{name} has {len(shape)} dimensions; this operation takes matrices")


def forward(a: Any, b: Any, *, order: Optional[str] = None, out_dtype: Any = None) -> Any:
    """a[M,K] b[K,N], summed over K."""
    _two_dimensional(("a", "b"), a, b)
    return matmul(a, b, order=order, out_dtype=out_dtype)


def forward_nt(
    a: Any, w: Any, *, order: Optional[str] = None, out_dtype: Any = None, bias: Any = None
) -> Any:
    """a[M,K] w[N,K]^T, summed over K: a linear layer."""
    _two_dimensional(("a", "w"), a, w)
    if library(a) == "torch":
        return matmul(a, w.t(), order=order, out_dtype=out_dtype, bias=bias)
    return _product(a, w, order, out_dtype, None, bias, None, (False, True, False))


def grad_a(dc: Any, b: Any, *, order: Optional[str] = None, out_dtype: Any = None) -> Any:
    """The gradient of a in a b: dc[M,N] b[K,N]^T, summed over N."""
    return forward_nt(dc, b, order=order, out_dtype=out_dtype)


def grad_b(
    a: Any, dc: Any, *, order: Optional[str] = None, out_dtype: Any = None, start: Any = None
) -> Any:
    """The gradient of b in a b: a[M,K]^T dc[M,N], summed over M, tokens ascending."""
    _two_dimensional(("a", "dc"), a, dc)
    if library(a) == "torch":
        return matmul(a.t(), dc, order=order, out_dtype=out_dtype, start=start)
    return _product(a, dc, order, out_dtype, start, None, None, (True, False, False))


def grad_b_t(a: Any, dc: Any, *, order: Optional[str] = None, out_dtype: Any = None) -> Any:
    """The bits of grad_b as a contiguous [N,K]: the gradient of a linear layer's weight."""
    _two_dimensional(("a", "dc"), a, dc)
    if library(a) == "torch":
        from detgemm import torch as dt

        return dt.grad_weight(a, dc, order=order, out_dtype=out_dtype)
    return _product(a, dc, order, out_dtype, None, None, None, (True, False, True))
