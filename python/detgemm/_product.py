"""One product of strided arrays with any number of batch dimensions, as calls of the library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Optional

# (address, dtype, rows, columns, row stride, column stride, batch stride)
View = Optional[tuple[int, int, int, int, int, int, int]]

BF16, F16, F32 = 1, 2, 3
NAMES = {BF16: "bfloat16", F16: "float16", F32: "float32"}
SIZES = {BF16: 2, F16: 2, F32: 4}

# gemm(order, batch, stream, a, b, out, start, bias)
Gemm = Callable[[int, int, int, View, View, View, View, View], None]


class Strided(NamedTuple):
    """Memory as the library sees it: strides count elements."""

    address: int
    dtype: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def broadcast(self, batch: tuple[int, ...]) -> Strided:
        """The same matrix or matrices, repeated (with stride 0) to these batch dimensions."""
        own, steps = self.shape[:-2], self.strides[:-2]
        missing = len(batch) - len(own)
        strides = [0] * missing + [0 if n == 1 else s for n, s in zip(own, steps)]
        return self._replace(shape=batch + self.shape[-2:], strides=tuple(strides) + self.strides[-2:])

    def transposed(self) -> Strided:
        """Rows and columns exchanged."""
        shape, strides = self.shape, self.strides
        return self._replace(
            shape=(*shape[:-2], shape[-1], shape[-2]),
            strides=(*strides[:-2], strides[-1], strides[-2]),
        )


def broadcast_shapes(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The batch dimensions that two operands have together."""
    result = []
    for i in range(1, max(len(a), len(b)) + 1):
        x = a[-i] if i <= len(a) else 1
        y = b[-i] if i <= len(b) else 1
        if x != y and 1 not in (x, y):
            raise ValueError(f"batch dimensions {a} of a and {b} of b do not go together")
        result.append(y if x == 1 else x)
    return tuple(reversed(result))


class _Batch(NamedTuple):
    extent: int
    strides: tuple[int, ...]  # of a, b, out and start


def _merge(shape: tuple[int, ...], operands: list[Strided]) -> list[_Batch]:
    """The batch dimensions with those of one element dropped and neighbours joined where every
    operand steps evenly through both."""
    merged: list[_Batch] = []
    for i, extent in enumerate(shape):
        if extent == 1:
            continue
        strides = tuple(x.strides[i] for x in operands)
        if merged and all(s == t * extent for s, t in zip(merged[-1].strides, strides)):
            merged[-1] = _Batch(merged[-1].extent * extent, strides)
        else:
            merged.append(_Batch(extent, strides))
    return merged


def _offsets(dims: list[_Batch], count: int) -> Iterator[tuple[int, ...]]:
    if not dims:
        yield (0,) * count
        return
    for i in range(dims[0].extent):
        for rest in _offsets(dims[1:], count):
            yield tuple(i * s + r for s, r in zip(dims[0].strides, rest))


def _view(x: Strided, offset: int, step: int) -> View:
    address = x.address + offset * SIZES.get(x.dtype, 0)
    return (address, x.dtype, *x.shape[-2:], *x.strides[-2:], step)  # type: ignore[return-value]


def multiply(
    gemm: Gemm,
    order: int,
    stream: int,
    a: Strided,
    b: Strided,
    out: Strided,
    start: Optional[Strided] = None,
    bias: Optional[Strided] = None,
) -> None:
    """out[..., M, N] = a[..., M, K] b[..., K, N]. The batch dimensions of a, b and start are
    broadcast to those of out. bias is [N]. Nothing is copied: batch dimensions become rows where
    b is shared and the strides allow, else the library's batch, else several calls."""
    batch = out.shape[:-2]
    operands = [a.broadcast(batch), b.broadcast(batch), out]
    if start is not None:
        operands.append(start.broadcast(batch))
    dims = _merge(batch, operands)
    rows = out.shape[-2]
    if dims and dims[-1].strides[1] == 0:
        last = dims[-1]
        by_rows = [0, 2, 3][: len(operands) - 1]
        if rows == 1 or all(last.strides[i] == operands[i].strides[-2] * rows for i in by_rows):
            steps = last.strides if rows == 1 else tuple(x.strides[-2] for x in operands)
            for i in by_rows:
                x = operands[i]
                operands[i] = x._replace(
                    shape=(*x.shape[:-2], rows * last.extent, x.shape[-1]),
                    strides=(*x.strides[:-2], steps[i], x.strides[-1]),
                )
            dims.pop()
    largest = max(range(len(dims)), key=lambda i: dims[i].extent, default=None)
    inner = dims.pop(largest) if largest is not None else _Batch(1, (0,) * len(operands))
    vector = None
    if bias is not None:
        vector = (bias.address, bias.dtype, 1, bias.shape[-1], 0, bias.strides[-1], 0)
    for offsets in _offsets(dims, len(operands)):
        views = [_view(*v) for v in zip(operands, offsets, inner.strides)]
        gemm(
            order,
            inner.extent,
            stream,
            views[0],
            views[1],
            views[2],
            views[3] if start is not None else None,
            vector,
        )
