"""Opened devices, kept for the life of the process."""

from __future__ import annotations

from detgemm import _core
from detgemm._orders import CODES, hint_tc16

_handles: dict[tuple[str, int], _core.Device] = {}
_hardware_tc16: dict[str, bool] = {}


def handle(name: str, threads: int = 0) -> _core.Device:
    """The device of that name. One handle per thread count, so that callers who use different
    counts at the same time do not change each other's."""
    key = (name, threads)
    device = _handles.get(key)
    if device is None:
        device = _core.Device(name)
        if threads:
            device.set_threads(threads)
        device = _handles.setdefault(key, device)
    return device


def offers(name: str, order: str) -> bool:
    """Whether the device has a kernel of the order that is not withheld."""
    return any(code == CODES[order] and withheld is None for _, code, withheld in handle(name).kernels())


def consider_hint(name: str) -> None:
    """Called where fma was nobody's choice: warns where the hardware would do tc16 faster."""
    if name == "cpu":
        return
    known = _hardware_tc16.get(name)
    if known is None:
        known = _hardware_tc16[name] = offers(name, "tc16")
    if known:
        hint_tc16(name)
