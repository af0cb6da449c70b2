"""Products of a mixture of experts: rows dealt out to stacked weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor

from detgemm import _orders
from detgemm._product import View
from detgemm.torch import _kernels
from detgemm.torch._functional import _order
from detgemm.torch._ops import AUTOCAST, KEYS, LIBRARY, _autocast

_SPLIT_ROWS, _SPLIT_SUM = 1, 2

LIBRARY.define("grouped(Tensor a, Tensor weight, Tensor offsets, str order) -> Tensor")
LIBRARY.define("grouped_grad_a(Tensor dc, Tensor weight, Tensor offsets, str order) -> Tensor")
LIBRARY.define("grouped_grad_b(Tensor a, Tensor dc, Tensor offsets, str order, bool fp32) -> Tensor")


def _check(a: Tensor, offsets: Tensor, order: str) -> None:
    """Refuses rows and offsets that do not go together."""
    if a.dim() != 2 or offsets.dim() != 1 or offsets.shape[0] < 1:
        raise ValueError(
            f"a is {tuple(a.shape)} and offsets {tuple(offsets.shape)}; they are [T, K], [E + 1]"
        )
    if offsets.dtype not in (torch.int32, torch.int64) or offsets.device != a.device:
        raise TypeError(f"offsets are {offsets.dtype} on {offsets.device}; int32 or int64 on {a.device}")
    if order == "tc16" and a.dtype is torch.float32:
        raise TypeError("the tc16 order takes BF16 or F16, not FP32; use order='fma', or round first")


def _check_weight(a: Tensor, weight: Tensor, offsets: Tensor, order: str, width: int) -> None:
    """The same with weights. width: which dimension of weight meets a's columns."""
    _check(a, offsets, order)
    _kernels.check(a, weight, ("a", "weight"))
    if weight.dim() != 3 or weight.shape[0] != offsets.shape[0] - 1 or weight.shape[width] != a.shape[1]:
        raise ValueError(
            f"weight is {tuple(weight.shape)}; with rows of {a.shape[1]} and {offsets.shape[0]} offsets "
            f"it must be stacked [E, N, K] weights of {offsets.shape[0] - 1} experts"
        )


def _check_rows(a: Tensor, dc: Tensor, offsets: Tensor, order: str) -> None:
    """The same with the gradient of the result."""
    _check(a, offsets, order)
    _kernels.check(a, dc, ("a", "dc"))
    if dc.dim() != 2 or dc.shape[0] != a.shape[0]:
        raise ValueError(f"a is {tuple(a.shape)} and dc {tuple(dc.shape)}; they are [T, K] and [T, N]")


def _view(x: Tensor) -> View:
    """A matrix, or a stack of them."""
    batch = x.stride(0) if x.dim() == 3 else 0
    code = _kernels.DTYPES[x.dtype]
    return (x.data_ptr(), code, x.shape[-2], x.shape[-1], x.stride(-2), x.stride(-1), batch)


def _run(split: int, a: Tensor, b: Tensor, out: Tensor, offsets: Tensor, order: str) -> Tensor:
    device, stream = _kernels.handle_of(a.device)
    offsets = offsets.contiguous()
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
        None,
        None,
    )
    return out


def _fake_grouped(a: Tensor, weight: Tensor, offsets: Tensor, order: str) -> Tensor:
    _check_weight(a, weight, offsets, order, 2)
    return a.new_empty(a.shape[0], weight.shape[1])


def _fake_grad_a(dc: Tensor, weight: Tensor, offsets: Tensor, order: str) -> Tensor:
    _check_weight(dc, weight, offsets, order, 1)
    return dc.new_empty(dc.shape[0], weight.shape[2])


def _fake_grad_b(a: Tensor, dc: Tensor, offsets: Tensor, order: str, fp32: bool) -> Tensor:
    _check_rows(a, dc, offsets, order)
    dtype = torch.float32 if fp32 else a.dtype
    return a.new_empty(offsets.shape[0] - 1, dc.shape[1], a.shape[1], dtype=dtype)


def _grouped(a: Tensor, weight: Tensor, offsets: Tensor, order: str) -> Tensor:
    out = _fake_grouped(a, weight, offsets, order).zero_()  # rows of nobody stay zero
    return _run(_SPLIT_ROWS, a, weight.mT, out, offsets, order)


def _grad_a(dc: Tensor, weight: Tensor, offsets: Tensor, order: str) -> Tensor:
    out = _fake_grad_a(dc, weight, offsets, order).zero_()
    return _run(_SPLIT_ROWS, dc, weight, out, offsets, order)


def _grad_b(a: Tensor, dc: Tensor, offsets: Tensor, order: str, fp32: bool) -> Tensor:
    out = _fake_grad_b(a, dc, offsets, order, fp32)
    return _run(_SPLIT_SUM, dc.t(), a, out, offsets, order)


_KERNELS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "grouped": (_grouped, _fake_grouped),
    "grouped_grad_a": (_grad_a, _fake_grad_a),
    "grouped_grad_b": (_grad_b, _fake_grad_b),
}


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, weight, offsets, ctx.order = inputs
    ctx.save_for_backward(a, weight, offsets)


def _backward(ctx: Any, dc: Tensor) -> tuple[Optional[Tensor], ...]:
    a, weight, offsets = ctx.saved_tensors
    grads: list[Optional[Tensor]] = [None, None]
    if ctx.needs_input_grad[0]:
        grads[0] = torch.ops.detgemm.grouped_grad_a(dc, weight, offsets, ctx.order)
    if ctx.needs_input_grad[1]:
        fp32 = weight.dtype == torch.float32
        grads[1] = torch.ops.detgemm.grouped_grad_b(a, dc, offsets, ctx.order, fp32)
    return (*grads, None, None)


def _no_second(ctx: Any, *_: Any) -> Any:
    raise NotImplementedError("grouped products can be differentiated once, not twice")


for _name, (_kernel, _fake) in _KERNELS.items():
    for _key in KEYS:
        LIBRARY.impl(_name, _kernel, _key)
    torch.library.register_fake(f"detgemm::{_name}", _fake, lib=LIBRARY)
for _key, _device in AUTOCAST.items():
    if hasattr(torch._C.DispatchKey, _key):
        LIBRARY.impl("grouped", _autocast(torch.ops.detgemm.grouped.default, _key, _device), _key)
torch.library.register_autograd("detgemm::grouped", _backward, setup_context=_setup, lib=LIBRARY)
for _name in ("grouped_grad_a", "grouped_grad_b"):
    torch.library.register_autograd(f"detgemm::{_name}", _no_second, lib=LIBRARY)


def grouped_linear(a: Tensor, weight: Tensor, offsets: Tensor, *, order: Optional[str] = None) -> Tensor:
    """out[rows of e] = a[rows of e] weight[e]^T for stacked weights [E, N, K]; expert e has the rows
    offsets[e] to offsets[e + 1] - 1 of a[T, K], which may be none. offsets are on a's device and are not
    read by the host. A row's bits are those of linear on it alone. Rows of no expert become zero,
    whatever is in them. weight may have any strides: stacked [E, K, N] weights are passed as weight.mT.

    The gradient of weight[e] is summed over the rows of e, ascending."""
    result: Tensor = torch.ops.detgemm.grouped.default(a, weight, offsets, _order(order, a))
    return result
