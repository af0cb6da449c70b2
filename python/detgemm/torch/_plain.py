"""Whether a call may skip PyTorch's dispatcher, which costs an operator in Python microseconds."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Optional, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad as _forward_ad
from torch.nn import Parameter

F = TypeVar("F", bound=Callable[..., Any])

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


def plain(a: Tensor, b: Tensor, *others: Optional[Tensor]) -> bool:
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
        and all(map(_simple, others))
    )


def needs_gradient(*tensors: Optional[Tensor]) -> bool:
    """Whether the call is to be recorded."""
    if _grad_enabled():
        for x in tensors:
            if x is not None and x.requires_grad:
                return True
    return False


def _recorder() -> Optional[str]:
    """What records operators at the moment, instead of only computing them."""
    if _transforms():
        return "a torch.func transform"
    if _tracing() is not None:
        return "torch.jit.trace"
    if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None:
        return "make_fx or torch.export"
    if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None:
        return "a FakeTensorMode"
    return None


def check_real(what: str, *tensors: Optional[Tensor]) -> None:
    """Refuses a layer that does more than compute, where that would be lost, and tensors without memory
    of their own. what: the layer and what it does, for the message."""
    recorder = _recorder()
    if recorder is not None:
        raise NotImplementedError(f"{what}, which {recorder} cannot record")
    for x in tensors:
        if x is None:
            continue
        if not isinstance(x, Tensor):
            raise TypeError(f"{what} and takes tensors, not a {type(x).__name__}")
        if x.is_meta or type(x).__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl:
            kind = "tensor on meta" if x.is_meta else type(x).__name__
            raise TypeError(f"{what} and takes tensors with memory of their own, not a {kind}")
        if _forward_ad._current_level >= 0 and _forward_ad.unpack_dual(x).tangent is not None:
            raise NotImplementedError(f"{what} and has no forward-mode derivative; use backward")


def uncompiled(why: str) -> Callable[[F], F]:
    """Keeps torch.compile away from a function; with fullgraph=True its error says why."""
    known = "reason" in inspect.signature(torch.compiler.disable).parameters
    options: dict[str, Any] = {"reason": why} if known else {}

    def decorate(function: F) -> F:
        result: F = torch.compiler.disable(function, **options)
        return result

    return decorate
