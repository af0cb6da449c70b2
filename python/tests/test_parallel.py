"""Layers split over ranks and ordered reductions, on gloo with 2, 3 and 4 processes."""

import pytest

torch = pytest.importorskip("torch")
from ranks import run  # noqa: E402
from torch import nn  # noqa: E402

import detgemm.torch as dt  # noqa: E402
from detgemm.torch import _reduction, parallel  # noqa: E402

BF16 = torch.bfloat16


def data(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(BF16)


def same(x, y):
    bits = torch.int32 if x.dtype == torch.float32 else torch.int16
    return (
        x.shape == y.shape
        and x.dtype == y.dtype
        and torch.equal(x.contiguous().view(bits), y.contiguous().view(bits))
    )


def layers_have_the_bits_of_one_device(rank, ranks):
    for order in ("fma", "tc16"):
        for features in ((70, 52), (35, 17)):  # not divisible by 2, 3, 4 or 16
            torch.manual_seed(0)
            up, down = nn.Linear(*features).to(BF16), nn.Linear(features[1], features[0]).to(BF16)
            x, dc = data(600, features[0]), data(600, features[0], seed=1)
            whole = [dt.DetLinear.from_linear(layer, order=order) for layer in (up, down)]
            a = x.clone().requires_grad_()
            expected = whole[1](torch.relu(whole[0](a)))
            expected.backward(dc)

            first = parallel.ColumnParallelLinear(up, order=order)
            second = parallel.RowParallelLinear(down, order=order)
            assert first.bounds == second.bounds
            b = x.clone().requires_grad_()
            got = second(torch.relu(first(b)))
            assert same(got, expected)
            got.backward(dc)
            assert same(b.grad, a.grad)
            own = first.own()
            assert same(first.weight.grad, up.weight.grad[own])
            assert same(first.bias.grad, up.bias.grad[own])
            assert same(second.weight.grad, down.weight.grad[:, own])
            assert same(second.bias.grad, down.bias.grad)

            gathered = parallel.ColumnParallelLinear(up, order=order, gather_output=True)
            b.grad = None
            y = gathered(b)
            reference = whole[0](a)
            assert same(y, reference)
            a.grad = None
            reference.backward(data(600, features[1], seed=2))
            y.backward(data(600, features[1], seed=2))
            assert same(b.grad, a.grad)

            scattered = parallel.RowParallelLinear(down, order=order, scatter_output=True)
            h = data(600, features[1], seed=3)
            y = scattered(h[:, own])
            rows = scattered.row_bounds(600)
            assert same(y, whole[1](h)[rows[rank] : rows[rank + 1]])
            y.backward(dc[rows[rank] : rows[rank + 1]])
            down.weight.grad = None
            whole[1](h).backward(dc)
            assert same(scattered.weight.grad, down.weight.grad[:, own])


def compare_with_whole(kind, linear, x, order, needs=(True, True), **options):
    """A layer on the ranks against DetLinear: output and gradients of what is needed."""
    whole = dt.DetLinear.from_linear(linear, order=order)
    layer = kind(linear, order=order, **options)
    own = layer.own()
    row = kind is parallel.RowParallelLinear
    for module in (whole, layer):
        module.requires_grad_(needs[1])
        module.zero_grad()
    a = x.clone().requires_grad_(needs[0])
    b = (x[..., own] if row else x).clone().requires_grad_(needs[0])
    expected, got = whole(a), layer(b)
    share = expected if row else expected[..., own]
    assert same(got, share), (kind, order, x.shape)
    if not any(needs):
        assert not got.requires_grad
        return
    dc = torch.randn(expected.shape, generator=torch.Generator().manual_seed(9)).to(expected.dtype)
    expected.backward(dc)
    got.backward(dc if row else dc[..., own])
    if needs[0]:
        assert same(b.grad, a.grad[..., own] if row else a.grad)
    if needs[1]:
        assert same(layer.weight.grad, whole.weight.grad[:, own] if row else whole.weight.grad[own])
        if linear.bias is not None:
            assert same(layer.bias.grad, whole.bias.grad if row else whole.bias.grad[own])


BOTH = (parallel.ColumnParallelLinear, parallel.RowParallelLinear)


def odd_uses(rank, ranks):
    shapes = [(5, 16), (5, 1), (0, 40), (40,), (2, 3, 40), (300, 33), (2, 0, 40)]
    for order in ("fma", "tc16"):
        for kind in BOTH:
            for shape in shapes:
                for features in (1, 37):
                    torch.manual_seed(0)
                    linear = nn.Linear(shape[-1], features, bias=features > 1).to(BF16)
                    compare_with_whole(kind, linear, data(*shape), order)
            torch.manual_seed(0)
            linear = nn.Linear(40, 37).to(BF16)
            for needs in ((True, False), (False, True), (False, False)):
                compare_with_whole(kind, linear, data(20, 40), order, needs)
            compare_with_whole(kind, linear.half(), data(20, 40).half(), order)
            turned = data(40, 20).t()
            compare_with_whole(kind, linear.to(BF16), turned, order)
    wide = nn.Linear(40, 37)
    for kind in BOTH:
        compare_with_whole(kind, wide, data(20, 40).float(), "fma")
        for order in ("fma", "tc16"):
            with torch.autocast("cpu", torch.bfloat16):
                compare_with_whole(kind, wide, data(20, 40).float(), order)


def sequence_parallel(rank, ranks):
    for order in ("fma", "tc16"):
        for shape in ((50, 40), (7, 3, 40), (2, 40)):  # the last: ranks without rows
            torch.manual_seed(0)
            up, down = nn.Linear(40, 36).to(BF16), nn.Linear(36, 40).to(BF16)
            whole = [dt.DetLinear.from_linear(layer, order=order) for layer in (up, down)]
            first = parallel.ColumnParallelLinear(up, order=order, gather_input=True)
            second = parallel.RowParallelLinear(down, order=order, scatter_output=True)
            bounds = second.row_bounds(shape[0])
            rows = slice(bounds[rank], bounds[rank + 1])
            x, dc = data(*shape), data(*shape, seed=1)
            a, b = x.clone().requires_grad_(), x[rows].clone().requires_grad_()
            expected = whole[1](torch.relu(whole[0](a)))
            got = second(torch.relu(first(b)))
            assert same(got, expected[rows])
            expected.backward(dc)
            got.backward(dc[rows])
            assert same(b.grad, a.grad[rows])
            assert same(first.weight.grad, up.weight.grad[first.own()])
            assert same(second.weight.grad, down.weight.grad[:, second.own()])


def accumulation(rank, ranks):
    x, dc = data(64, 40), data(64, 37, seed=1)
    for order in ("fma", "tc16"):
        for kind in BOTH:
            torch.manual_seed(0)
            linear = nn.Linear(40, 37).to(BF16)
            whole = dt.DetLinear.from_linear(linear, order=order, grad_accum="fp32")
            whole(x).backward(dc)
            layer = kind(linear, order=order, grad_accum="fp32-grad")
            row, own = kind is parallel.RowParallelLinear, layer.own()
            for a, d in zip(x.split(16), dc.split(16)):
                layer(a[:, own] if row else a).backward(d if row else d[:, own])
            expected = whole.weight.main_grad
            expected = expected[:, own] if row else expected[own]
            assert torch.equal(layer.weight.main_grad, expected)
            assert same(layer.weight.grad, expected.to(BF16))
            bias = whole.bias.main_grad
            assert torch.equal(layer.bias.main_grad, bias if row else bias[own])


def groups_within_a_world(rank, ranks):
    halves = [torch.distributed.new_group([0, 2]), torch.distributed.new_group([1, 3])]
    for kind in BOTH:
        torch.manual_seed(0)
        compare_with_whole(
            kind, nn.Linear(40, 37).to(BF16), data(20, 40, seed=rank % 2), "tc16", group=halves[rank % 2]
        )


def cuts_of_tc16(rank, ranks):
    share = parallel.shard_bounds(40, ranks, "fma")
    own = slice(share[rank], share[rank + 1])
    a, b = data(5, 40), data(40, 3, seed=1)
    assert same(parallel.continued_product(a[:, own], b[own], order="fma"), dt.matmul(a, b, order="fma"))
    with pytest.raises(ValueError, match="multiples of 16"):
        parallel.continued_product(a[:, own], b[own], order="tc16")
    with pytest.raises(ValueError, match="positions"):
        parallel.continued_product(a[:, own], b[own], order="fma", scatter=[0, 5])
    with pytest.raises(ValueError, match="rows to scatter"):
        layer = parallel.RowParallelLinear(nn.Linear(8, 4).to(BF16), scatter_output=True)
        layer(data(8)[layer.own()])


def assignments(ranks):
    """Who has which of 12 micro-batches: in a row, in turns, at random, all on the last."""
    random = torch.randint(ranks, (12,), generator=torch.Generator().manual_seed(5)).tolist()
    yield [i * ranks // 12 for i in range(12)]
    yield [i % ranks for i in range(12)]
    yield random
    yield [ranks - 1] * 12


def sums_do_not_depend_on_who_has_which_micro_batch(rank, ranks):
    terms = [data(3, 1001, seed=i).float() for i in range(12)]
    expected = torch.zeros(3, 1001)
    for term in terms:
        expected += term
    _reduction.PIECE = 500  # several pieces, the last one shorter
    for owners in assignments(ranks):
        own = [i for i in range(11, -1, -1) if owners[i] == rank]
        got = parallel.ordered_sum([terms[i] for i in own], indices=own, like=terms[0])
        assert same(got, expected)
    own = [terms[i] for i in range(12) if i * ranks // 12 == rank]
    assert same(parallel.ordered_sum(own), expected)
    with pytest.raises(ValueError, match="have none"):
        parallel.ordered_sum(terms[:1], indices=[0] if rank == 0 else None)


def ddp_hook(rank, ranks):
    batches = [data(4, 8, seed=i).float() for i in range(12)]

    def small():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 5), nn.Linear(5, 3, bias=False))
        model[1].weight = nn.Parameter(torch.randn(5, 3).t())  # another layout
        return model

    def flat(model):
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    plain = small()
    total = torch.zeros(60)
    for x in batches:
        plain.zero_grad()
        plain(x).square().mean().backward()
        total += flat(plain)
    for as_view in (False, True):
        # All on the last rank first: DDP's own first messages must not meet the others' micro-batches.
        for owners in [[ranks - 1] * 12, *assignments(ranks)]:
            model = nn.parallel.DistributedDataParallel(
                small(), bucket_cap_mb=1e-4, gradient_as_bucket_view=as_view
            )
            reduction = parallel.OrderedReduction(model)
            for _ in range(3):
                model.zero_grad()
                own = [i for i in range(12) if owners[i] == rank] or [None]
                for i in own:
                    with reduction.micro_batch(i, last=i == own[-1]):
                        model(batches[i or 0]).square().mean().backward()
                assert same(flat(model), total / 12)
    model.zero_grad()
    own = [x for i, x in enumerate(batches) if i * ranks // 12 == rank]
    for i, x in enumerate(own):
        with reduction.collect() if i < len(own) - 1 else torch.enable_grad():
            model(x).square().mean().backward()
    assert same(flat(model), total / 12)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_layers(ranks):
    run(layers_have_the_bits_of_one_device, ranks)


@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_odd_uses(ranks):
    run(odd_uses, ranks)


def test_further_options():
    run(sequence_parallel, 3)
    run(accumulation, 3)
    run(groups_within_a_world, 4)
    run(cuts_of_tc16, 3)


@pytest.mark.parametrize("ranks", [2, 3])
def test_reductions(ranks):
    run(sums_do_not_depend_on_who_has_which_micro_batch, ranks)
    run(ddp_hook, ranks)


def test_shards_are_cut_where_the_order_allows():
    assert parallel.shard_bounds(70, 3, "tc16") == [0, 16, 48, 70]
    assert parallel.shard_bounds(70, 3, "fma") == [0, 23, 46, 70]
    assert parallel.shard_bounds(20, 4, "tc16") == [0, 0, 16, 16, 20]
    assert parallel.shard_bounds(96, 4, "fma", 24) == [0, 24, 48, 72, 96]
    assert parallel.shard_bounds(96, 4, "tc16", 24) == [0, 0, 48, 48, 96]
    with pytest.raises(ValueError, match="multiple"):
        parallel.shard_bounds(96, 4, "tc16", 0)
