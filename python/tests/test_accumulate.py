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


class MasterSGD:
    """An optimiser that reads main_grad, as Megatron's do, with FP32 masters and momentum."""

    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.masters = [p.detach().float() for p in self.parameters]
        self.momenta = [torch.zeros_like(m) for m in self.masters]

    def zero_grad(self):
        for p in self.parameters:
            if getattr(p, "main_grad", None) is not None:
                p.main_grad.zero_()

    @torch.no_grad()
    def step(self):
        for p, master, momentum in zip(self.parameters, self.masters, self.momenta):
            momentum.mul_(0.9).add_(p.main_grad)
            master.add_(momentum, alpha=-0.05)
            p.copy_(master)


def train(split, order, accum, steps=100, compiled=False):
    """A two-layer model on 32 samples of 16 tokens a step; losses and weights as bits."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)).to(BF16)
    model = dt.convert(model, order=order, grad_accum=accum).model
    call = torch.compile(model, backend="aot_eager", dynamic=True) if compiled else model
    sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    optimizer = sgd if accum == "fp32-grad" else MasterSGD(model.parameters())
    losses = []
    for step in range(steps):
        x = data(512, 16, step)
        y = x.float().sum(1, keepdim=True).tanh()
        optimizer.zero_grad()
        total = []
        for a, b in zip(x.split(split), y.split(split)):
            squares = (call(a).float() - b).square()
            total.append(squares.detach())
            (squares.sum() / 512).backward()
        optimizer.step()
        losses.append(torch.cat(total).mean())
    return torch.stack(losses), model


@pytest.mark.parametrize("order, accum", [("fma", "fp32-grad"), ("tc16", "fp32")])
def test_a_training_loop_does_not_depend_on_the_split(order, accum):
    losses, model = train([512], order, accum)
    assert losses[-1] < losses[0] / 4
    for split in ([128] * 4, [16] * 32):  # 4 x 8 and 32 x 1 samples
        others, other = train(split, order, accum)
        assert_same(others, losses)
        for x, y in zip(other.parameters(), model.parameters()):
            assert_same(x, y)
            assert_same(x.main_grad, y.main_grad)


def test_under_a_compiler():
    losses, model = train([128] * 4, "tc16", "fp32-grad", steps=5)
    others, other = train([16] * 32, "tc16", "fp32-grad", steps=5, compiled=True)
    assert_same(others, losses)
    for x, y in zip(other.parameters(), model.parameters()):
        assert_same(x, y)


@pytest.mark.parametrize("order", ["fma", "tc16"])
@pytest.mark.parametrize("needs", [(True, False), (False, True), (False, False)])
def test_frozen_parts_and_leading_dimensions(order, needs):
    x, dc = data(96, 24, 0), data(96, 8, 1)
    plain = dt.DetLinear(24, 8, dtype=BF16, order=order)
    layer = dt.DetLinear.from_linear(plain, order=order, grad_accum="fp32")
    plain.requires_grad_(needs[1])
    for a, d in zip(x.split(48), dc.split(48)):
        p, q = (a.view(3, 16, 24).clone().requires_grad_(needs[0]) for _ in range(2))
        y, z = layer(p), plain(q)
        assert_same(y, z)
        assert y.requires_grad == any(needs)
        if any(needs):
            y.backward(d.view(3, 16, 8))
            z.backward(d.view(3, 16, 8))
        if needs[0]:
            assert_same(p.grad, q.grad)
    state = getattr(layer.weight, "main_grad", None)
    assert (state is not None) == needs[1]
    if needs[1]:
        assert_same(state, dt.grad_weight(x, dc, order=order, out_dtype=torch.float32))


def test_autocast_computes_what_it_computes_without_accumulation():
    x, dc = data(32, 24, 0).float(), data(32, 8, 1)
    plain = dt.DetLinear(24, 8, order="tc16")
    layer = dt.DetLinear.from_linear(plain, order="tc16", grad_accum="fp32")
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    with torch.autocast("cpu", BF16):
        y, z = layer(a), plain(b)
    assert y.dtype == BF16
    assert_same(y, z)
    y.backward(dc)
    z.backward(dc)
    assert_same(a.grad, b.grad)
    assert_same(layer.weight.main_grad.to(BF16).float(), plain.weight.grad)


def test_rows_of_nothing_and_computed_weights():
    layer = dt.DetLinear(8, 4, dtype=BF16, order="tc16", grad_accum="fp32-grad")
    layer(data(16, 8, 0)).sum().backward()
    before = layer.weight.main_grad.clone()
    layer(data(0, 8, 0)).sum().backward()
    assert_same(layer.weight.main_grad, before)
    nn.utils.parametrizations.weight_norm(layer)
    with pytest.raises(ValueError, match="parametrization"):
        layer(data(16, 8, 0))
