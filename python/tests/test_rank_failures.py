"""A rank that is gone, hangs or comes with something else: every other rank ends with an error that
names it, within the timeout. Run as processes on gloo."""

import os
import time

import pytest

torch = pytest.importorskip("torch")
from ranks import outcomes  # noqa: E402
from torch import nn  # noqa: E402

from detgemm.torch import _kernels, _ranks, parallel  # noqa: E402

BF16 = torch.bfloat16
TIMEOUT = 2
LIMIT = TIMEOUT + 2 * _ranks.GRACE + 4  # seconds; the last for a busy machine


def row_layer(**options):
    torch.manual_seed(0)
    return parallel.RowParallelLinear(nn.Linear(70, 8).to(BF16), order="tc16", **options)


def share(layer, rows=600, dtype=BF16):
    return torch.ones(rows, layer.weight.shape[1], dtype=dtype)


def wrong(rank, ranks, what, culprit):
    layer = row_layer(scatter_output=what == "gradient")
    rows = 600 + 16 * (what == "rows" and rank == culprit)
    x = share(layer, rows)
    if rank == culprit:
        if what == "dtype":
            x = x.to(torch.float16)
            layer.to(torch.float16)
        elif what == "float64":
            x = x.double()
        elif what == "columns":
            x = torch.ones(600, 3, dtype=BF16)
        elif what == "order":
            layer.order = "fma"
        elif what == "gradient":
            layer.requires_grad_(False)
        elif what == "call":
            parallel.gather_uneven(x)
            return
    layer(x)


def silent(rank, ranks, how, where, culprit):
    """The culprit dies or hangs before its layer, in the middle of its blocks, or in backward."""

    def strike(*_):
        if how == "dies":
            os._exit(3)
        time.sleep(LIMIT + 5)

    first, second = (
        parallel.ColumnParallelLinear(nn.Linear(70, 52).to(BF16), order="tc16"),
        parallel.RowParallelLinear(nn.Linear(52, 8).to(BF16), order="tc16"),
    )
    x = torch.ones(900, 70, dtype=BF16, requires_grad=True)
    blocks = 0
    original = _kernels.matmul

    def counting(*args):
        nonlocal blocks
        blocks += 1
        return strike() if blocks == 2 else original(*args)

    if rank == culprit and where == "before":
        strike()
    if rank == culprit and where == "middle":
        _kernels.matmul = counting
    y = second(torch.relu(first(x)))
    if rank == culprit and where == "backward":
        strike()
    y.sum().backward()


def reduction(rank, ranks, how, culprit):
    terms = [torch.ones(10 + (rank == culprit and how == "size"))]
    if rank == culprit and how == "dies":
        os._exit(3)
    index = 0 if rank == culprit and how == "index" else rank
    parallel.ordered_sum(terms, indices=[index])


def assert_named(results, culprit, silent_one, words=""):
    for rank, outcome in enumerate(results):
        if silent_one and rank == culprit:
            continue
        assert outcome.error, f"rank {rank} came through or said nothing: {outcome}"
        assert outcome.seconds < LIMIT, f"rank {rank} took {outcome.seconds} s"
        if rank != culprit:
            assert f"rank {culprit}" in outcome.error and words in outcome.error, outcome.error


@pytest.mark.parametrize(
    "what, words",
    [
        ("rows", "rank 1 came with a row-parallel layer of 616 x 8"),
        ("dtype", "torch.float16"),
        ("float64", "rank 1 refused its arguments"),
        ("columns", "rank 1 refused its arguments"),
        ("order", "order fma"),
        ("gradient", "no gradient needed"),
        ("call", "shares to gather"),
    ],
)
def test_what_is_not_the_same_is_named(what, words):
    results = outcomes(wrong, 3, what, 1, timeout=TIMEOUT)
    assert_named(results, 1, False, words)
    assert max(outcome.seconds for outcome in results) < TIMEOUT  # at once, and not by waiting


@pytest.mark.parametrize(
    "how, where, culprit",
    [
        ("dies", "before", 2),
        ("dies", "middle", 1),
        ("dies", "backward", 0),  # whose process keeps the store
        ("hangs", "before", 0),
        ("hangs", "middle", 1),
    ],
)
def test_a_silent_rank_is_named(how, where, culprit):
    results = outcomes(silent, 4, how, where, culprit, timeout=TIMEOUT, without=culprit)
    assert_named(results, culprit, True)


@pytest.mark.parametrize("how, words", [("dies", "gone"), ("size", "came with"), ("index", "again on")])
def test_reductions_name_it_too(how, words):
    assert_named(outcomes(reduction, 3, how, 2, timeout=TIMEOUT), 2, how == "dies", words)
