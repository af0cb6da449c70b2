"""Differentiable products of tensors. In plain eager mode they skip the dispatcher, which costs a
Python operator several microseconds; under torch.compile, export, vmap, autocast, dispatch modes or
with tensor subclasses they go through the operators of _ops. Both ways run the same kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor
from torch.nn import Parameter

from detgemm import _devices, _orders
from detgemm.torch import _kernels, _ops

_PLAIN_TYPES = (Tensor, Parameter)
_dispatch_modes = torch._C._len_torch_dispatch_stack
_transforms = torch._C._are_functorch_transforms_active
_tracing = torch._C._get_tracing_state
_autocast = torch.is_autocast_enabled
_grad_enabled = torch.is_grad_enabled


def _plain(a: Tensor, b: Tensor, c: Optional[Tensor] = None, d: Optional[Tensor] = None) -> bool:
    """Whether nothing watches or changes operators, so that the dispatcher may be skipped."""
    if torch.compiler.is_compiling():
        return False
    kind = a.device.type
    return (
        type(a) in _PLAIN_TYPES
        and type(b) in _PLAIN_TYPES
        and (c is None or type(c) in _PLAIN_TYPES)
        and (d is None or type(d) in _PLAIN_TYPES)
        and _dispatch_modes() == 0
        and not _transforms()
        and _tracing() is None
        and not _autocast(kind)
        and kind != "meta"
    )


class _Matmul(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        a: Tensor,
        b: Tensor,
        start: Optional[Tensor],
        bias: Optional[Tensor],
        order: str,
        fp32: bool,
    ) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.bias, ctx.order = None if bias is None else bias.dtype, order
        return _kernels.matmul(a, b, start, bias, order, fp32)

    backward = staticmethod(_ops._matmul_backward)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, a: Tensor, weight: Tensor, bias: Optional[Tensor], order: str, fp32: bool
    ) -> Tensor:
        ctx.save_for_backward(a, weight)
        ctx.bias, ctx.order = None if bias is None else bias.dtype, order
        return _kernels.linear(a, weight, bias, order, fp32)

    backward = staticmethod(_ops._linear_backward)


def _direct(function: type[torch.autograd.Function]) -> Callable[..., Tensor]:
    """function.apply without the Python that serves torch.func, where _plain said there is none."""
    base = getattr(torch._C, "_FunctionBase", None)
    apply = None if base is None else base.__dict__.get("apply")
    chosen: Callable[..., Tensor] = function.apply if apply is None else apply.__get__(None, function)
    return chosen


_matmul_recorded = _direct(_Matmul)
_linear_recorded = _direct(_Linear)


def _needs_gradient(*tensors: Optional[Tensor]) -> bool:
    if _grad_enabled():
        for x in tensors:
            if x is not None and x.requires_grad:
                return True
    return False


def _order(order: Optional[str], device: torch.device) -> str:
    """The order of a call; where it was nobody's choice, a hint at what else there is."""
    if order is not None:
        return _orders.check(order)
    if (
        not _orders._warned
        and device.type not in ("cpu", "meta")
        and not torch.compiler.is_compiling()
        and not _orders.chosen()
    ):
        _devices.consider_hint(_kernels.name_of(device))
    return _orders.get_default_order()


def _wide(a: Tensor, out_dtype: Optional[torch.dtype]) -> bool:
    """Whether the kernel writes FP32. Every other dtype is the operands' or rounded from FP32."""
    return out_dtype is not None and out_dtype != a.dtype


def _finish(x: Tensor, out_dtype: Optional[torch.dtype]) -> Tensor:
    if out_dtype is None or x.dtype == out_dtype:
        return x
    if out_dtype not in _kernels.DTYPES:
        raise TypeError(f"out_dtype is {out_dtype}; use torch.bfloat16, torch.float16 or torch.float32")
    return x.to(out_dtype)


def _matrices(
    a: Tensor,
    b: Tensor,
    start: Optional[Tensor],
    bias: Optional[Tensor],
    order: str,
    fp32: bool,
) -> Tensor:
    if not _plain(a, b, start, bias):
        return _ops.matmul(a, b, start, bias, order, fp32)
    if _needs_gradient(a, b, start, bias):
        return _matmul_recorded(a, b, start, bias, order, fp32)
    return _kernels.matmul(a, b, start, bias, order, fp32)


def _write(
    out: Tensor, a: Tensor, b: Tensor, start: Optional[Tensor], bias: Optional[Tensor], order: str
) -> Tensor:
    """Into memory of the caller's: no gradient can pass through that, as with torch.matmul."""
    if _needs_gradient(a, b, start, bias, out):
        raise RuntimeError("out= does not support automatic differentiation; leave it out")
    if not _plain(a, b, out, start):
        out.copy_(_finish(_ops.matmul(a, b, start, bias, order, True), out.dtype))
        return out
    shape = _kernels.product_shape(a, b, start, bias, order)
    if tuple(out.shape) != tuple(shape) or out.device != a.device:
        raise ValueError(
            f"out is {tuple(out.shape)} on {out.device}; it must be {tuple(shape)} on {a.device}"
        )
    if out.dtype not in _kernels.DTYPES:
        raise TypeError(f"out is {out.dtype}; use torch.bfloat16, torch.float16 or torch.float32")
    _kernels.product_into(out, a, b, start, bias, order)
    return out


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    order: Optional[str] = None,
    out_dtype: Optional[torch.dtype] = None,
    start: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    out: Optional[Tensor] = None,
) -> Tensor:
    """a b as torch.matmul shapes it, with the bits of an order: round(bias + (start + sum)).

    Differentiable, twice too. Gradients are sums in the same order; the gradient of an operand that
    is shared by a batch is one sum over the whole batch, ascending."""
    for name, x in (("a", a), ("b", b)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} is a {type(x).__name__}; both operands must be tensors")
    chosen = _order(order, a.device)
    column, row = b.dim() == 1, a.dim() == 1
    if column or row:
        if bias is not None and column:
            raise ValueError("bias needs a matrix b; with a vector b there are no columns")
        a = a[None] if row else a
        b = b[:, None] if column else b
        if start is not None:
            start = start.unsqueeze(-1) if column else start
            start = start.unsqueeze(-2) if row else start
        if out is not None:
            raised = out.unsqueeze(-1) if column else out
            _write(raised.unsqueeze(-2) if row else raised, a, b, start, bias, chosen)
            return out
    if out is not None:
        return _write(out, a, b, start, bias, chosen)
    result = _finish(_matrices(a, b, start, bias, chosen, _wide(a, out_dtype)), out_dtype)
    result = result.squeeze(-1) if column else result
    return result.squeeze(-1 if column else -2) if row else result


def linear(
    a: Tensor,
    weight: Tensor,
    bias: Optional[Tensor] = None,
    *,
    order: Optional[str] = None,
    out_dtype: Optional[torch.dtype] = None,
) -> Tensor:
    """a[..., K] weight[N, K]^T + bias, as torch.nn.functional.linear. The weight's gradient is a
    contiguous [N, K], summed over all rows, ascending."""
    chosen = _order(order, a.device)
    fp32 = _wide(a, out_dtype)
    if not _plain(a, weight, bias):
        return _finish(_ops.linear(a, weight, bias, chosen, fp32), out_dtype)
    if _needs_gradient(a, weight, bias):
        return _finish(_linear_recorded(a, weight, bias, chosen, fp32), out_dtype)
    return _finish(_kernels.linear(a, weight, bias, chosen, fp32), out_dtype)


def grad_weight(
    a: Tensor,
    dc: Tensor,
    *,
    order: Optional[str] = None,
    out_dtype: Optional[torch.dtype] = None,
    start: Optional[Tensor] = None,
) -> Tensor:
    """dc[..., N]^T a[..., K] as a contiguous [N, K], summed over all rows, ascending. start is the
    FP32 state of earlier rows; its bits and those of one call over all rows are the same (tc16:
    where the earlier rows are a multiple of 16)."""
    chosen = _order(order, a.device)
    fp32 = _wide(a, out_dtype)
    plain = _plain(a, dc, start)
    op = _kernels.grad_weight if plain and not _needs_gradient(a, dc, start) else _ops.grad_weight
    return _finish(op(a, dc, start, chosen, fp32), out_dtype)
