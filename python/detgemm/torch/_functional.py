"""Differentiable products of tensors. In plain eager mode they skip the dispatcher, which costs a
Python operator several microseconds; under torch.compile, export, vmap, autocast, dispatch modes or
with tensor subclasses they go through the operators of _ops. Both ways run the same kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor

from detgemm import _devices, _orders
from detgemm.torch import _kernels, _ops
from detgemm.torch._plain import PLAIN, WATCHED, state


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
        ctx.bias = None if bias is None else bias.dtype
        ctx.order = order
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


def _order(order: Optional[str], a: Tensor) -> str:
    """The order of a call; where it was nobody's choice, a hint at what else there is."""
    if order is not None:
        return _orders.check(order)
    device = a.device
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
    found = state(a, b, start, bias)
    if found == PLAIN:
        return _kernels.matmul(a, b, start, bias, order, fp32)
    call = _ops.matmul if found == WATCHED else _matmul_recorded
    return call(a, b, start, bias, order, fp32)


def _write(
    out: Tensor, a: Tensor, b: Tensor, start: Optional[Tensor], bias: Optional[Tensor], order: str
) -> Tensor:
    """Into memory of the caller's: no gradient can pass through that, as with torch.matmul."""
    if not isinstance(out, Tensor):
        raise TypeError(f"out is a {type(out).__name__}; it must be a tensor")
    operands = [x for x in (out, a, b, start, bias) if isinstance(x, Tensor)]
    if torch.is_grad_enabled() and any(x.requires_grad for x in operands):
        raise RuntimeError("out= does not support automatic differentiation; leave it out")
    if state(a, b, out, start) == WATCHED:
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


def _foreign(function: Callable[..., Tensor], name: str, *args: Any, **options: Any) -> Tensor:
    """A call with an argument that is no tensor: one that answers for itself, as the proxies of
    torch.fx do, or an error."""
    others = [x for x in args if not isinstance(x, Tensor) and hasattr(type(x), "__torch_function__")]
    if others:
        result: Tensor = torch.overrides.handle_torch_function(function, others, *args, **options)
        return result
    kind = type(args[1 if name == "b" else 0]).__name__
    raise TypeError(f"{name} is a {kind}; {function.__name__} takes tensors")


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
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        name = "b" if isinstance(a, Tensor) else "a"
        options = {"order": order, "out_dtype": out_dtype, "start": start, "bias": bias, "out": out}
        return _foreign(matmul, name, a, b, **options)
    chosen = _order(order, a)
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
    if out_dtype is None:
        result = _matrices(a, b, start, bias, chosen, False)
    else:
        result = _finish(_matrices(a, b, start, bias, chosen, _wide(a, out_dtype)), out_dtype)
    if not (column or row):
        return result
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
    if not isinstance(a, Tensor):
        return _foreign(linear, "the input", a, weight, bias, order=order, out_dtype=out_dtype)
    chosen = _order(order, a)
    fp32 = False if out_dtype is None else _wide(a, out_dtype)
    found = state(a, weight, bias)
    if found == PLAIN:
        result = _kernels.linear(a, weight, bias, chosen, fp32)
    else:
        call = _ops.linear if found == WATCHED else _linear_recorded
        result = call(a, weight, bias, chosen, fp32)
    return result if out_dtype is None else _finish(result, out_dtype)


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
    if not isinstance(a, Tensor):
        return _foreign(grad_weight, "a", a, dc, order=order, out_dtype=out_dtype, start=start)
    chosen = _order(order, a)
    fp32 = _wide(a, out_dtype)
    return _finish(_ops.grad_weight(a, dc, start, chosen, fp32), out_dtype)
