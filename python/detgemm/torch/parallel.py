"""Linear layers split over ranks, and gradients reduced over ranks, with the bits of one device.

A sum over K that is split over ranks is not added up from partial results: rank r continues the FP32
state that rank r-1 sends, block of rows by block of rows, so that the ranks work as a pipeline. Any
number of ranks, also uneven shards, gives the same bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch import Tensor, nn

from detgemm import _orders
from detgemm.torch import _kernels, _ops

BLOCK_ROWS = 256  # rows of a block of the pipeline
_DTYPE_NUMBERS = {torch.bfloat16: 1, torch.float16: 2, torch.float32: 3}


def shard_bounds(total: int, ranks: int, order: str) -> list[int]:
    """Where to cut a dimension: ranks + 1 positions, as even as the order allows (tc16 sums are cut
    at multiples of 16). Ranks past the end get nothing."""
    step = 16 if order == "tc16" else 1
    steps = -(-total // step)
    return [min(total, step * (steps * r // ranks)) for r in range(ranks + 1)]


@contextmanager
def _naming(rank: int, what: str) -> Iterator[None]:
    """Turns a failed communication into an error that says which rank did not do its part."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if isinstance(error, RankError):
            raise
        raise RankError(f"rank {dist.get_rank()}: {what} rank {rank} failed: {error}") from error


class RankError(RuntimeError):
    """A rank of the group is gone, did not answer in time, or came with other shapes."""


class _Ranks:
    """A process group seen from one rank."""

    def __init__(self, group: Optional[dist.ProcessGroup]) -> None:
        self.group = group
        self.rank, self.count = dist.get_rank(group), dist.get_world_size(group)

    def world(self, rank: int) -> int:
        return rank if self.group is None else dist.get_global_rank(self.group, rank)

    def agree(self, *numbers: int) -> None:
        """An error on every rank where the ranks did not come with the same numbers."""
        device = "cpu" if dist.get_backend(self.group) == "gloo" else "cuda"
        own = torch.tensor(numbers, dtype=torch.int64, device=device)
        everyone = [torch.empty_like(own) for _ in range(self.count)]
        try:
            dist.all_gather(everyone, own, group=self.group)
        except (RuntimeError, ValueError) as error:
            raise RankError(
                f"rank {self.rank}: a rank of the group is gone or did not answer: {error}"
            ) from error
        listed = [tuple(x.tolist()) for x in everyone]
        for rank, theirs in enumerate(listed):
            if theirs != listed[0]:
                raise RankError(
                    f"rank {self.rank}: rank {rank} came with (rows, columns, dtype, order) = {theirs} "
                    f"and rank 0 with {listed[0]}"
                )

    def receive(self, x: Tensor, source: int) -> Any:
        with _naming(source, "receiving from"):
            return dist.irecv(x, self.world(source), group=self.group)

    def send(self, x: Tensor, target: int) -> Any:
        with _naming(target, "sending to"):
            return dist.isend(x, self.world(target), group=self.group)

    def wait(self, work: Any, peer: int, what: str) -> None:
        with _naming(peer, what):
            work.wait()

    def broadcast(self, x: Tensor, source: int) -> Tensor:
        with _naming(source, "the result of"):
            dist.broadcast(x, self.world(source), group=self.group)
        return x


def _blocks(rows: int, size: int) -> list[slice]:
    return [slice(i, min(i + size, rows)) for i in range(0, rows, size)]


def continued_product(
    a: Tensor,
    b: Tensor,
    *,
    order: str,
    group: Optional[dist.ProcessGroup] = None,
    bias: Optional[Tensor] = None,
    block_rows: int = BLOCK_ROWS,
) -> Tensor:
    """a b of all ranks' shares of K, in ascending rank: a[M, K_r], b[K_r, N] on rank r. Every rank gets
    the result. Receiving the next block and sending the last overlap with computing."""
    ranks = _Ranks(group)
    m, n = a.shape[0], b.shape[1]
    ranks.agree(m, n, _DTYPE_NUMBERS[a.dtype], _orders.CODES[order])
    out = a.new_empty(m, n)
    blocks = _blocks(m, block_rows)
    first, last = ranks.rank == 0, ranks.rank == ranks.count - 1
    incoming: list[tuple[Tensor, Any]] = []
    sent: list[tuple[Tensor, Any]] = []

    def expect(block: slice) -> None:
        state = a.new_empty(block.stop - block.start, n, dtype=torch.float32)
        incoming.append((state, ranks.receive(state, ranks.rank - 1)))

    if not first and blocks:
        expect(blocks[0])
    for i, block in enumerate(blocks):
        state = None
        if not first:
            if i + 1 < len(blocks):
                expect(blocks[i + 1])
            state, work = incoming.pop(0)
            ranks.wait(work, ranks.rank - 1, "receiving from")
        if last:
            out[block] = _kernels.matmul(a[block], b, state, bias, order, False)
            continue
        state = _kernels.matmul(a[block], b, state, None, order, True)
        sent.append((state, ranks.send(state, ranks.rank + 1)))
        if len(sent) > 2:  # the buffers of earlier blocks are free again
            ranks.wait(sent.pop(0)[1], ranks.rank + 1, "sending to")
    for _, work in sent:
        ranks.wait(work, ranks.rank + 1, "sending to")
    return ranks.broadcast(out, ranks.count - 1)


def gather_uneven(
    x: Tensor, bounds: Sequence[int], group: Optional[dist.ProcessGroup], dim: int
) -> Tensor:
    """The ranks' shares of a dimension put together."""
    ranks = _Ranks(group)
    parts = []
    for rank in range(ranks.count):
        shape = list(x.shape)
        shape[dim] = bounds[rank + 1] - bounds[rank]
        part = x.contiguous() if rank == ranks.rank else x.new_empty(shape)
        parts.append(ranks.broadcast(part, rank))
    return torch.cat(parts, dim)


class _Row(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Optional[Tensor], layer: Any) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.layer, ctx.bias = layer, None if bias is None else bias.dtype
        order = _orders.resolve(layer.order)
        product = continued_product(
            _kernels.rows_of(x), weight.t(), order=order, group=layer.group, bias=bias
        )
        product = product.view(*x.shape[:-1], weight.shape[0])
        if not layer.scatter_output:
            return product
        bounds = layer.row_bounds(product.shape[0])
        return product[bounds[layer.rank] : bounds[layer.rank + 1]].clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dc: Tensor) -> tuple[Optional[Tensor], ...]:
        x, weight = ctx.saved_tensors
        layer = ctx.layer
        if layer.scatter_output:
            dc = gather_uneven(dc, layer.row_bounds(x.shape[0]), layer.group, 0)
        order = _orders.resolve(layer.order)
        grads = _ops.linear_gradients(ctx.needs_input_grad, x, weight, ctx.bias, dc, order)
        return (*grads, None)


class _Column(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Optional[Tensor], layer: Any) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.layer, ctx.bias = layer, None if bias is None else bias.dtype
        order = _orders.resolve(layer.order)
        own = _kernels.linear(x, weight, bias, order, False)
        return gather_uneven(own, layer.bounds, layer.group, -1) if layer.gather_output else own

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dc: Tensor) -> tuple[Optional[Tensor], ...]:
        x, weight = ctx.saved_tensors
        layer = ctx.layer
        order = _orders.resolve(layer.order)
        if layer.gather_output:
            dc = dc[..., layer.bounds[layer.rank] : layer.bounds[layer.rank + 1]]
        rounded = dc.to(x.dtype)
        dx = None
        if ctx.needs_input_grad[0]:
            dx = continued_product(_kernels.rows_of(rounded), weight, order=order, group=layer.group)
            dx = dx.view(x.shape)
        needs = (False, *ctx.needs_input_grad[1:3])
        grads = _ops.linear_gradients(needs, x, weight, ctx.bias, rounded, order)
        return dx, grads[1], grads[2], None


class _Parallel(nn.Module):
    """What both layers share: a shard of a whole nn.Linear's parameters."""

    weight: nn.Parameter
    bias: Optional[nn.Parameter]

    def __init__(self, order: Optional[str], group: Optional[dist.ProcessGroup], total: int) -> None:
        super().__init__()
        self.order = None if order is None else _orders.check(order)
        self.group = group
        ranks = _Ranks(group)
        self.rank, self.ranks = ranks.rank, ranks.count
        self.bounds = shard_bounds(total, ranks.count, _orders.resolve(order))

    def own(self) -> slice:
        """This rank's share of the split dimension."""
        return slice(self.bounds[self.rank], self.bounds[self.rank + 1])

    def row_bounds(self, rows: int) -> list[int]:
        """The shares of the first dimension when the output is scattered."""
        return [rows * r // self.ranks for r in range(self.ranks + 1)]


class ColumnParallelLinear(_Parallel):
    """nn.Linear with its output features split over ranks: weight[N_r, K] here. The input is the same
    on every rank; the output is this rank's share, or all of it. The gradient of the input is a sum
    over all N and continued from rank to rank."""

    def __init__(
        self,
        linear: nn.Linear,
        *,
        group: Optional[dist.ProcessGroup] = None,
        gather_output: bool = False,
        order: Optional[str] = None,
    ) -> None:
        super().__init__(order, group, linear.out_features)
        self.gather_output = gather_output
        self.weight = nn.Parameter(linear.weight.detach()[self.own()].clone())
        bias = None if linear.bias is None else linear.bias.detach()[self.own()].clone()
        self.bias = None if bias is None else nn.Parameter(bias)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = _Column.apply(x, self.weight, self.bias, self)  # type: ignore[no-untyped-call]
        return result


class RowParallelLinear(_Parallel):
    """nn.Linear with its input features split over ranks: weight[N, K_r] here. The input is this rank's
    share; the output is the same on every rank, or this rank's rows of it (scatter_output, for
    sequence parallelism). The bias is whole on every rank and added once."""

    def __init__(
        self,
        linear: nn.Linear,
        *,
        group: Optional[dist.ProcessGroup] = None,
        scatter_output: bool = False,
        order: Optional[str] = None,
    ) -> None:
        super().__init__(order, group, linear.in_features)
        self.scatter_output = scatter_output
        self.weight = nn.Parameter(linear.weight.detach()[:, self.own()].clone())
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = _Row.apply(x, self.weight, self.bias, self)  # type: ignore[no-untyped-call]
        return result


def ordered_sum(terms: Sequence[Tensor], group: Optional[dist.ProcessGroup] = None) -> Tensor:
    """The FP32 sum of all ranks' terms, one after another in rank order, on every rank. The terms of
    the micro-batches 0, 1, 2, ... give the same bits however they are dealt out in this order."""
    ranks = _Ranks(group)
    ranks.agree(terms[0].numel(), 0, 3, 0)
    total = torch.zeros_like(terms[0], dtype=torch.float32)
    if ranks.rank > 0:
        ranks.wait(ranks.receive(total, ranks.rank - 1), ranks.rank - 1, "receiving from")
    for term in terms:
        total += term.to(torch.float32)
    if ranks.rank < ranks.count - 1:
        ranks.wait(ranks.send(total, ranks.rank + 1), ranks.rank + 1, "sending to")
    return ranks.broadcast(total, ranks.count - 1)


class OrderedReduction:
    """A communication hook for DistributedDataParallel: model.register_comm_hook(state, hook).

    Gradients are summed in FP32 in rank order, and divided by the number of micro-batches. Within
    collect(), backward passes keep the gradients of their micro-batch instead of reducing them; the
    first backward after it reduces all. Gradients stay as DDP leaves them, zero, in between."""

    def __init__(self, group: Optional[dist.ProcessGroup] = None) -> None:
        self.group = group
        self._kept: dict[int, list[Tensor]] = {}
        self._collecting = False

    @contextmanager
    def collect(self) -> Iterator[None]:
        self._collecting = True
        try:
            yield
        finally:
            self._collecting = False

    def hook(self, state: Any, bucket: Any) -> torch.futures.Future[Tensor]:
        """What register_comm_hook takes; state is not used."""
        future: torch.futures.Future[Tensor] = torch.futures.Future()
        buffer: Tensor = bucket.buffer()
        parameters = bucket.parameters()
        for parameter, gradient in zip(parameters, bucket.gradients()):
            kept = self._kept.setdefault(id(parameter), [])
            kept.append(gradient.to(torch.float32, copy=True).view(-1))
        if self._collecting:
            future.set_result(torch.zeros_like(buffer))
            return future
        # By parameter, since DDP sorts its buckets anew after the first backward.
        lists = [self._kept.pop(id(parameter)) for parameter in parameters]
        terms = [torch.cat(pieces) for pieces in zip(*lists)]
        total = ordered_sum(terms, self.group)
        count = torch.tensor([len(terms)], device=buffer.device)
        dist.all_reduce(count, group=self.group)
        future.set_result((total / count.item()).to(buffer.dtype))
        return future


# DistributedDataParallel compares these with the types themselves, not with their names.
OrderedReduction.hook.__annotations__.update(
    {
        "bucket": dist.GradBucket,  # type: ignore[attr-defined]
        "return": torch.futures.Future[Tensor],
    }
)

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
