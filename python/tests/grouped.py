"""What the tests of grouped products share: routings, and every expert computed alone."""

import torch

import detgemm
import detgemm.torch as dt

BF16 = torch.bfloat16
EXPERTS = 5
# Where 200 rows are cut: all kinds of empty experts, all to one, rows of nobody at both ends.
ROUTINGS = {
    "some each": [0, 7, 7, 123, 124, 200],
    "all to one": [0, 0, 0, 200, 200, 200],
    "all to the last": [0, 0, 0, 0, 0, 200],
    "no rows at all": [40, 40, 40, 40, 40, 40],
    "rows of nobody": [3, 20, 50, 50, 51, 190],
    "one each": [0, 1, 2, 3, 4, 5],
}


def data(*shape, seed=0, dtype=BF16, device="cpu"):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to(device)


def assert_same(x, y):
    comparison = detgemm.compare(x, y)
    assert comparison, str(comparison)


def assert_experts_alone(a, w, dc, cuts, order, offsets_dtype=torch.int64):
    """Output and both gradients, each expert against linear on its rows."""
    x, y = a.detach().requires_grad_(), w.detach().requires_grad_()
    got = dt.grouped_linear(x, y, torch.tensor(cuts, dtype=offsets_dtype, device=a.device), order=order)
    got.backward(dc)
    nobodys = [*range(cuts[0]), *range(cuts[-1], a.shape[0])]
    assert not got[nobodys].any() and not x.grad[nobodys].any()
    for e in range(w.shape[0]):
        rows = slice(cuts[e], cuts[e + 1])
        p, q = a[rows].detach().requires_grad_(), w[e].detach().requires_grad_()
        alone = dt.linear(p, q, order=order)
        alone.backward(dc[rows])
        assert_same(got[rows], alone)
        assert_same(x.grad[rows], p.grad)
        assert_same(y.grad[e], q.grad)
    return got, x.grad, y.grad
