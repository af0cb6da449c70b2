"""Whether a call may skip PyTorch's dispatcher, which costs an operator in Python microseconds."""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor
from torch.autograd import forward_ad as _forward_ad
from torch.nn import Parameter

_TYPES = (Tensor, Parameter)
_DEVICES = ("cpu", "cuda", "musa", "privateuseone")
_dispatch_modes = torch._C._len_torch_dispatch_stack
_transforms = torch._C._are_functorch_transforms_active
_tracing = torch._C._get_tracing_state
_autocast = torch.is_autocast_enabled
_grad_enabled = torch.is_grad_enabled


def _simple(x: Optional[Tensor]) -> bool:
    """Memory that holds the values as they are: no subclass, no other object, no lazy negative."""
    return x is None or (type(x) in _TYPES and not x.is_neg())


def plain(a: Tensor, b: Tensor, c: Optional[Tensor] = None, d: Optional[Tensor] = None) -> bool:
    """Whether nothing watches or changes operators, and the tensors are ordinary ones."""
    if torch.compiler.is_compiling() or type(a) not in _TYPES or type(b) not in _TYPES:
        return False
    kind = "cpu" if a.is_cpu else "cuda" if a.is_cuda else a.device.type
    return (
        kind in _DEVICES
        and _dispatch_modes() == 0
        and not _transforms()
        and _tracing() is None
        and _forward_ad._current_level < 0
        and not _autocast(kind)
        and not a.is_neg()
        and not b.is_neg()
        and (c is None or _simple(c))
        and (d is None or _simple(d))
    )


def needs_gradient(*tensors: Optional[Tensor]) -> bool:
    """Whether the call is to be recorded."""
    if _grad_enabled():
        for x in tensors:
            if x is not None and x.requires_grad:
                return True
    return False
