"""deterministic_mode: a model's BF16 products in a defined order, without a change to the model.

Two layers do it. A torch function mode replaces the functions a program calls (torch.mm, linear,
einsum, ...) by ours, with our gradients; torch.compile traces through it and compiles again when it
changes. And the matrix products of ATen are replaced for calls that come from inside PyTorch."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any, Optional, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from detgemm import _orders
from detgemm.torch import _aten
from detgemm.torch._routes import NOT_COVERED, ROUTED, SUPPORTED_DTYPES, Passed, Router

M = TypeVar("M", bound=nn.Module)
_local = threading.local()
_process: Optional[deterministic_mode] = None
_PLATFORMS = ("cpu", "cuda", "musa", "privateuseone")


class deterministic_mode(TorchFunctionMode):  # noqa: N801 (reads like torch.no_grad)
    """Within the block, products of the given dtypes are computed in `order` on CPU, CUDA and MUSA:
    mm, addmm, bmm, baddbmm, mv, addmv, dot, linear, matmul, @ and einsum, forward and backward.

    enabled=False makes a block inside an outer one compute as without a mode. dtypes: which operands
    are taken (BF16; FP16 and, for fma, FP32 may be added). uncovered: "pass" computes everything
    else as PyTorch does, "raise" makes a product of another dtype, or a function with sums of its
    own that is not covered (attention kernels, convolutions, recurrent layers), an error.

    passed counts what was computed by PyTorch itself, with the reason."""

    def __init__(
        self,
        order: Optional[str] = None,
        *,
        enabled: bool = True,
        dtypes: tuple[torch.dtype, ...] = (torch.bfloat16,),
        uncovered: str = "pass",
    ) -> None:
        super().__init__()
        if uncovered not in ("pass", "raise"):
            raise ValueError(f'uncovered is {uncovered!r}; use "pass" or "raise"')
        for dtype in dtypes:
            if dtype not in SUPPORTED_DTYPES:
                raise TypeError(f"dtypes has {dtype}; detgemm computes {SUPPORTED_DTYPES}")
        self.order = _orders.resolve(order)
        self.enabled = enabled
        self.dtypes = tuple(dtypes)
        self.uncovered = uncovered
        self.passed: dict[str, int] = {}
        self._covered_by: list[deterministic_mode] = []  # modes entered inside this one
        self._outer: list[Optional[deterministic_mode]] = []
        self._router = Router(self.order, self._why)

    def __enter__(self) -> deterministic_mode:
        _aten.install(_decide)
        outer = _innermost()
        self._outer.append(outer)
        if outer is not None and outer is not self:
            outer._covered_by.append(self)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)  # type: ignore[no-untyped-call]
        outer = self._outer.pop()
        if outer is not None and outer is not self:
            outer._covered_by.remove(self)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Optional[Any] = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._covered_by:
            return func(*args, **kwargs)
        if self.enabled:
            route = ROUTED.get(func)
            if route is not None:
                result = getattr(self._router, route)(*args, **kwargs)
                if not isinstance(result, Passed):
                    return result
                self._pass(route, result)
            elif func in NOT_COVERED:
                self._pass(func.__name__, Passed(NOT_COVERED[func]))
        if torch.compiler.is_compiling():
            return func(*args, **kwargs)
        with _forced(self):
            return func(*args, **kwargs)

    def _pass(self, name: str, why: Passed) -> None:
        if self.uncovered == "raise" and not why.startswith("nothing"):
            raise NotImplementedError(  # a TypeError would make `a @ b` look for another operand
                f"{name} is not covered by deterministic_mode: {why}; change the call, or use "
                f'uncovered="pass"'
            )
        if not torch.compiler.is_compiling():
            key = f"{name}: {why}"
            self.passed[key] = self.passed.get(key, 0) + 1

    def _why(self, *tensors: Tensor) -> Optional[str]:
        """Why these operands of a product are not ours, or None."""
        kind = tensors[0].device.type
        if kind not in _PLATFORMS:
            return f"device {kind}"
        if torch.is_autocast_enabled(kind):
            return None if torch.get_autocast_dtype(kind) in self.dtypes else "autocast dtype"
        for x in tensors:
            if x.dtype not in self.dtypes:
                return f"dtype {x.dtype}"
            if x.dtype != tensors[0].dtype:
                return "operands of different dtypes"
            if x.layout is not torch.strided:
                return f"layout {x.layout}"
        return None


@contextlib.contextmanager
def _forced(mode: deterministic_mode) -> Iterator[None]:
    """A function mode is off while it handles a call; for what that call does inside, it is not."""
    before = getattr(_local, "mode", None)
    _local.mode = mode
    try:
        yield
    finally:
        _local.mode = before


def _innermost() -> Optional[deterministic_mode]:
    """The innermost mode of this thread. Autograd's threads have the stack of who called them."""
    for mode in reversed(torch.overrides._get_current_function_mode_stack()):
        if isinstance(mode, deterministic_mode):
            return mode
    return None


def _current() -> Optional[deterministic_mode]:
    return getattr(_local, "mode", None) or _innermost() or _process


def _decide(a: Tensor, b: Tensor) -> Optional[str]:
    """For ATen's kernels: the order of the mode that is on, if the operands are its."""
    mode = _current()
    if mode is None or not mode.enabled:
        return None
    if a.dtype not in mode.dtypes or b.dtype != a.dtype or a.device != b.device:
        if mode.uncovered == "raise" and a.is_floating_point():
            raise NotImplementedError(
                f"a product of {a.dtype} and {b.dtype} is not covered by deterministic_mode; change "
                f'the call, or use uncovered="pass"'
            )
        return None
    return mode.order


def is_deterministic() -> Optional[str]:
    """The order that products are computed in here and now, or None where no mode is on."""
    mode = _current()
    return mode.order if mode is not None and mode.enabled else None


def set_deterministic_mode(
    order: Optional[str] = None,
    *,
    enabled: bool = True,
    dtypes: tuple[torch.dtype, ...] = (torch.bfloat16,),
    uncovered: str = "pass",
) -> None:
    """Turns the mode on, or off, for the whole process: every thread, from now on. Blocks of
    deterministic_mode still apply inside. Compiled functions are compiled again. A thread other than
    the caller's that uses torch.compile enters deterministic_mode itself."""
    global _process  # noqa: PLW0603
    if _process is not None and _innermost() is _process:
        _process.__exit__(None, None, None)
    _process = None
    if enabled:
        mode = deterministic_mode(order, dtypes=dtypes, uncovered=uncovered)
        mode.__enter__()
        _process = mode
    if hasattr(torch, "_dynamo"):
        torch._dynamo.reset()


def deterministic_module(
    module: M,
    order: Optional[str] = None,
    *,
    enabled: bool = True,
    dtypes: tuple[torch.dtype, ...] = (torch.bfloat16,),
    uncovered: str = "pass",
) -> M:
    """Makes one module's forward run in the mode, whatever is on around it. In place."""
    forward = module.forward

    @functools.wraps(forward)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with deterministic_mode(order, enabled=enabled, dtypes=dtypes, uncovered=uncovered):
            return forward(*args, **kwargs)

    module.forward = wrapped
    return module
