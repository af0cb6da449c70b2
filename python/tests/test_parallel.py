"""Layers split over ranks and ordered reductions, on gloo with 2, 3 and 4 processes."""

import pytest

torch = pytest.importorskip("torch")
from ranks import run  # noqa: E402
from torch import nn  # noqa: E402

import detgemm.torch as dt  # noqa: E402
from detgemm.torch import parallel  # noqa: E402

BF16 = torch.bfloat16


def data(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(BF16)


def same(x, y):
    return x.shape == y.shape and torch.equal(
        x.contiguous().view(torch.int16), y.contiguous().view(torch.int16)
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


def sums_do_not_depend_on_who_has_which_micro_batch(rank, ranks):
    terms = [data(1000, seed=i).float() for i in range(12)]
    expected = torch.zeros(1000)
    for term in terms:
        expected += term
    cuts = {0: 0, ranks: 12}
    for shift in range(2):
        bounds = [cuts.get(r, (12 * r // ranks + shift) % 12) for r in range(ranks + 1)]
        got = parallel.ordered_sum(terms[bounds[rank] : bounds[rank + 1]])
        assert torch.equal(got, expected)


def ddp_hook(rank, ranks):
    batches = [data(4, 8, seed=i).float() for i in range(12)]

    def gradients(model, mine, reduction):
        for i, x in enumerate(mine):
            last = i == len(mine) - 1
            with reduction.collect() if not last else torch.enable_grad():
                model(x).square().mean().backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    torch.manual_seed(0)
    plain = nn.Linear(8, 3)
    total = torch.zeros(27)
    for x in batches:
        plain.zero_grad()
        plain(x).square().mean().backward()
        total += torch.cat([plain.weight.grad.flatten(), plain.bias.grad])
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Linear(8, 3))
    reduction = parallel.OrderedReduction()
    model.register_comm_hook(None, reduction.hook)
    bounds = [12 * r // ranks for r in range(ranks + 1)]
    got = gradients(model, batches[bounds[rank] : bounds[rank + 1]], reduction)
    assert torch.equal(got, total / 12)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_layers(ranks):
    run(layers_have_the_bits_of_one_device, ranks)


@pytest.mark.parametrize("ranks", [2, 3])
def test_reductions(ranks):
    run(sums_do_not_depend_on_who_has_which_micro_batch, ranks)
    run(ddp_hook, ranks)


def test_shards_are_cut_where_the_order_allows():
    assert parallel.shard_bounds(70, 3, "tc16") == [0, 16, 48, 70]
    assert parallel.shard_bounds(70, 3, "fma") == [0, 23, 46, 70]
    assert parallel.shard_bounds(20, 4, "tc16") == [0, 0, 16, 16, 20]
