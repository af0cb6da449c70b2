"""Operators by name and device. Nothing falls back in silence: what cannot be had is an error that
says why."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

DEVICES = ("cuda", "musa", "hip", "cpu")


@dataclass(frozen=True)
class Candidate:
    """An operator for one device. Of several, the one with the highest priority that is available
    is taken; with equal priority the one registered later."""

    name: str
    device: str
    priority: int
    factory: Callable[..., Any]
    unavailable: Callable[[], Optional[str]]  # why it cannot be used here, or None


_candidates: list[Candidate] = []
_lock = threading.Lock()
_filled = False


def _always() -> Optional[str]:
    return None


def register(
    name: str,
    device: str,
    factory: Callable[..., Any],
    *,
    priority: int = 0,
    unavailable: Callable[[], Optional[str]] = _always,
) -> None:
    """Adds an operator. factory(order=...) makes it; unavailable() gives a reason or None."""
    if not callable(factory):
        raise TypeError(f"factory is a {type(factory).__name__}; it must be callable")
    with _lock:
        _candidates.append(Candidate(name, device, priority, factory, unavailable))


def unregister(name: str, device: str, factory: Callable[..., Any]) -> None:
    """Removes what register added."""
    with _lock:
        _candidates[:] = [
            c for c in _candidates if (c.name, c.device, c.factory) != (name, device, factory)
        ]


def _fill() -> None:
    """Our own operators, when they are first asked for: they need PyTorch."""
    global _filled  # noqa: PLW0603
    if _filled:
        return
    try:
        from detgemm import torch as dt
    except ImportError as error:
        raise RuntimeError(
            f"the det_gemm operators need PyTorch 2.4 or newer (pip install detgemm[torch]): {error}"
        ) from error
    _filled = True
    for priority, cls in (
        (100, dt.CudaDetGemmOp),
        (100, dt.MusaDetGemmOp),
        (100, dt.HipDetGemmOp),
        (0, dt.CpuDetGemmOp),
    ):
        register("det_gemm", cls.platform, cls, priority=priority, unavailable=cls.unavailable)


def _named(name: str) -> list[Candidate]:
    """All of that name, best first."""
    _fill()
    with _lock:
        found = [c for c in _candidates if c.name == name]
        names = sorted({c.name for c in _candidates})
    if not found:
        raise KeyError(f"no operator is called {name!r}; there are {', '.join(names)}")
    numbered = list(enumerate(found))
    return [c for _, c in sorted(numbered, key=lambda pair: (-pair[1].priority, -pair[0]))]


def _platform(device: Any) -> str:
    """The platform of "cuda", "cuda:1", torch.device("cuda"), ..."""
    platform = str(getattr(device, "type", device)).partition(":")[0]
    if platform == "cuda":
        import torch

        if torch.version.hip and getattr(device, "type", None) is not None:
            return "hip"  # a torch.device of a ROCm build
    return platform


def get_op(name: str, device: Any = None, *, order: Optional[str] = None) -> Any:
    """The operator of that name for a device: "cpu", "cuda", "musa", "hip" or a torch.device. None
    takes the available candidate of the highest priority: a GPU where there is one, else the CPU."""
    candidates = _named(name)
    if device is not None:
        platform = _platform(device)
        candidates = [c for c in candidates if c.device == platform]
        if not candidates:
            known = sorted({c.device for c in _named(name)})
            raise ValueError(
                f"{name!r} has no operator for device {str(device)!r}; it has {', '.join(known)}"
            )
    reasons = []
    for candidate in candidates:
        why = candidate.unavailable()
        if why is None:
            return candidate.factory(order=order)
        reasons.append(f"{candidate.device}: {why}")
    raise RuntimeError(f"{name!r} is not available here; {'; '.join(reasons)}")


def describe() -> str:
    """The table of candidates, best first, and what would be taken or why it is passed over."""
    _fill()
    with _lock:
        names = sorted({c.name for c in _candidates})
    lines = [f"{'operator':<12} {'device':<6} {'priority':>8}  {'made by':<28} state"]
    for name in names:
        taken = False
        for c in _named(name):
            why = c.unavailable()
            state = f"passed over: {why}" if why else "available"
            if why is None and not taken:
                state, taken = "taken by default", True
            made_by = getattr(c.factory, "__name__", str(c.factory))
            lines.append(f"{c.name:<12} {c.device:<6} {c.priority:>8}  {made_by:<28} {state}")
    return "\n".join(lines)
