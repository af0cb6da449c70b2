"""Linear layers split over ranks, with the bits of one device.

A sum over K that is split over ranks is not added up from partial results: rank r continues the FP32
state that rank r-1 sends, block of rows by block of rows, so that the ranks work as a pipeline. Any
number of ranks, also uneven shards, gives the same bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Optional, Union

import torch
import torch.distributed as dist
from torch import Tensor, nn

from detgemm import _orders
from detgemm.torch import _accumulate, _kernels, _ops
from detgemm.torch._plain import check_real, uncompiled
from detgemm.torch._ranks import RankError, Ranks
from detgemm.torch._reduction import OrderedReduction, ordered_sum

BLOCK_ROWS = 256  # rows of a block of the pipeline
_IN_FLIGHT = 2  # blocks being sent while the next is computed
_DTYPES = {torch.bfloat16: 1, torch.float16: 2, torch.float32: 3}
_NAMES = {number: str(dtype) for dtype, number in _DTYPES.items()}
_STEPS = {1: "a product", 2: "shares to gather", 3: "a row-parallel layer"}
_PRODUCT, _GATHER, _ROW = _STEPS


def shard_bounds(total: int, ranks: int, order: str, multiple: int = 1) -> list[int]:
    """Where to cut a dimension: ranks + 1 positions, as even as the order allows (tc16 sums are cut
    at multiples of 16), all of them multiples of `multiple` (the width of an attention head). There
    may be more ranks than pieces: then some get nothing."""
    if multiple < 1:
        raise ValueError(f"multiple is {multiple}; it must be 1 or more")
    step = math.lcm(16, multiple) if _orders.check(order) == "tc16" else multiple
    steps = -(-total // step)
    return [min(total, step * (steps * r // ranks)) for r in range(ranks + 1)]


def _show(step: int, rows: int, columns: int, dtype: int, order: int, block: int, grads: int) -> str:
    """The numbers that ranks must agree on, in words."""
    words = f"{_STEPS[step]} of {rows} x {columns} in {_NAMES.get(dtype)}"
    if step == _GATHER:
        return words
    return (
        f"{words}, order {_orders.NAMES[order]}, blocks of {block} rows, "
        f"{'a' if grads else 'no'} gradient needed"
    )


def _blocks(rows: int, size: int) -> list[slice]:
    return [slice(i, min(i + size, rows)) for i in range(0, rows, size)]


class _Broadcast:
    """The result on every rank: a block is on its way as soon as the last rank has it."""

    def __init__(self, ranks: Ranks, like: Tensor, m: int, n: int) -> None:
        self.ranks, self.out = ranks, like.new_empty(m, n)
        self.works: list[Any] = []

    def block(self, rows: slice) -> None:
        self.works.append(self.ranks.start_broadcast(self.out[rows], self.ranks.count - 1))

    def finish(self) -> Tensor:
        for work in self.works:
            self.ranks.wait(work, self.ranks.count - 1, "the result of")
        return self.out


class _Scatter:
    """A share of the result's rows on every rank, on its way as soon as the last rank has it."""

    def __init__(self, ranks: Ranks, like: Tensor, m: int, n: int, bounds: Sequence[int]) -> None:
        self.ranks, self.bounds, self.last = ranks, bounds, ranks.count - 1
        self.rows = slice(bounds[ranks.rank], bounds[ranks.rank + 1])
        own = self.rows.stop - self.rows.start
        self.out = like.new_empty(m if ranks.rank == self.last else own, n)
        self.works: list[tuple[Any, int, str]] = []
        self.next = 0  # the first rank whose share has not left
        if ranks.rank < self.last and self.out.numel():
            self.works.append((ranks.receive(self.out, self.last), self.last, "the result of"))

    def block(self, rows: slice) -> None:
        if self.ranks.rank < self.last:
            return
        while self.next < self.last and self.bounds[self.next + 1] <= rows.stop:
            share = self.out[self.bounds[self.next] : self.bounds[self.next + 1]]
            if share.numel():
                self.works.append((self.ranks.send(share, self.next), self.next, "sending to"))
            self.next += 1

    def finish(self) -> Tensor:
        for work in self.works:
            self.ranks.wait(*work)
        return self.out[self.rows].clone() if self.ranks.rank == self.last else self.out


def _pipeline(
    ranks: Ranks,
    a: Tensor,
    b: Tensor,
    bias: Optional[Tensor],
    order: str,
    block_rows: int,
    delivery: Union[_Broadcast, _Scatter],
) -> Tensor:
    """The product after the ranks have agreed on it."""
    n = b.shape[1]
    first, last = ranks.rank == 0, ranks.rank == ranks.count - 1
    before, after = ranks.rank - 1, ranks.rank + 1
    blocks = _blocks(a.shape[0], block_rows) if n else []
    incoming: list[tuple[Tensor, Any]] = []
    sent: list[tuple[Tensor, Any]] = []

    def expect(index: int) -> None:
        if first or index >= len(blocks):
            return
        rows = blocks[index]
        state = a.new_empty(rows.stop - rows.start, n, dtype=torch.float32)
        incoming.append((state, ranks.receive(state, before)))

    expect(0)
    for i, block in enumerate(blocks):
        expect(i + 1)
        state = None
        if not first:
            state, work = incoming.pop(0)
            ranks.wait(work, before, "receiving from")
        if last:
            delivery.out[block] = _kernels.matmul(a[block], b, state, bias, order, False)
        else:
            state = _kernels.matmul(a[block], b, state, None, order, True)
            sent.append((state, ranks.send(state, after)))
        delivery.block(block)
        if len(sent) > _IN_FLIGHT:  # the buffers of earlier blocks are free again
            ranks.wait(sent.pop(0)[1], after, "sending to")
    for _, work in sent:
        ranks.wait(work, after, "sending to")
    return delivery.finish()


def _continued(
    ranks: Ranks,
    a: Tensor,
    b: Tensor,
    bias: Optional[Tensor],
    order: str,
    block_rows: int,
    scatter: Optional[Sequence[int]],
) -> Tensor:
    """The product after the ranks have agreed on it: all of it, or this rank's rows."""
    m, n = a.shape[0], b.shape[1]
    if scatter is None:
        return _pipeline(ranks, a, b, bias, order, block_rows, _Broadcast(ranks, a, m, n))
    return _pipeline(ranks, a, b, bias, order, block_rows, _Scatter(ranks, a, m, n, scatter))


def _check_cuts(shares: Sequence[int]) -> None:
    """Refuses shares of K that a tc16 sum cannot be cut into."""
    position = 0
    for share in shares:
        if share and position % 16:
            raise ValueError(
                f"the ranks' shares of K are {list(shares)}; in the tc16 order a sum can be cut at "
                f"multiples of 16 only, see shard_bounds"
            )
        position += share


def continued_product(
    a: Tensor,
    b: Tensor,
    *,
    order: str,
    group: Optional[dist.ProcessGroup] = None,
    bias: Optional[Tensor] = None,
    block_rows: int = BLOCK_ROWS,
    scatter: Optional[Sequence[int]] = None,
) -> Tensor:
    """a b of all ranks' shares of K, in ascending rank: a[M, K_r], b[K_r, N] on rank r. Every rank gets
    the result, or its rows scatter[r] to scatter[r + 1] - 1. Receiving the next block and sending the
    last overlap with computing. bias is the last rank's and added once."""

    def check() -> None:
        _kernels.product_shape(a, b, None, bias, _orders.check(order))
        if a.dim() != 2 or b.dim() != 2 or block_rows < 1:
            raise ValueError(
                f"a has {a.dim()} and b {b.dim()} dimensions, block_rows is {block_rows}; two matrices "
                f"and at least one row are needed"
            )
        if scatter is not None and (len(scatter) != ranks.count + 1 or scatter[-1] != a.shape[0]):
            raise ValueError(
                f"scatter is {list(scatter)}; it must be {ranks.count + 1} positions up to {a.shape[0]}"
            )

    ranks = Ranks(group)
    m, n = a.shape[0] if a.dim() else 0, b.shape[-1] if b.dim() else 0
    dtype, code = _DTYPES.get(a.dtype, 0), _orders.CODES.get(order, 0)
    ranks.agree(check, _show, _PRODUCT, m, n, dtype, code, block_rows, 0)
    if order == "tc16":
        _check_cuts([theirs[0] for theirs in ranks.exchange([a.shape[1]])])
    return _continued(ranks, a, b, bias, order, block_rows, scatter)


def _gather(ranks: Ranks, x: Tensor, dim: int) -> tuple[Tensor, list[int]]:
    """The ranks' shares of a dimension put together, and where they are cut."""
    shape = list(x.shape)
    own = shape.pop(dim)

    def check() -> None:
        if x.dtype not in _DTYPES:
            raise TypeError(f"a share is {x.dtype}; detgemm takes bfloat16, float16 and float32")

    outer = math.prod(shape[: dim % x.dim()])
    inner = math.prod(shape[dim % x.dim() :])
    ranks.agree(check, _show, _GATHER, outer, inner, _DTYPES.get(x.dtype, 0), 0, 0, 0)
    sizes = [theirs[0] for theirs in ranks.exchange([own])]
    parts: list[Tensor] = []
    for rank, size in enumerate(sizes):
        shape = list(x.shape)
        shape[dim] = size
        parts.append(x.contiguous() if rank == ranks.rank else x.new_empty(shape))
    for rank, part in enumerate(parts):
        ranks.broadcast(part, rank)
    return torch.cat(parts, dim), [0, *accumulate(sizes)]


def gather_uneven(x: Tensor, *, group: Optional[dist.ProcessGroup] = None, dim: int = 0) -> Tensor:
    """The ranks' shares of a dimension put together, however many each has."""
    return _gather(Ranks(group), x, dim)[0]


def _weight_gradients(
    ctx: Any, x: Tensor, weight: Tensor, dc: Tensor, order: str
) -> tuple[Optional[Tensor], ...]:
    """The gradients of this rank's weight and bias, or none where they go to their FP32 state."""
    needs = ctx.needs_input_grad[1:3]
    options = ctx.layer.accumulation
    if options is not None:
        _accumulate.accumulate_linear(ctx.parameters, needs, x, dc, order, options)
        return None, None
    grads = _ops.linear_gradients((False, *needs), x, weight, ctx.bias, dc, order)
    return grads[1], grads[2]


class _Row(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Optional[Tensor], layer: Any) -> Tensor:
        order, ranks = layer.order, layer.ranks
        scatter = layer.scatter_output

        def check() -> None:
            _kernels.linear_shape(x, weight, bias, order)
            if scatter and x.dim() < 2:
                raise ValueError("the input is a vector; scatter_output needs rows to scatter")

        lead = x.shape[0] if scatter and x.dim() else 1
        rows = math.prod(x.shape[:-1])
        needs = int(scatter and any(ctx.needs_input_grad))
        dtype, code = _DTYPES.get(x.dtype, 0), _orders.CODES[order]
        ranks.agree(check, _show, _ROW, rows, weight.shape[0], dtype, code, BLOCK_ROWS, needs)
        ctx.save_for_backward(x, weight)
        ctx.layer, ctx.parameters, ctx.order = layer, (layer.weight, layer.bias), order
        ctx.bias = None if bias is None else bias.dtype
        bounds = None
        if scatter:
            inner = rows // lead if lead else 0
            bounds = [inner * position for position in layer.row_bounds(lead)]
        product = _continued(ranks, _kernels.rows_of(x), weight.t(), bias, order, BLOCK_ROWS, bounds)
        shape = list(x.shape[:-1])
        if scatter:
            own = layer.row_bounds(lead)
            shape[0] = own[ranks.rank + 1] - own[ranks.rank]
        return product.view(*shape, weight.shape[0])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dc: Tensor) -> tuple[Optional[Tensor], ...]:
        x, weight = ctx.saved_tensors
        rounded = dc.to(x.dtype)
        if ctx.layer.scatter_output:
            rounded = _gather(ctx.layer.ranks, rounded, 0)[0]
        needs = (ctx.needs_input_grad[0], False, False)
        dx = _ops.linear_gradients(needs, x, weight, None, rounded, ctx.order)[0]
        return dx, *_weight_gradients(ctx, x, weight, rounded, ctx.order), None


class _Column(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Optional[Tensor], layer: Any) -> Tensor:
        order = layer.order
        ctx.rows = None
        if layer.gather_input:
            x, ctx.rows = _gather(layer.ranks, x, 0)
        own = _kernels.linear(x, weight, bias, order, False)
        ctx.save_for_backward(x, weight)
        ctx.layer, ctx.parameters, ctx.order = layer, (layer.weight, layer.bias), order
        ctx.bias = None if bias is None else bias.dtype
        return _gather(layer.ranks, own, -1)[0] if layer.gather_output else own

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dc: Tensor) -> tuple[Optional[Tensor], ...]:
        x, weight = ctx.saved_tensors
        layer = ctx.layer
        rounded = dc.to(x.dtype)
        if layer.gather_output:
            rounded = rounded[..., layer.own()]
        dx = None
        if ctx.needs_input_grad[0]:
            rows = _kernels.rows_of(rounded)
            options: dict[str, Any] = {"order": ctx.order, "group": layer.group}
            shape = list(x.shape)
            if ctx.rows is not None:
                inner = math.prod(shape[1:-1])
                rank = layer.ranks.rank
                shape[0] = ctx.rows[rank + 1] - ctx.rows[rank]
                options["scatter"] = [inner * position for position in ctx.rows]
            dx = continued_product(rows, weight, **options).view(shape)
        return dx, *_weight_gradients(ctx, x, weight, rounded, ctx.order), None


class _Parallel(nn.Module):
    """What both layers share: a shard of a whole nn.Linear's parameters."""

    weight: nn.Parameter
    bias: Optional[nn.Parameter]
    function: type[torch.autograd.Function]

    def __init__(
        self,
        order: Optional[str],
        group: Optional[dist.ProcessGroup],
        total: int,
        multiple: int,
        grad_accum: Optional[str],
        grad_pad: bool,
    ) -> None:
        super().__init__()
        self.order = _orders.resolve(order)  # for good, since it says where the shards are cut
        self.group = group
        self.accumulation = _accumulate.options(grad_accum, grad_pad)
        self.ranks = Ranks(group)
        self.bounds = shard_bounds(total, self.ranks.count, self.order, multiple)

    def own(self) -> slice:
        """This rank's share of the split dimension."""
        return slice(self.bounds[self.ranks.rank], self.bounds[self.ranks.rank + 1])

    def row_bounds(self, rows: int) -> list[int]:
        """The shares of the first dimension when it is scattered."""
        count = self.ranks.count
        return [rows * r // count for r in range(count + 1)]

    @uncompiled("a layer split over ranks talks to the other ranks, which a graph cannot do")
    def forward(self, x: Tensor) -> Tensor:
        weight: Tensor = self.weight
        check_real("a layer split over ranks talks to the other ranks", x, weight, self.bias)
        if self.accumulation is not None:
            _accumulate.check_parameters(self.weight, self.bias)
        if torch.is_autocast_enabled(x.device.type):
            dtype = torch.get_autocast_dtype(x.device.type)
            x, weight = x.to(dtype), weight.to(dtype)
        apply: Callable[..., Tensor] = self.function.apply
        return apply(x, weight, self.bias, self)


class ColumnParallelLinear(_Parallel):
    """nn.Linear with its output features split over ranks: weight[N_r, K] here. The input is the same
    on every rank, or this rank's rows of it (gather_input, for sequence parallelism); the output is
    this rank's share, or all of it (gather_output). The gradient of the input is a sum over all N and
    continued from rank to rank. multiple: shards are cut at multiples of it, such as the width of an
    attention head. grad_accum and grad_pad as in DetLinear."""

    function = _Column

    def __init__(
        self,
        linear: nn.Linear,
        *,
        group: Optional[dist.ProcessGroup] = None,
        gather_input: bool = False,
        gather_output: bool = False,
        order: Optional[str] = None,
        multiple: int = 1,
        grad_accum: Optional[str] = None,
        grad_pad: bool = False,
    ) -> None:
        super().__init__(order, group, linear.out_features, multiple, grad_accum, grad_pad)
        self.gather_input, self.gather_output = gather_input, gather_output
        self.weight = nn.Parameter(linear.weight.detach()[self.own()].clone())
        bias = None if linear.bias is None else linear.bias.detach()[self.own()].clone()
        self.bias = None if bias is None else nn.Parameter(bias)


class RowParallelLinear(_Parallel):
    """nn.Linear with its input features split over ranks: weight[N, K_r] here. The input is this rank's
    share; the output is the same on every rank, or this rank's rows of it (scatter_output, for
    sequence parallelism). The bias is whole on every rank and added once. multiple as in
    ColumnParallelLinear, grad_accum and grad_pad as in DetLinear."""

    function = _Row

    def __init__(
        self,
        linear: nn.Linear,
        *,
        group: Optional[dist.ProcessGroup] = None,
        scatter_output: bool = False,
        order: Optional[str] = None,
        multiple: int = 1,
        grad_accum: Optional[str] = None,
        grad_pad: bool = False,
    ) -> None:
        super().__init__(order, group, linear.in_features, multiple, grad_accum, grad_pad)
        self.scatter_output = scatter_output
        self.weight = nn.Parameter(linear.weight.detach()[:, self.own()].clone())
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach().clone())


__all__ = [
    "ColumnParallelLinear",
    "OrderedReduction",
    "RankError",
    "RowParallelLinear",
    "continued_product",
    "gather_uneven",
    "ordered_sum",
    "shard_bounds",
]
