"""Weight gradients continued over micro-batches."""

import pytest

import detgemm

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import detgemm.torch as dt  # noqa: E402

BF16 = torch.bfloat16
SPLITS = [[512], [128] * 4, [16] * 32, [48, 16, 448]]


def assert_same(x, y):
    comparison = detgemm.compare(x, y)
    assert comparison, str(comparison)


def data(rows, width, seed):
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)).to(BF16)


@pytest.mark.parametrize("order", ["fma", "tc16"])
@pytest.mark.parametrize("accum", ["fp32", "fp32-grad"])
def test_any_split_gives_the_same_gradients(order, accum):
    x, dc = data(512, 48, 0), data(512, 24, 1)
    results = []
    for split in SPLITS:
        torch.manual_seed(0)
        layer = dt.DetLinear(48, 24, dtype=BF16, order=order, grad_accum=accum)
        for _ in range(2):  # the second time with a state that was reset
            layer.zero_grad()
            dt.reset_main_grad(layer)
            for a, d in zip(x.split(split), dc.split(split)):
                layer(a).backward(d)
        results.append(layer)
    for layer in results:
        assert_same(layer.weight.main_grad, results[0].weight.main_grad)
        assert_same(layer.bias.main_grad, results[0].bias.main_grad)
        if accum == "fp32-grad":
            assert_same(layer.weight.grad, layer.weight.main_grad.to(BF16))
            assert_same(layer.bias.grad, layer.bias.main_grad.to(BF16))
        else:
            assert layer.weight.grad is None
    whole = dt.grad_weight(x, dc, order=order, out_dtype=torch.float32)
    assert_same(results[0].weight.main_grad, whole)


def test_tc16_needs_multiples_of_16_or_padding():
    layer = dt.DetLinear(8, 4, dtype=BF16, order="tc16", grad_accum="fp32")
    layer(data(7, 8, 0)).sum().backward()
    with pytest.raises(ValueError, match="over 7 rows"):
        layer(data(16, 8, 0)).sum().backward()
    layer.weight.main_grad.zero_()  # someone else begins a new sum
    layer.bias.main_grad.zero_()
    layer(data(16, 8, 0)).sum().backward()
    padded = dt.DetLinear(8, 4, dtype=BF16, order="tc16", grad_accum="fp32", grad_pad=True)
    for seed in range(3):
        padded(data(7, 8, seed)).sum().backward()
    filled = torch.cat([torch.cat((data(7, 8, s), torch.zeros(9, 8, dtype=BF16))) for s in range(3)])
    ones = torch.cat([torch.ones(7, 4), torch.zeros(9, 4)] * 3).to(BF16)
    assert_same(
        padded.weight.main_grad, dt.grad_weight(filled, ones, order="tc16", out_dtype=torch.float32)
    )
    with pytest.raises(ValueError, match="grad_accum"):
        dt.DetLinear(8, 4, grad_accum="bf16")


def train(split):
    """100 steps of a two-layer model; losses and weights as bits."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1)).to(BF16)
    model = dt.convert(model, order="fma", grad_accum="fp32-grad").model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(100):
        x = data(32, 16, step)
        y = x.float().sum(1, keepdim=True).tanh()
        optimizer.zero_grad()
        total = []
        for a, b in zip(x.split(split), y.split(split)):
            squares = (model(a).float() - b).square()
            total.append(squares.detach())
            (squares.sum() / 32).backward()
        optimizer.step()
        losses.append(torch.cat(total).mean())
    return torch.stack(losses), model


def test_a_training_loop_does_not_depend_on_the_split():
    losses, model = train([32])
    assert losses[-1] < losses[0] / 4
    for split in ([8] * 4, [1] * 32):
        others, other = train(split)
        assert_same(others, losses)
        for x, y in zip(other.parameters(), model.parameters()):
            assert_same(x, y)
