"""The matrix products of ATen itself, for calls that come from C++: from composite operators, and
from autograd. Installed when a mode is first used, and then for good: another thread may be inside.
With no mode on, a call goes straight to the kernel that was there before."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor

from detgemm.torch import _fits, _kernels
from detgemm.torch._routes import into, scaled_sum

# The order to compute these operands in, or None where they are not ours (now).
Decide = Callable[[Tensor, Tensor], Optional[str]]

_lock = threading.Lock()
_library: Optional[torch.library.Library] = None
_NAMES = ("mm", "bmm", "addmm", "baddbmm", "mv", "dot", "addmv")


def _original(name: str, key: str) -> Callable[..., Any]:
    """The kernel that is there now. PyTorch before 2.9 cannot give it; its functional kernels are
    then reached through their out= variant, which is not replaced there."""
    if hasattr(torch.library, "get_kernel"):
        kernel = torch.library.get_kernel(f"aten::{name}", key)
        keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

        def call(*args: Any, **kwargs: Any) -> Any:
            return kernel.call_boxed(keys, *args, **kwargs)

        return call
    if name == "dot":  # its out= variant comes back here; the functions that reach it are routed
        raise RuntimeError("PyTorch before 2.9 gives no other way to its own dot")
    out = getattr(torch.ops.aten, name).out

    def through_out(*args: Any, **kwargs: Any) -> Any:
        result = args[0].new_empty(0)
        return out(*args, **kwargs, out=result)

    return through_out


def _product(order: str) -> Callable[..., Tensor]:
    def product(a: Tensor, b: Tensor, bias: Optional[Tensor], fp32: bool) -> Tensor:
        return _kernels.matmul(a, b, None, bias, order, fp32)

    return product


def _value(name: str, order: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The result of an ATen operator in an order."""
    product = _product(order)
    if name in ("mm", "bmm"):
        return product(args[0], args[1], None, False)
    if name == "mv":
        return product(args[0], args[1][:, None], None, False)[:, 0]
    if name == "dot":
        return product(args[0][None], args[1][:, None], None, False)[0, 0]
    beta, alpha = kwargs.get("beta", 1), kwargs.get("alpha", 1)
    added, a, b = args
    if name == "addmv":
        columns = added[..., None].expand(a.shape[0], 1)
        return scaled_sum(product, order, columns, a, b[:, None], beta, alpha)[:, 0]
    return scaled_sum(product, order, added, a, b, beta, alpha)


def _refused(name: str, original: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Operands that PyTorch does not take: its own error. It has nothing else to give here."""
    original(*args, **kwargs)
    raise NotImplementedError(
        f"{name} with operands of {[tuple(x.shape) for x in args]} is not covered by "
        f"deterministic_mode; change the call"
    )


def _replacement(name: str, key: str, decide: Decide) -> Callable[..., Any]:
    original = _original(name, key)
    first = 1 if name.startswith(("add", "badd")) else 0

    def kernel(*args: Any, **kwargs: Any) -> Any:
        order = decide(args[first], args[first + 1])
        if order is None:
            return original(*args, **kwargs)
        if not _fits.CHECKS[name](*args):
            return _refused(name, original, *args, **kwargs)
        return _value(name, order, args, kwargs)

    return kernel


def _out_replacement(name: str, key: str, decide: Decide) -> Callable[..., Any]:
    original = _original(name, key)
    name = name.partition(".")[0]
    first = 1 if name.startswith(("add", "badd")) else 0

    def kernel(*args: Any, out: Tensor, **kwargs: Any) -> Any:
        order = decide(args[first], args[first + 1])
        if order is None:
            return original(*args, out=out, **kwargs)
        if not _fits.CHECKS[name](*args) or not _fits.output(out, args[first].dtype):
            return _refused(name, original, *args, out=out, **kwargs)
        return into(out, _value(name, order, args, kwargs))

    return kernel


def _keys() -> list[str]:
    keys = ["CPU"]
    if torch.backends.cuda.is_built() or torch.version.hip:
        keys.append("CUDA")
    if torch._C._get_privateuse1_backend_name() == "musa":
        keys.append("PrivateUse1")
    return keys


def _replace(
    library: torch.library.Library,
    name: str,
    key: str,
    make: Callable[[str, str, Decide], Callable[..., Any]],
    decide: Decide,
) -> None:
    try:
        kernel = make(name, key, decide)
    except RuntimeError:
        return  # this device has no such kernel; there is nothing to stand in front of
    library.impl(name, kernel, key)


def install(decide: Decide) -> None:
    """Replaces the kernels, once."""
    global _library  # noqa: PLW0603
    if _library is not None:
        return
    with _lock:
        if _library is not None:
            return
        library = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that kernels are replaced is the purpose
            for key in _keys():
                for name in _NAMES:
                    _replace(library, name, key, _replacement, decide)
                    if hasattr(torch.library, "get_kernel") and name != "dot":
                        _replace(library, f"{name}.out", key, _out_replacement, decide)
        _library = library
