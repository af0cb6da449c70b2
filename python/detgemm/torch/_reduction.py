"""Gradients of data-parallel ranks added in one sequence, whoever computed them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch import Tensor, nn

from detgemm.torch._ranks import Ranks

PIECE = 1 << 20  # elements of a piece of the pipeline


def _show(elements: int) -> str:
    return f"gradients of {elements} elements" if elements >= 0 else "no terms"


def _sequence(ranks: Ranks, own: Sequence[Optional[int]]) -> list[tuple[int, int]]:
    """All terms as (rank, place among its own), in the sequence of the sum: by index, or, where none has
    one, rank after rank."""
    counts = [theirs[0] for theirs in ranks.exchange([len(own)])]
    longest = max(counts)
    padded = [-1 if i is None else i for i in own] + [-2] * (longest - len(own))
    listed = ranks.exchange(padded) if longest else []
    terms = [(i, r, at) for r, theirs in enumerate(listed) for at, i in enumerate(theirs) if i != -2]
    indices = [i for i, _, _ in terms]
    if any(i < 0 for i in indices) and any(i >= 0 for i in indices):
        raise ValueError("some micro-batches have an index and some have none; give all of them one")
    terms.sort(key=lambda term: term[0])
    for (i, r, _), (j, s, _) in zip(terms, terms[1:]):
        if i == j >= 0:
            raise ValueError(
                f"micro-batch {i} is on rank {ranks.world(r)} and again on rank {ranks.world(s)}; the "
                f"indices of all ranks' micro-batches must differ"
            )
    return [(r, at) for _, r, at in terms]


def _sum(ranks: Ranks, terms: Sequence[Tensor], sequence: list[tuple[int, int]], total: Tensor) -> None:
    """Adds the terms to total, a state that visits the ranks in the sequence of the terms, piece by
    piece. The result is on the rank of the last term.

    Piece p is at stop s at time p + s; every rank goes through its own in the order of time, so that
    whatever a rank waits for is under way."""
    stops = [(rank, [at for _, at in run]) for rank, run in groupby(sequence, key=lambda term: term[0])]
    pieces = list(zip(total.split(PIECE), *(term.split(PIECE) for term in terms)))
    mine = [s for s, (rank, _) in enumerate(stops) if rank == ranks.rank]
    sent: list[tuple[Tensor, Any, int]] = []
    for _, s, p in sorted((p + s, s, p) for s in mine for p in range(len(pieces))):
        piece, *own = pieces[p]
        if s > 0:
            source = stops[s - 1][0]
            ranks.wait(ranks.receive(piece, source), source, "receiving from")
        for at in stops[s][1]:
            piece += own[at]
        if s < len(stops) - 1:
            target = stops[s + 1][0]
            leaving = piece.clone() if len(mine) > 1 else piece  # it may come back while this one leaves
            sent.append((leaving, ranks.send(leaving, target), target))
    for _, work, target in sent:
        ranks.wait(work, target, "sending to")


def ordered_sum(
    terms: Sequence[Tensor],
    group: Optional[dist.ProcessGroup] = None,
    *,
    indices: Optional[Sequence[int]] = None,
    like: Optional[Tensor] = None,
) -> Tensor:
    """The FP32 sum of all ranks' terms, one after another, on every rank.

    indices are the terms' places in the sequence, different over all ranks: then it does not matter
    which rank has which terms. Without indices the sequence is rank after rank. A rank may have no
    terms if it gives a tensor like the others' terms."""
    ranks = Ranks(group)
    flat = [term.detach().to(torch.float32).reshape(-1) for term in terms]
    sample = terms[0] if terms else like

    def check() -> None:
        if sample is None:
            raise ValueError("this rank has no terms; give like, a tensor of the others' shape")
        if any(term.shape != sample.shape for term in terms):
            shapes = [tuple(term.shape) for term in terms]
            raise ValueError(f"terms have the shapes {shapes}; they must be equal")
        if indices is not None and (len(indices) != len(terms) or min(indices, default=0) < 0):
            raise ValueError(f"indices are {list(indices)}; {len(terms)} numbers from 0 are needed")

    ranks.agree(check, _show, -1 if sample is None else sample.numel())
    assert sample is not None
    sequence = _sequence(ranks, [None] * len(flat) if indices is None else indices)
    total = sample.new_zeros(sample.numel(), dtype=torch.float32)
    if sequence and total.numel():
        _sum(ranks, flat, sequence, total)
        ranks.broadcast(total, sequence[-1][0])
    return total.view(sample.shape)


class OrderedReduction:
    """The gradient reduction of a DistributedDataParallel model, as its communication hook: gradients
    are summed in FP32, micro-batch after micro-batch, and divided by the number of micro-batches.

    Forward and backward of every micro-batch of a rank but its last run within collect() or
    micro_batch(index, last=False), which keep its gradients apart; the last one reduces all. With
    indices the sum runs by ascending index, whichever ranks had them; without, rank after rank. Ranks
    may have different numbers of micro-batches."""

    def __init__(self, model: nn.parallel.DistributedDataParallel) -> None:
        self.model, self.group = model, model.process_group
        self._kept: dict[Tensor, list[tuple[Optional[int], Tensor]]] = {}
        self._counts = True
        self._index: Optional[int] = None
        model.register_comm_hook(None, self.hook)

    @contextmanager
    def collect(self) -> Iterator[None]:
        """For all micro-batches of this rank but the last, where they have no index."""
        with self._kept_apart(None, True):
            yield

    @contextmanager
    def micro_batch(self, index: Optional[int], *, last: bool) -> Iterator[None]:
        """For forward and backward of one micro-batch: its place in the sequence of all ranks'
        micro-batches, and whether it is this rank's last one. With index None the pass counts for
        nothing: for a rank that has no micro-batch, since DDP wants a backward pass of every rank."""
        if not last:
            with self._kept_apart(index, index is not None):
                yield
            return
        self._counts, self._index = index is not None, index
        try:
            yield
        finally:
            self._counts, self._index = True, None

    @contextmanager
    def _kept_apart(self, index: Optional[int], counts: bool) -> Iterator[None]:
        """A pass without communication: DDP's ranks stay in step however many of these they do."""
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        before = [p.grad for p in parameters]
        for p in parameters:
            p.grad = None
        try:
            with self.model.no_sync():
                yield
            for p in parameters:
                if counts:  # in the parameter's own layout, as DDP lays out its buckets
                    gradient = torch.zeros_like(p.detach())
                    if p.grad is not None:
                        gradient.copy_(p.grad)
                    self._keep(p, index, gradient.as_strided((p.numel(),), (1,)))
        finally:
            for p, grad in zip(parameters, before):
                p.grad = grad

    def _keep(self, parameter: Tensor, index: Optional[int], gradient: Tensor) -> None:
        flat = gradient.to(torch.float32, copy=True).view(-1)
        self._kept.setdefault(parameter, []).append((index, flat))

    def hook(self, state: Any, bucket: Any) -> torch.futures.Future[Tensor]:
        """What register_comm_hook takes; state is not used."""
        buffer: Tensor = bucket.buffer()
        devices: list[Any] = [] if buffer.device.type == "cpu" else [buffer.device]
        future: torch.futures.Future[Tensor] = torch.futures.Future(devices=devices or None)
        parameters = bucket.parameters()
        if self._counts:
            for parameter, gradient in zip(parameters, bucket.gradients()):
                self._keep(parameter, self._index, gradient)
        # By parameter, since DDP sorts its buckets anew after the first backward.
        lists = [self._kept.pop(parameter, []) for parameter in parameters]
        terms = [torch.cat([gradient for _, gradient in pieces]) for pieces in zip(*lists)]
        given = [index for index, _ in lists[0]]
        indices = None if None in given or not given else [i for i in given if i is not None]
        total = ordered_sum(terms, self.group, indices=indices, like=buffer)
        count = sum(n for (n,) in Ranks(self.group).exchange([len(terms)]))
        future.set_result((total / max(count, 1)).to(buffer.dtype))
        return future


# DistributedDataParallel compares these with the types themselves, not with their names.
OrderedReduction.hook.__annotations__.update(
    {
        "bucket": dist.GradBucket,  # type: ignore[attr-defined]
        "return": torch.futures.Future[Tensor],
    }
)
