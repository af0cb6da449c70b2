"""deterministic_mode: a model's BF16 products in a defined order, without a change to the model.

Two layers do it. A torch function mode replaces the functions a program calls (torch.mm, linear,
einsum, ...) by ours, with our gradients; torch.compile traces through it and compiles again when it
changes. And the matrix products of ATen are replaced for calls that come from inside PyTorch."""

from __future__ import annotations

import contextlib
import inspect
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any, Optional, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, _pop_mode, _push_mode

from detgemm import _orders
from detgemm.torch import _aten
from detgemm.torch._routes import COMPOSITE, NOT_COVERED, ROUTED, SUPPORTED_DTYPES, Passed, Router

M = TypeVar("M", bound=nn.Module)
_local = threading.local()  # mode: whose call is being handled; entered: what __exit__ goes back to
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
        self._retired = False  # was the process's, and another thread may still have it on its stack
        self._covered_by: list[deterministic_mode] = []  # modes entered inside, for torch.compile
        self._outer: list[Optional[deterministic_mode]] = []
        self._router = Router(self.order, self._why)

    def __enter__(self) -> deterministic_mode:
        outer = _innermost()
        if not torch.compiler.is_compiling():
            _aten.install(_decide)
            _entered().append(getattr(_local, "mode", None))
            _local.mode = None
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
        if not torch.compiler.is_compiling():
            _local.mode = _entered().pop()

    def _covered(self) -> bool:
        """Whether a mode inside this one answers for the call."""
        if torch.compiler.is_compiling():
            return len(self._covered_by) > 0
        return getattr(_local, "mode", None) is not None

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Optional[Any] = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._retired or self._covered():
            return func(*args, **kwargs)
        if self.enabled:
            route = ROUTED.get(func)
            if route is not None:
                result = getattr(self._router, route)(*args, **kwargs)
                if not isinstance(result, Passed):
                    return result
                self._pass(func.__name__, result)
            elif func in NOT_COVERED:
                self._pass(func.__name__, Passed(NOT_COVERED[func]))
        if torch.compiler.is_compiling():
            return func(*args, **kwargs)
        if self.enabled and func in COMPOSITE:
            with _on_top(self):
                return _body(func)(*args, **kwargs)
        with _forced(self):
            return func(*args, **kwargs)

    def _pass(self, name: str, why: Passed) -> None:
        if why.startswith("nothing"):  # that rounds: no bit can differ
            return
        if self.uncovered == "raise":
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
                exact = not x.is_floating_point() and not x.is_complex()
                return "nothing to round" if exact else f"dtype {x.dtype}"
            if x.dtype != tensors[0].dtype:
                return "operands of different dtypes"
            if x.layout is not torch.strided or x.is_nested:
                return "a nested tensor" if x.is_nested else f"layout {x.layout}"
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


def _entered() -> list[Optional[deterministic_mode]]:
    """What _local.mode was before each block of this thread."""
    try:
        found: list[Optional[deterministic_mode]] = _local.entered
    except AttributeError:
        found = _local.entered = []
    return found


@contextlib.contextmanager
def _on_top(mode: deterministic_mode) -> Iterator[None]:
    """Puts a mode that is handling a call back on."""
    _push_mode(mode)
    try:
        yield
    finally:
        _pop_mode()


def _not_overridden(*_: Any) -> bool:
    return False


def _body(function: Any) -> Callable[..., Any]:
    """A Python function of PyTorch without its first step, which hands the call to modes."""
    if not isinstance(function, types.FunctionType):
        return function  # type: ignore[no-any-return]
    names = dict(function.__globals__)
    for name in ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"):
        names[name] = _not_overridden
    body = types.FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    body.__kwdefaults__ = function.__kwdefaults__
    return body


def _innermost() -> Optional[deterministic_mode]:
    """The innermost mode of this thread. Autograd's threads have the stack of who called them."""
    for mode in reversed(torch.overrides._get_current_function_mode_stack()):
        if isinstance(mode, deterministic_mode) and not mode._retired:
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
        if mode.uncovered == "raise" and (a.is_floating_point() or a.is_complex()):
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
    mode = deterministic_mode(order, dtypes=dtypes, uncovered=uncovered) if enabled else None
    if _process is not None:
        _process._retired = True
    _process = mode
    _aten.install(_decide)
    _rebuild_stack(mode)
    if hasattr(torch, "_dynamo"):
        torch._dynamo.reset()


def _rebuild_stack(process: Optional[deterministic_mode]) -> None:
    """Puts the process's mode beneath the blocks that this thread is in, and drops a former one."""
    stack = torch.overrides._get_current_function_mode_stack()
    for _ in stack:
        _pop_mode()
    kept = [x for x in stack if not getattr(x, "_retired", False)]
    blocks = [i for i, x in enumerate(kept) if isinstance(x, deterministic_mode)]
    if process is not None:
        position = blocks[0] if blocks else len(kept)
        if blocks:
            process._covered_by.append(kept[position])
            kept[position]._outer[0] = process
        kept.insert(position, process)
    elif blocks:
        kept[blocks[0]]._outer[0] = None
    for x in kept:
        _push_mode(x)


class _ModuleForward:
    """A module's forward in a mode. An object with the module in it, so that a copy of the module, or
    one that was pickled, runs itself and not the original."""

    def __init__(self, module: nn.Module, own: Optional[Callable[..., Any]]) -> None:
        self.module = module
        self.own = own  # a forward that the instance had, in place of its class's
        self.options: dict[str, Any] = {}

    def _forward(self) -> Callable[..., Any]:
        return self.own or types.MethodType(type(self.module).forward, self.module)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._forward())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with deterministic_mode(**self.options):
            if self.own is not None:
                return self.own(*args, **kwargs)
            return type(self.module).forward(self.module, *args, **kwargs)


def deterministic_module(
    module: M,
    order: Optional[str] = None,
    *,
    enabled: bool = True,
    dtypes: tuple[torch.dtype, ...] = (torch.bfloat16,),
    uncovered: str = "pass",
) -> M:
    """Makes one module's forward run in the mode, whatever is on around it. In place; a second call
    replaces the first."""
    deterministic_mode(order, dtypes=dtypes, uncovered=uncovered)  # says what is wrong now, not later
    _aten.install(_decide)
    own = module.__dict__.get("forward")
    forward = own if isinstance(own, _ModuleForward) else _ModuleForward(module, own)
    forward.options = {"order": order, "enabled": enabled, "dtypes": dtypes, "uncovered": uncovered}
    module.forward = forward
    return module
