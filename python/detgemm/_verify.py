"""Checks every kernel of every device against the scalar definition of its order, bit for bit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Optional

from detgemm import _core, _cuda, _orders
from detgemm._product import BF16, F32, View

SHAPES = ((1, 1, 1), (1, 33, 48), (16, 64, 128), (7, 129, 67), (65, 17, 300), (128, 130, 0))


@dataclass(frozen=True)
class Check:
    """One kernel on one device: products compared, and the first that differs."""

    device: str
    kernel: str
    order: str
    products: int
    difference: Optional[str]
    skipped: Optional[str] = None


@dataclass(frozen=True)
class Verification:
    """All checks. True where every kernel that was run gave the right bits."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        return all(check.difference is None for check in self.checks)

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        lines = []
        for c in self.checks:
            result = c.difference or (f"skipped: {c.skipped}" if c.skipped else "right")
            lines.append(f"{c.device:<8} {c.kernel:<28} {c.products:>4} products  {result}")
        return "\n".join(lines)


@contextmanager
def _only(kernel: str) -> Iterator[None]:
    before = os.environ.get("DETGEMM_KERNEL")
    os.environ["DETGEMM_KERNEL"] = kernel
    try:
        yield
    finally:
        if before is None:
            del os.environ["DETGEMM_KERNEL"]
        else:
            os.environ["DETGEMM_KERNEL"] = before


def _inputs(shape: tuple[int, int, int], wild: bool, seed: int) -> tuple[Any, Any, Any]:
    """BF16 bits of a and b, and an FP32 state: ordinary numbers, or any bits at all."""
    import numpy as np

    m, n, k = shape
    random = np.random.default_rng(seed)

    def bits(rows: int, cols: int) -> Any:
        if wild:
            return random.integers(0, 1 << 16, (rows, cols), dtype=np.uint16)
        values = random.standard_normal((rows, cols)).astype(np.float32)
        return (values.view(np.uint32) >> 16).astype(np.uint16)

    return bits(m, k), bits(k, n), random.standard_normal((m, n)).astype(np.float32)


def _view(x: Any, dtype: int, address: Optional[int] = None) -> View:
    rows, cols = x.shape
    return (x.ctypes.data if address is None else address, dtype, rows, cols, cols, 1, 0)


def _run(device: _core.Device, order: int, a: Any, b: Any, start: Any, out: Any) -> None:
    """The product on the device, its operands copied there and back where it needs that."""
    if device.name == "cpu":
        device.gemm(
            order, 1, 0, _view(a, BF16), _view(b, BF16), _view(out, F32), _view(start, F32), None
        )
        return
    with _cuda.Context(int(device.name.rpartition(":")[2])) as context:
        arrays = [(a, BF16), (b, BF16), (out, F32), (start, F32)]
        pointers = [context.upload(x.ctypes.data, x.nbytes) for x, _ in arrays]
        try:
            views = [_view(x, dtype, p) for (x, dtype), p in zip(arrays, pointers)]
            device.gemm(order, 1, 0, views[0], views[1], views[2], views[3], None)
            context.download(pointers[2], out.ctypes.data, out.nbytes)
        finally:
            for pointer in pointers:
                context.release(pointer)


def _check(name: str, kernel: str, code: int) -> Check:
    import numpy as np

    order = _orders.NAMES[code]
    with _only(kernel):
        device = _core.Device(name)
    count = 0
    for seed, shape in enumerate(SHAPES):
        for wild in (False, True):
            a, b, start = _inputs(shape, wild, seed)
            expected, got = np.empty_like(start), np.full_like(start, np.nan)
            views = (_view(a, BF16), _view(b, BF16), _view(expected, F32), _view(start, F32), None)
            _core.reference(code, 1, 0, *views)
            try:
                _run(device, code, a, b, start, got)
            except NotImplementedError:
                continue  # this kernel does not take this shape or layout
            count += 1
            bad = np.argwhere(expected.view(np.uint32) != got.view(np.uint32))
            if bad.size:
                i, j = (int(v) for v in bad[0])
                text = (
                    f"{len(bad)} elements differ at M, N, K = {shape}, first at [{i}, {j}]: "
                    f"{got.view(np.uint32)[i, j]:08x} instead of "
                    f"{expected.view(np.uint32)[i, j]:08x}"
                )
                return Check(name, kernel, order, count, text)
    return Check(name, kernel, order, count, None)


def verify(device: Optional[str] = None) -> Verification:
    """Runs every kernel that is not withheld, of one device or of all, on ordinary and on arbitrary
    bits, and compares with the scalar definition of its order."""
    names = [device] if device is not None else _core.device_names()
    checks = []
    for name in names:
        for kernel, code, withheld in _core.Device(name).kernels():
            copies = name.partition(":")[0] in ("cpu", "cuda")
            if withheld is not None:
                checks.append(Check(name, kernel, _orders.NAMES[code], 0, None, withheld))
            elif not copies:
                why = "device memory of this platform is checked by `detgemm verify`"
                checks.append(Check(name, kernel, _orders.NAMES[code], 0, None, why))
            else:
                checks.append(_check(name, kernel, code))
    return Verification(tuple(checks))
