"""A process group seen from one rank, whose failures say which rank did not do its part."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch import Tensor

GRACE = 2.0  # seconds in which the other ranks may say whom they wait for
_FIRST, _WAITS, _KNOWS = "detgemm/first", "detgemm/waits/", "detgemm/knows/"
_TAG = 1 << 16  # of the messages of agree(); those of products have 0

_control_groups: dict[Any, dist.ProcessGroup] = {}


class RankError(RuntimeError):
    """A rank of the group is gone, did not answer in time, or came with something else than others."""


def _control_group(group: Optional[dist.ProcessGroup]) -> Optional[dist.ProcessGroup]:
    """A group of the same ranks for messages in host memory. A collective call the first time."""
    if "cpu:gloo" in dist.get_backend_config(group):
        return group
    whole = group or dist.group.WORLD
    if whole not in _control_groups:
        members = dist.get_process_group_ranks(whole)
        _control_groups[whole] = dist.new_group(
            members, timeout=_timeout(whole), backend="gloo", use_local_synchronization=True
        )
    return _control_groups[whole]


def _timeout(group: Any) -> Any:
    """The timeout of a group, or None for PyTorch's default."""
    try:
        return group._get_backend(torch.device("cuda")).options._timeout
    except (AttributeError, RuntimeError):
        return None


class Ranks:
    """A process group seen from one rank. Ranks are counted within the group; messages name them by
    their number in the whole world."""

    def __init__(self, group: Optional[dist.ProcessGroup]) -> None:
        self.group = group
        self.rank, self.count = dist.get_rank(group), dist.get_world_size(group)
        self._control = _control_group(group)

    def world(self, rank: int) -> int:
        return rank if self.group is None else dist.get_global_rank(self.group, rank)

    @property
    def own(self) -> int:
        return self.world(self.rank)

    # ---- who is to blame ----

    def _store(self) -> Any:
        group: Any = self._control or dist.group.WORLD
        return dist.distributed_c10d._get_process_group_store(group)

    def _culprit(self, peer: int) -> int:
        """The rank at the end of the chain of ranks that wait for each other, and the same one on
        every rank. A rank that is gone or hangs says nothing; what waits for it does."""
        store = self._store()
        store.set(_WAITS + str(self.rank), str(peer))
        end = time.monotonic() + GRACE
        while time.monotonic() < end and not store.check([_FIRST]):
            seen = {self.rank}
            while peer not in seen and store.check([_WAITS + str(peer)]):
                seen.add(peer)
                peer = int(store.get(_WAITS + str(peer)))
            time.sleep(0.02)
        culprit = int(store.compare_set(_FIRST, "", str(peer)))
        store.set(_KNOWS + str(self.rank), "")
        if self.own == 0:  # whose process often keeps the store: the others have to read it first
            everyone = [_KNOWS + str(r) for r in range(self.count) if r != culprit]
            end += GRACE
            while time.monotonic() < end and not store.check(everyone):
                time.sleep(0.02)
        return culprit

    def failure(self, peer: int, doing: str, error: BaseException) -> RankError:
        """The error for a communication with a rank that failed."""
        try:
            culprit = self._culprit(peer)
        except (RuntimeError, ValueError):  # the store went with the rank that kept it
            culprit = peer
        if culprit == self.rank:
            what = f"the others got no answer from rank {self.own}, this one, in time"
        else:
            what = f"rank {self.world(culprit)} is gone or did not answer in time"
        cause = str(error).split(". ")[0]
        return RankError(f"rank {self.own}: {what}; {doing} rank {self.world(peer)} failed: {cause}")

    @contextmanager
    def naming(self, peer: int, doing: str) -> Iterator[None]:
        """Turns a failed communication into an error that says which rank did not do its part."""
        try:
            yield
        except RankError:
            raise
        except (RuntimeError, ValueError) as error:
            raise self.failure(peer, doing, error) from error

    # ---- messages ----

    def receive(self, x: Tensor, source: int) -> Any:
        with self.naming(source, "receiving from"):
            return dist.irecv(x, self.world(source), group=self.group)

    def send(self, x: Tensor, target: int) -> Any:
        with self.naming(target, "sending to"):
            return dist.isend(x, self.world(target), group=self.group)

    def wait(self, work: Any, peer: int, doing: str) -> None:
        with self.naming(peer, doing):
            work.wait()

    def start_broadcast(self, x: Tensor, source: int) -> Any:
        with self.naming(source, "the result of"):
            return dist.broadcast(x, self.world(source), group=self.group, async_op=True)

    def broadcast(self, x: Tensor, source: int) -> Tensor:
        if x.numel():
            self.wait(self.start_broadcast(x, source), source, "the result of")
        return x

    def exchange(self, numbers: Sequence[int]) -> list[list[int]]:
        """Every rank's numbers, as many from each. Straight from rank to rank, so that a rank that
        is gone or silent is known by its number."""
        own = torch.tensor(numbers, dtype=torch.int64)
        everyone = [own.clone() for _ in range(self.count)]
        others = [r for r in range(self.count) if r != self.rank]
        works: list[tuple[Any, int, str]] = []
        for call, doing in ((dist.irecv, "hearing from"), (dist.isend, "talking to")):
            for r in others:
                with self.naming(r, doing):
                    x = everyone[r] if call is dist.irecv else own
                    works.append((call(x, self.world(r), group=self._control, tag=_TAG), r, doing))
        for work, r, doing in works:
            self.wait(work, r, doing)
        return [x.tolist() for x in everyone]

    def agree(self, check: Callable[[], None], show: Callable[..., str], *numbers: int) -> None:
        """An error on every rank where the ranks do not come with the same numbers, or where one
        cannot go on because its check raises. show puts numbers into words."""
        problem: Optional[Exception] = None
        try:
            check()
        except (TypeError, ValueError) as error:
            problem = error
        listed = self.exchange([int(problem is not None), *numbers])
        if problem is not None:
            raise problem
        refused = [self.world(r) for r, theirs in enumerate(listed) if theirs[0]]
        if refused:
            raise RankError(f"rank {self.own}: rank {refused[0]} refused its arguments; see its error")
        usual = Counter(map(tuple, listed)).most_common(1)[0][0]
        for rank, theirs in enumerate(listed):
            if tuple(theirs) != usual:
                example = listed.index(list(usual))
                raise RankError(
                    f"rank {self.own}: rank {self.world(rank)} came with {show(*theirs[1:])}, "
                    f"rank {self.world(example)} with {show(*usual[1:])}"
                )
