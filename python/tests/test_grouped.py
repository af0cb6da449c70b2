"""Products of a mixture of experts on the CPU."""

import pytest

import detgemm

torch = pytest.importorskip("torch")
import detgemm.torch as dt  # noqa: E402

BF16 = torch.bfloat16


def data(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(BF16)


def assert_same(x, y):
    comparison = detgemm.compare(x, y)
    assert comparison, str(comparison)


@pytest.mark.parametrize("order", ["fma", "tc16"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_every_expert_alone(order, dtype):
    a, w, dc = data(40, 24), data(5, 16, 24, seed=1), data(40, 16, seed=2)
    offsets = torch.tensor([0, 7, 7, 23, 24, 40], dtype=dtype)
    x, y = a.clone().requires_grad_(), w.clone().requires_grad_()
    got = dt.grouped_linear(x, y, offsets, order=order)
    got.backward(dc)
    for e in range(5):
        rows = slice(int(offsets[e]), int(offsets[e + 1]))
        p, q = a[rows].clone().requires_grad_(), w[e].clone().requires_grad_()
        alone = dt.linear(p, q, order=order)
        alone.backward(dc[rows])
        assert_same(got[rows], alone)
        assert_same(x.grad[rows], p.grad)
        assert_same(y.grad[e], q.grad)


def test_a_token_does_not_depend_on_its_neighbours():
    a, w = data(64, 32), data(2, 8, 32, seed=1)
    whole = dt.grouped_linear(a, w, torch.tensor([0, 40, 64]), order="tc16")
    few = dt.grouped_linear(a[38:42], w, torch.tensor([0, 2, 4]), order="tc16")
    assert_same(few, whole[38:42])


def test_rows_of_nobody_are_zero_and_errors():
    a, w = data(8, 4), data(2, 3, 4, seed=1)
    assert not dt.grouped_linear(a, w, torch.tensor([2, 4, 6]))[[0, 1, 6, 7]].any()
    with pytest.raises(ValueError, match="stacked"):
        dt.grouped_linear(a, w, torch.tensor([0, 8]))
    with pytest.raises(TypeError, match="int32 or int64"):
        dt.grouped_linear(a, w, torch.tensor([0.0, 4.0, 8.0]))
    with pytest.raises(ValueError, match="offset"):
        dt.grouped_linear(a, w, torch.tensor([0, 5, 4]))


def test_opcheck_and_compile():
    a, w = data(12, 8).requires_grad_(), data(3, 4, 8, seed=1).requires_grad_()
    offsets = torch.tensor([0, 5, 5, 12])
    torch.library.opcheck(torch.ops.detgemm.grouped.default, (a, w, offsets, "fma"))
    compiled = torch.compile(dt.grouped_linear, backend="aot_eager", fullgraph=True)
    assert_same(compiled(a, w, offsets, order="fma"), dt.grouped_linear(a, w, offsets, order="fma"))
