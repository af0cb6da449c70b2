"""Which operands PyTorch's products take. What does not fit is left to PyTorch, for the error its
users know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor


def _expands(x: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether x broadcasts to the shape."""
    own = tuple(x.shape)
    return len(own) <= len(shape) and all(n in (1, m) for n, m in zip(own[::-1], shape[::-1]))


def _added(x: Tensor, a: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether x can be added to a product of a: under autocast its dtype may be any."""
    kind = a.device.type
    dtype = x.dtype == a.dtype or torch.is_autocast_enabled(kind)
    return dtype and x.device == a.device and _expands(x, shape)


def mm(a: Tensor, b: Tensor) -> bool:
    """Two matrices."""
    return a.dim() == 2 and b.dim() == 2 and a.shape[1] == b.shape[0]


def bmm(a: Tensor, b: Tensor) -> bool:
    """Two batches of the same number of matrices."""
    matrices = a.dim() == 3 and b.dim() == 3
    return matrices and a.shape[0] == b.shape[0] and a.shape[2] == b.shape[1]


def mv(a: Tensor, b: Tensor) -> bool:
    """A matrix and a vector."""
    return a.dim() == 2 and b.dim() == 1 and a.shape[1] == b.shape[0]


def dot(a: Tensor, b: Tensor) -> bool:
    """Two vectors."""
    return a.dim() == 1 and b.dim() == 1 and a.shape[0] == b.shape[0]


def addmm(added: Tensor, a: Tensor, b: Tensor) -> bool:
    """What mm takes and what broadcasts to its result."""
    return mm(a, b) and _added(added, a, (a.shape[0], b.shape[1]))


def baddbmm(added: Tensor, a: Tensor, b: Tensor) -> bool:
    """What bmm takes and what broadcasts to its result."""
    return bmm(a, b) and _added(added, a, (a.shape[0], a.shape[1], b.shape[2]))


def addmv(added: Tensor, a: Tensor, b: Tensor) -> bool:
    """What mv takes and what broadcasts to its result."""
    return mv(a, b) and _added(added, a, (a.shape[0],))


def matmul(a: Tensor, b: Tensor) -> bool:
    """Vectors, matrices and batches that broadcast."""
    if a.dim() == 0 or b.dim() == 0:
        return False
    if a.shape[-1] != (b.shape[0] if b.dim() == 1 else b.shape[-2]):
        return False
    batches = zip(a.shape[-3::-1] if a.dim() > 2 else (), b.shape[-3::-1] if b.dim() > 2 else ())
    return all(1 in (n, m) or n == m for n, m in batches)


def linear(a: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> bool:
    """Rows and a weight of one or two dimensions."""
    if a.dim() == 0 or weight.dim() not in (1, 2) or a.shape[-1] != weight.shape[-1]:
        return False
    return bias is None or _added(bias, a, (*a.shape[:-1], *weight.shape[:-1]))


def output(out: Optional[Tensor], dtype: torch.dtype, *operands: Any) -> bool:
    """Whether out= is of the right type, and nothing is to be differentiated through it."""
    if out is None:
        return True
    if torch.is_grad_enabled() and any(x.requires_grad for x in (out, *operands)):
        return False
    return out.dtype == dtype


CHECKS: dict[str, Callable[..., bool]] = {
    "mm": mm,
    "bmm": bmm,
    "mv": mv,
    "dot": dot,
    "addmm": addmm,
    "baddbmm": baddbmm,
    "addmv": addmv,
}
