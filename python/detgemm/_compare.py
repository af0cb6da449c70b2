"""Are two arrays the same bits?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

from detgemm._arrays import library


@dataclass(frozen=True)
class Comparison:
    """What differs between two arrays. True where nothing does."""

    equal: bool
    shape: tuple[int, ...]
    dtype: str
    different: int
    first: Optional[tuple[int, ...]]
    worst: Optional[tuple[int, ...]]
    max_ulp: Optional[int]
    bits: Optional[tuple[str, str]]

    def __bool__(self) -> bool:
        return self.equal

    def __str__(self) -> str:
        if self.equal:
            return f"the same bits in all elements ({self.dtype}{list(self.shape)})"
        assert self.bits is not None
        ulp = "NaN against a number" if self.max_ulp is None else f"{self.max_ulp} ULP"
        return (
            f"{self.different} elements differ ({self.dtype}{list(self.shape)}); first at "
            f"{self.first}: {self.bits[0]} against {self.bits[1]}; worst at {self.worst}: {ulp}"
        )


def to_numpy(x: Any) -> tuple[Any, str]:
    """The array as NumPy holds it on the host, 16-bit brain floats as uint16, and its dtype."""
    import numpy as np

    if library(x) == "torch":
        import torch

        name = str(x.dtype).rpartition(".")[2]
        host = x.detach().cpu()
        return (
            (host.view(torch.int16).numpy().view(np.uint16), name)
            if name == "bfloat16"
            else (
                host.numpy(),
                name,
            )
        )
    if library(x) == "cupy":
        x = x.get()
    host = np.asarray(x)
    return (
        (host.view(np.uint16), "bfloat16")
        if host.dtype.name == "bfloat16"
        else (
            host,
            host.dtype.name,
        )
    )


def _ordered(bits: Any) -> Any:
    """Floating-point bits as integers that count representable numbers from zero."""
    import numpy as np

    width = bits.dtype.itemsize * 8
    wide = bits.astype(np.int64)
    magnitude = wide & ((1 << (width - 1)) - 1)
    return np.where(wide >> (width - 1), -magnitude, magnitude)


def _is_nan(bits: Any, name: str) -> Any:
    infinity = {"float16": 0x7C00, "float32": 0x7F800000}.get(name, 0x7F80)
    return (bits & (0x7FFF if bits.dtype.itemsize == 2 else 0x7FFFFFFF)) > infinity


def compare(x: Any, y: Any) -> Comparison:
    """Compares two arrays bit for bit: +0 and -0 differ, and two NaNs are the same only if their
    bits are. Another dtype or shape is a TypeError or ValueError. uint16 counts as BF16 bits."""
    import numpy as np

    (left, name), (right, other) = to_numpy(x), to_numpy(y)
    if {name, other} == {"uint16", "bfloat16"}:
        name = other = "bfloat16"
    if name != other:
        raise TypeError(f"x is {name} and y is {other}; bits of different types do not compare")
    if left.shape != right.shape:
        raise ValueError(f"x has shape {left.shape} and y {right.shape}")
    if name not in ("bfloat16", "uint16", "float16", "float32"):
        raise TypeError(f"dtype {name} is not known; use bfloat16, float16 or float32")
    unsigned = np.uint16 if left.dtype.itemsize == 2 else np.uint32
    a = np.ascontiguousarray(left).view(unsigned)
    b = np.ascontiguousarray(right).view(unsigned)
    where = np.flatnonzero(a.ravel() != b.ravel())
    if where.size == 0:
        return Comparison(True, left.shape, name, 0, None, None, 0, None)
    p, q = a.ravel()[where], b.ravel()[where]
    distance = np.abs(_ordered(p) - _ordered(q))
    nan = _is_nan(p, name) | _is_nan(q, name)
    worst = int(np.argmax(np.where(nan, np.int64(1) << 40, distance)))

    def index(position: int) -> tuple[int, ...]:
        return tuple(int(i) for i in np.unravel_index(position, left.shape))

    digits = left.dtype.itemsize * 2
    return Comparison(
        False,
        left.shape,
        name,
        int(where.size),
        index(int(where[0])),
        index(int(where[worst])),
        None if bool(nan[worst]) else int(distance[worst]),
        (f"{int(p[0]):0{digits}x}", f"{int(q[0]):0{digits}x}"),
    )
