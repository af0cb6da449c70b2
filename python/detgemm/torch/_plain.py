"""Whether a call may skip PyTorch's dispatcher, which costs an operator in Python microseconds."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Optional, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad as _forward_ad
from torch.nn import Parameter

from detgemm import _core
from detgemm._product import BF16, F16, F32

F = TypeVar("F", bound=Callable[..., Any])

DTYPES = {torch.bfloat16: BF16, torch.float16: F16, torch.float32: F32}
_transforms = torch._C._are_functorch_transforms_active
_tracing = torch._C._get_tracing_state

# state() and product() for the tensors of this PyTorch.
TENSORS = _core.Tensors(
    (Tensor, Parameter),
    DTYPES,
    torch.strided,
    torch.float32,
    _core.Device,
    ("musa", "privateuseone"),
    _forward_ad,
    torch._C._len_torch_dispatch_stack,
    _transforms,
    _tracing,
    torch.is_autocast_enabled,
    torch.is_grad_enabled,
)
WATCHED, PLAIN, RECORDED = 0, 1, 2
_state = TENSORS.state


def state(*tensors: Optional[Tensor]) -> int:
    """WATCHED: something watches or changes operators, or a tensor is no ordinary one; PLAIN: the
    kernel alone may be called; RECORDED: with its gradient."""
    return WATCHED if torch.compiler.is_compiling() else _state(*tensors)


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
