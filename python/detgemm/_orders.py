"""Which order a call computes in. Never guessed: "fma" unless someone chose another."""

from __future__ import annotations

import os
import warnings
from typing import Optional

CODES = {"fma": 1, "tc16": 2}
NAMES = {code: name for name, code in CODES.items()}

_chosen: Optional[str] = None
_known = False  # whether _chosen was settled: os.environ is read once, it takes a microsecond
_warned = False


def check(order: str, source: str = "order") -> str:
    """The order if it is one, else an error that names where it came from."""
    if not isinstance(order, str) or order not in CODES:
        raise ValueError(f'{source} is {order!r}; the orders are "fma" and "tc16"')
    return order


def _settle() -> None:
    global _chosen, _known  # noqa: PLW0603
    variable = os.environ.get("DETGEMM_ORDER")
    _chosen = check(variable, "DETGEMM_ORDER") if variable else None
    _known = True


def get_default_order() -> str:
    """The order of calls that name none: set_default_order, else DETGEMM_ORDER (read at the first
    call), else "fma"."""
    if not _known:
        _settle()
    return _chosen or "fma"


def set_default_order(order: Optional[str]) -> None:
    """Sets the order of calls that name none; None goes back to DETGEMM_ORDER, read again, or
    "fma"."""
    global _chosen, _known  # noqa: PLW0603
    _chosen = None if order is None else check(order)
    _known = order is not None


def resolve(order: Optional[str]) -> str:
    """The order of a call from its argument."""
    return get_default_order() if order is None else check(order)


def chosen() -> bool:
    """Whether somebody chose the default order."""
    if not _known:
        _settle()
    return _chosen is not None


def hint_tc16(device: str) -> None:
    """Says once per process what tc16 would gain on a device whose hardware computes it."""
    global _warned  # noqa: PLW0603
    if _warned:
        return
    _warned = True
    warnings.warn(
        f'detgemm computes in the default order "fma", whose bits are the same on every device. '
        f'{device} also offers "tc16", the order of its tensor cores, which is 10 to 20 times '
        f'faster there. Ask for it with order="tc16", detgemm.set_default_order("tc16") or '
        f'DETGEMM_ORDER=tc16; choose "fma" in one of these ways to keep it without this warning.',
        UserWarning,
        stacklevel=3,
    )
