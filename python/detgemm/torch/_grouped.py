"""Products of a mixture of experts: rows dealt out to stacked weights."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from detgemm import _orders
from detgemm._product import View
from detgemm.torch import _kernels
from detgemm.torch._functional import _finish, _foreign, _order, _wide
from detgemm.torch._ops import LIBRARY, entry, register

_SPLIT_ROWS, _SPLIT_SUM = 1, 2

LIBRARY.define(
    "grouped(Tensor a, Tensor weight, Tensor offsets, Tensor? start, Tensor? bias, str order, bool fp32)"
    " -> Tensor"
)
LIBRARY.define(
    "grouped_grad_b(Tensor a, Tensor dc, Tensor offsets, Tensor? start, str order, bool fp32) -> Tensor"
)


def _check(a: Tensor, offsets: Tensor, order: str) -> None:
    """Refuses rows and offsets that do not go together."""
    if a.dim() != 2 or offsets.dim() != 1 or offsets.shape[0] < 1:
        raise ValueError(
            f"a is {tuple(a.shape)} and offsets {tuple(offsets.shape)}; they are [T, K], [E + 1]"
        )
    if offsets.dtype not in (torch.int32, torch.int64) or offsets.device != a.device:
        raise TypeError(f"offsets are {offsets.dtype} on {offsets.device}; int32 or int64 on {a.device}")
    _kernels.check_order(a, order)


def _check_weight(a: Tensor, weight: Tensor, offsets: Tensor, order: str) -> None:
    """The same with weights."""
    _kernels.check(a, weight, ("a", "weight"))
    _check(a, offsets, order)
    if weight.dim() != 3 or weight.shape[0] != offsets.shape[0] - 1 or weight.shape[2] != a.shape[1]:
        raise ValueError(
            f"weight is {tuple(weight.shape)}; with rows of {a.shape[1]} and {offsets.shape[0]} offsets "
            f"it must be stacked [E, N, K] weights of {offsets.shape[0] - 1} experts"
        )


def _check_bias(bias: Tensor, weight: Tensor) -> None:
    experts, n = weight.shape[:2]
    right = tuple(bias.shape) in ((n,), (experts, n))
    if not right or bias.dtype not in _kernels.DTYPES or bias.device != weight.device:
        raise ValueError(
            f"bias is {bias.dtype}{list(bias.shape)} on {bias.device}; it must be floating-point, "
            f"[{n}] for all experts or [{experts}, {n}], on {weight.device}"
        )


def _check_rows(a: Tensor, dc: Tensor, offsets: Tensor, order: str) -> None:
    """The same with the gradient of the result."""
    _kernels.check(a, dc, ("a", "dc"))
    _check(a, offsets, order)
    if dc.dim() != 2 or dc.shape[0] != a.shape[0]:
        raise ValueError(f"a is {tuple(a.shape)} and dc {tuple(dc.shape)}; they are [T, K] and [T, N]")


def _view(x: Tensor) -> View:
    """A matrix, or a stack of them."""
    batch = x.stride(0) if x.dim() == 3 else 0
    code = _kernels.DTYPES[x.dtype]
    return (x.data_ptr(), code, x.shape[-2], x.shape[-1], x.stride(-2), x.stride(-1), batch)


def _run(
    split: int,
    a: Tensor,
    b: Tensor,
    out: Tensor,
    offsets: Tensor,
    start: Optional[Tensor],
    bias: Optional[Tensor],
    order: str,
) -> Tensor:
    device, stream = _kernels.target(a)
    offsets = offsets.contiguous()
    vectors = None if bias is None else _view(bias[None] if bias.dim() == 1 else bias[:, None])
    device.grouped(
        _orders.CODES[order],
        split,
        offsets.shape[0] - 1,
        offsets.data_ptr(),
        offsets.element_size(),
        stream,
        _view(a),
        _view(b),
        _view(out),
        None if start is None else _view(start),
        vectors,
    )
    return out


def _fake_grouped(
    a: Tensor,
    weight: Tensor,
    offsets: Tensor,
    start: Optional[Tensor],
    bias: Optional[Tensor],
    order: str,
    fp32: bool,
) -> Tensor:
    _check_weight(a, weight, offsets, order)
    shape = (a.shape[0], weight.shape[1])
    if start is not None:
        _kernels.check_state(start, shape, a.device)
    if bias is not None:
        _check_bias(bias, weight)
    return a.new_empty(shape, dtype=torch.float32 if fp32 else a.dtype)


def _grouped(
    a: Tensor,
    weight: Tensor,
    offsets: Tensor,
    start: Optional[Tensor],
    bias: Optional[Tensor],
    order: str,
    fp32: bool,
) -> Tensor:
    out = _fake_grouped(a, weight, offsets, start, bias, order, fp32).zero_()  # rows of nobody stay so
    return _run(_SPLIT_ROWS, a, weight.mT, out, offsets, start, bias, order)


def _fake_grad_b(
    a: Tensor, dc: Tensor, offsets: Tensor, start: Optional[Tensor], order: str, fp32: bool
) -> Tensor:
    _check_rows(a, dc, offsets, order)
    shape = (offsets.shape[0] - 1, dc.shape[1], a.shape[1])
    if start is not None:
        _kernels.check_state(start, shape, a.device)
    return a.new_empty(shape, dtype=torch.float32 if fp32 else a.dtype)


def _grad_b(
    a: Tensor, dc: Tensor, offsets: Tensor, start: Optional[Tensor], order: str, fp32: bool
) -> Tensor:
    out = _fake_grad_b(a, dc, offsets, start, order, fp32)
    return _run(_SPLIT_SUM, dc.t(), a, out, offsets, start, None, order)


grouped = entry("grouped", _grouped)
grouped_grad_b = entry("grouped_grad_b", _grad_b)


# ---- gradients: grouped products again ------------------------------------------------------------


def _grad_bias(dc: Tensor, shape: torch.Size, dtype: torch.dtype, offsets: Tensor, order: str) -> Tensor:
    """The sum of the rows of every expert, or of all of them together, ascending: products with ones."""
    if len(shape) == 1:  # of one expert that has them all
        offsets = torch.stack((offsets[0], offsets[-1]))
    ones = dc.new_ones(1, 1).expand(dc.shape[0], 1)
    sums = grouped_grad_b(ones, dc, offsets, None, order, dtype == torch.float32)
    return sums.reshape(shape).to(dtype)


def _grad_start(dc: Tensor, offsets: Tensor) -> Tensor:
    """dc in FP32, but zero in the rows of nobody, where the state is not read."""
    rows = torch.arange(dc.shape[0], device=dc.device)
    somebodys = (rows >= offsets[0]) & (rows < offsets[-1])
    return torch.where(somebodys[:, None], dc.to(torch.float32), 0.0)


def _save_grouped(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, weight, offsets, _, bias, ctx.order, _ = inputs
    ctx.save_for_backward(a, weight, offsets)
    ctx.bias = None if bias is None else (bias.shape, bias.dtype)


def _grouped_backward(ctx: Any, dc: Tensor) -> tuple[Optional[Tensor], ...]:
    a, weight, offsets = ctx.saved_tensors
    needs, order = ctx.needs_input_grad, ctx.order
    rounded, fp32 = dc.to(a.dtype), a.dtype == torch.float32
    da = grouped(rounded, weight.mT, offsets, None, None, order, fp32) if needs[0] else None
    dw = grouped_grad_b(a, rounded, offsets, None, order, fp32) if needs[1] else None
    dstart = _grad_start(dc, offsets) if needs[3] else None
    dbias = None
    if needs[4]:
        shape, dtype = ctx.bias
        dbias = _grad_bias(rounded, shape, dtype, offsets, order)
    return da, dw, None, dstart, dbias, None, None


def _save_grad_b(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, dc, offsets, _, ctx.order, _ = inputs
    ctx.save_for_backward(a, dc, offsets)


def _grad_b_backward(ctx: Any, dw: Tensor) -> tuple[Optional[Tensor], ...]:
    a, dc, offsets = ctx.saved_tensors
    needs, order = ctx.needs_input_grad, ctx.order
    rounded, fp32 = dw.to(a.dtype), a.dtype == torch.float32
    da = grouped(dc, rounded.mT, offsets, None, None, order, fp32) if needs[0] else None
    ddc = grouped(a, rounded, offsets, None, None, order, fp32) if needs[1] else None
    return da, ddc, None, dw.to(torch.float32) if needs[3] else None, None, None


def _no_vmap(info: Any, in_dims: Any, *_: Any) -> Any:
    raise NotImplementedError(
        "grouped products have no rule for vmap; put the mapped dimension's rows one after another, "
        "with the experts of each, or call it in a loop"
    )


register("grouped", _grouped, _fake_grouped, _grouped_backward, _save_grouped, _no_vmap)
register("grouped_grad_b", _grad_b, _fake_grad_b, _grad_b_backward, _save_grad_b, _no_vmap)


def grouped_linear(
    a: Tensor,
    weight: Tensor,
    offsets: Tensor,
    bias: Optional[Tensor] = None,
    *,
    order: Optional[str] = None,
    out_dtype: Optional[torch.dtype] = None,
    start: Optional[Tensor] = None,
) -> Tensor:
    """out[rows of e] = a[rows of e] weight[e]^T + bias[e] for stacked weights [E, N, K]; expert e has
    the rows offsets[e] to offsets[e + 1] - 1 of a[T, K], which may be none. offsets are on a's device
    and are not read by the host. A row's bits are those of linear on it alone. Rows of no expert become
    zero, whatever is in them. weight may have any strides: stacked [E, K, N] weights are passed as
    weight.mT. bias is [E, N], or [N] for all experts. start is the FP32 state[T, N] of earlier K, to go
    on from.

    Differentiable, twice too. The gradient of weight[e] is summed over the rows of e, ascending."""
    if not isinstance(a, Tensor):
        options = {"order": order, "out_dtype": out_dtype, "start": start}
        return _foreign(grouped_linear, "a", a, weight, offsets, bias, **options)
    chosen, fp32 = _order(order, a), _wide(a, out_dtype)
    return _finish(grouped(a, weight, offsets, start, bias, chosen, fp32), out_dtype)


def grouped_grad_weight(
    a: Tensor,
    dc: Tensor,
    offsets: Tensor,
    *,
    order: Optional[str] = None,
    out_dtype: Optional[torch.dtype] = None,
    start: Optional[Tensor] = None,
) -> Tensor:
    """out[e] = dc[rows of e]^T a[rows of e] as [E, N, K], summed over the rows of e, ascending. start is
    the FP32 state of earlier rows of every expert, to go on from (tc16: where each expert's earlier rows
    are a multiple of 16)."""
    if not isinstance(a, Tensor):
        options = {"order": order, "out_dtype": out_dtype, "start": start}
        return _foreign(grouped_grad_weight, "a", a, dc, offsets, **options)
    chosen, fp32 = _order(order, a), _wide(a, out_dtype)
    return _finish(grouped_grad_b(a, dc, offsets, start, chosen, fp32), out_dtype)
