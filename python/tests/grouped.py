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


def assert_bias_and_state(order, cuts, shared, device):
    """The sum over K in two halves, the second with a bias, against linear of every expert."""
    a, w = data(200, 48, device=device), data(EXPERTS, 24, 48, seed=1, device=device)
    bias = data(24, seed=3) if shared else data(EXPERTS, 24, seed=3, dtype=torch.float32)
    bias = bias.to(device).requires_grad_()
    offsets, dc = torch.tensor(cuts, device=device), data(200, 24, seed=2, device=device)
    half = dt.grouped_linear(a[:, :32], w[..., :32], offsets, order=order, out_dtype=torch.float32)
    half.requires_grad_()
    got = dt.grouped_linear(a[:, 32:], w[..., 32:], offsets, bias, order=order, start=half)
    got.backward(dc)
    nobodys = [*range(cuts[0]), *range(cuts[-1], a.shape[0])]
    assert half.dtype == torch.float32 and not got[nobodys].any() and not half.grad[nobodys].any()
    expected = torch.zeros_like(bias)
    for e in range(EXPERTS):
        rows = slice(cuts[e], cuts[e + 1])
        own = bias.detach() if shared else bias[e].detach()
        assert_same(got[rows], dt.linear(a[rows], w[e], own, order=order))
        assert_same(half.grad[rows], dc[rows].float())
        if not shared:
            expected[e] = ones_times(dc[rows], order, torch.float32)
    if shared:
        expected = ones_times(dc[cuts[0] : cuts[-1]], order, BF16)
    assert_same(bias.grad, expected)


def ones_times(rows, order, dtype):
    """The sum of rows, ascending."""
    return dt.matmul(rows.new_ones(1, rows.shape[0]), rows, order=order, out_dtype=dtype)[0]


def assert_weight_gradients_continued(order, device):
    """Micro-batches in which every expert has a multiple of 16 rows, against all rows at once."""
    counts = [[16, 0, 48], [32, 16, 0], [0, 5, 9]]  # rows of the three experts in each micro-batch
    rows = [
        [data(n, 24, seed=10 * i + e, device=device) for e, n in enumerate(own)]
        for i, own in enumerate(counts)
    ]
    grads = [
        [data(n, 8, seed=99 - 10 * i - e, device=device) for e, n in enumerate(own)]
        for i, own in enumerate(counts)
    ]

    def offsets(own):
        return torch.tensor([0, *own], device=device).cumsum(0)

    state = None
    for own, a, dc in zip(counts, rows, grads):
        options = {"order": order, "out_dtype": torch.float32, "start": state}
        state = dt.grouped_grad_weight(torch.cat(a), torch.cat(dc), offsets(own), **options)
    for e in range(3):
        a, dc = torch.cat([x[e] for x in rows]), torch.cat([x[e] for x in grads])
        assert_same(state[e], dt.grad_weight(a, dc, order=order, out_dtype=torch.float32))
