"""Products of a mixture of experts on the CPU."""

import pytest

torch = pytest.importorskip("torch")
from grouped import (  # noqa: E402
    BF16,
    EXPERTS,
    ROUTINGS,
    assert_bias_and_state,
    assert_experts_alone,
    assert_same,
    assert_weight_gradients_continued,
    data,
)

import detgemm.torch as dt  # noqa: E402

ORDERS = pytest.mark.parametrize("order", ["fma", "tc16"])


@ORDERS
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("cuts", ROUTINGS.values(), ids=ROUTINGS.keys())
def test_every_expert_alone(order, dtype, cuts):
    a, w, dc = data(200, 40), data(EXPERTS, 24, 40, seed=1), data(200, 24, seed=2)
    assert_experts_alone(a, w, dc, cuts, order, dtype)


@ORDERS
@pytest.mark.parametrize("dtype", [BF16, torch.float16, torch.float32])
def test_layouts_and_dtypes(order, dtype):
    if order == "tc16" and dtype == torch.float32:
        pytest.skip("the tc16 order has no FP32")
    cuts = ROUTINGS["some each"]
    plain = [data(200, 40), data(EXPERTS, 24, 40, seed=1), data(200, 24, seed=2)]
    a, w, dc = (x.to(dtype) for x in plain)
    expected = assert_experts_alone(a, w, dc, cuts, order)
    layouts = {
        "[E, K, N] weights": (a, w.mT.contiguous().mT, dc),
        "[N, E, K] weights": (a, w.transpose(0, 1).contiguous().transpose(0, 1), dc),
        "columns of wider weights": (a, torch.cat((w, w), 2)[..., :40], dc),
        "every other expert": (a, torch.stack((w, w), 1).flatten(0, 1)[::2], dc),
        "columns of a": (a.t().contiguous().t(), w, dc.t().contiguous().t()),
        "rows of a wider a": (torch.cat((a, a), 1)[:, :40], w, torch.cat((dc, dc), 1)[:, :24]),
    }
    for name, arguments in layouts.items():
        for x, y in zip(assert_experts_alone(*arguments, cuts, order), expected):
            assert_same(x, y), name
    shared = w[:1].expand(EXPERTS, -1, -1)
    assert_experts_alone(a, shared, dc, cuts, order)
    strided = torch.tensor([x for cut in cuts for x in (cut, -9)])[::2]
    assert_same(dt.grouped_linear(a, w, strided, order=order), expected[0])


@ORDERS
def test_a_token_does_not_depend_on_how_many_came_to_its_expert(order):
    token, others, dc = data(1, 64), data(200, 64, seed=1), data(201, 24, seed=2)
    w = data(3, 24, 64, seed=3)
    alone = dt.linear(token, w[1], order=order)
    grad = dt.matmul(dc[:1], w[1], order=order)
    for count in range(1, 201):
        at = count * 7 % count
        rows = torch.cat((others[:at], token, others[at : count - 1], others[:9]))
        gradients = torch.cat((dc[1 : at + 1], dc[:1], dc[at + 1 : count], dc[:9]))
        rows.requires_grad_()
        out = dt.grouped_linear(rows, w, torch.tensor([0, 0, count, count + 9]), order=order)
        out.backward(gradients)
        assert_same(out[at : at + 1], alone)
        assert_same(rows.grad[at : at + 1], grad)


@ORDERS
@pytest.mark.parametrize("t, n, k, e", [(0, 4, 8, 3), (6, 0, 8, 3), (6, 4, 0, 3), (6, 4, 8, 0)])
def test_nothing_of_something(order, t, n, k, e):
    cuts = torch.tensor([0, *([t] * e)])
    a, w = data(t, k).requires_grad_(), data(e, n, k, seed=1).requires_grad_()
    out = dt.grouped_linear(a, w, cuts, order=order)
    assert out.shape == (t, n) and not out.any()
    out.sum().backward()
    assert a.grad.shape == a.shape and w.grad.shape == w.shape
    assert n * e > 0 or not a.grad.any()


def test_rows_of_nobody_are_zero_and_not_a_number_stays_where_it_is():
    a, w = data(8, 4), data(2, 3, 4, seed=1)
    a[[0, 1, 7]] = float("nan")
    out = dt.grouped_linear(a, w, torch.tensor([2, 4, 6]))
    assert not out[[0, 1, 6, 7]].any() and not out.isnan().any()


BAD = {
    "offsets that descend": ([0, 5, 4], ValueError, "offset"),
    "a negative offset": ([-1, 4, 8], ValueError, "offset"),
    "past the end": ([0, 4, 9], ValueError, "offset"),
    "far past the end": ([0, 4, 2**40], ValueError, "offset"),
    "too few offsets": ([0, 8], ValueError, "stacked"),
    "no offsets": ([], ValueError, r"\[E \+ 1\]"),
    "two dimensions": ([[0, 4, 8]], ValueError, r"\[E \+ 1\]"),
    "not integers": ([0.0, 4.0, 8.0], TypeError, "int32 or int64"),
}


@pytest.mark.parametrize("offsets, error, match", BAD.values(), ids=BAD.keys())
def test_bad_offsets(offsets, error, match):
    a, w = data(8, 4).requires_grad_(), data(2, 3, 4, seed=1)
    offsets = torch.tensor(offsets)
    with pytest.raises(error, match=match):
        dt.grouped_linear(a, w, offsets)
    if not offsets.is_floating_point() and offsets.dim() == 1 and len(offsets) == 3:
        with pytest.raises(error, match=match):
            torch.ops.detgemm.grouped_grad_b(a, data(8, 3), offsets, None, "fma", False)


def test_bad_operands():
    a, w, offsets = data(8, 4), data(2, 3, 4, seed=1), torch.tensor([0, 4, 8])
    for x, y, error, match in (
        (a, data(2, 4, 3), ValueError, "stacked"),
        (a, data(3, 4), ValueError, "stacked"),
        (a[None], w, ValueError, r"\[T, K\]"),
        (a, w.half(), TypeError, "make them the same"),
        (a.double(), w.double(), TypeError, "float64"),
    ):
        with pytest.raises(error, match=match):
            dt.grouped_linear(x, y, offsets)
    with pytest.raises(TypeError, match="tc16"):
        dt.grouped_linear(a.float(), w.float(), offsets, order="tc16")
    with pytest.raises(ValueError, match=r"\[T, N\]"):
        torch.ops.detgemm.grouped_grad_b(a, data(7, 3), offsets, None, "fma", False)
    for bias in (data(4), data(3, 3), data(3).long()):
        with pytest.raises(ValueError, match="bias"):
            dt.grouped_linear(a, w, offsets, bias)
    with pytest.raises(ValueError, match="start"):
        dt.grouped_linear(a, w, offsets, start=data(3, 8, dtype=torch.float32))
    with pytest.raises(TypeError, match="start"):
        dt.grouped_linear(a, w, offsets, start=data(8, 3))
    with pytest.raises(TypeError, match="is a list"):
        dt.grouped_linear([1.0], w, offsets)
    with pytest.raises(TypeError, match="weight is a list"):
        dt.grouped_linear(a, [1.0], offsets)


@ORDERS
@pytest.mark.parametrize("cuts", ROUTINGS.values(), ids=ROUTINGS.keys())
@pytest.mark.parametrize("shared", [False, True])
def test_bias_and_state(order, cuts, shared):
    assert_bias_and_state(order, cuts, shared, "cpu")


@ORDERS
def test_weight_gradients_continued_over_micro_batches(order):
    assert_weight_gradients_continued(order, "cpu")


@ORDERS
def test_differentiated_twice(order):
    """Against the experts' own products, which can be differentiated twice."""
    cuts, seeds = [2, 9, 9, 30], (data(30, 8, seed=5), data(3, 4, 8, seed=6))

    def second(call):
        a, w, dc = (
            x.requires_grad_() for x in (data(30, 8), data(3, 4, 8, seed=1), data(30, 4, seed=2))
        )
        grads = torch.autograd.grad(call(a, w), (a, w), dc, create_graph=True)
        return torch.autograd.grad(grads, (a, w, dc), seeds)

    def alone(a, w):
        parts = [dt.linear(a[i:j], w[e], order=order) for e, (i, j) in enumerate(zip(cuts, cuts[1:]))]
        return torch.cat((a.new_zeros(cuts[0], 4), *parts))

    got = second(lambda a, w: dt.grouped_linear(a, w, torch.tensor(cuts), order=order))
    for x, y in zip(got, second(alone)):
        assert_same(x, y)


def test_transforms():
    a, w, offsets = data(9, 4), data(2, 3, 4, seed=1), torch.tensor([0, 4, 9])

    def f(a):
        return dt.grouped_linear(a, w, offsets, order="tc16")

    x = a.clone().requires_grad_()
    f(x).float().sum().backward()
    assert_same(torch.func.grad(lambda a: f(a).float().sum())(a), x.grad)
    with pytest.raises(NotImplementedError, match="forward-mode"):
        torch.func.jvp(f, (a,), (a,))
    with pytest.raises(NotImplementedError, match="vmap"):
        torch.func.vmap(f)(a[None])
    dual = torch.autograd.forward_ad
    with dual.dual_level(), pytest.raises(NotImplementedError, match="forward-mode"):
        f(dual.make_dual(a, a))


def test_gradients_against_fp64():
    a, w = data(200, 40).requires_grad_(), data(EXPERTS, 24, 40, seed=1).requires_grad_()
    dc, cuts = data(200, 24, seed=2), ROUTINGS["rows of nobody"]
    x, y = (t.detach().double().requires_grad_() for t in (a, w))
    dt.grouped_linear(a, w, torch.tensor(cuts)).backward(dc)
    for e in range(EXPERTS):
        rows = slice(cuts[e], cuts[e + 1])
        (x[rows] @ y[e].t()).backward(dc[rows].double())
    for ours, exact in ((a, x), (w, y)):
        assert (ours.grad.double() - exact.grad).norm() / exact.grad.norm() < 4e-3


def test_autocast():
    a, w, offsets = data(20, 16).float(), data(2, 8, 16, seed=1).float(), torch.tensor([0, 5, 20])
    with torch.autocast("cpu", BF16):
        out = dt.grouped_linear(a, w.requires_grad_(), offsets, order="tc16")
    assert_same(out, dt.grouped_linear(a.to(BF16), w.to(BF16), offsets, order="tc16"))
    out.sum().backward()
    assert w.grad.dtype == torch.float32


@ORDERS
def test_opcheck(order):
    a, w = data(12, 8).requires_grad_(), data(3, 4, 8, seed=1).requires_grad_()
    dc, offsets = data(12, 4, seed=2), torch.tensor([0, 5, 5, 12])
    ops = torch.ops.detgemm
    bias, start = data(3, 4, seed=3).requires_grad_(), data(12, 4, dtype=torch.float32)
    state = data(3, 4, 8, dtype=torch.float32)
    torch.library.opcheck(ops.grouped.default, (a, w, offsets, None, None, order, False))
    torch.library.opcheck(ops.grouped.default, (a, w, offsets, start, bias, order, True))
    torch.library.opcheck(ops.grouped_grad_b.default, (a.detach(), dc, offsets, None, order, True))
    torch.library.opcheck(ops.grouped_grad_b.default, (a, dc, offsets, state, order, True))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(dynamic):
    def layer(a, w, offsets):
        return torch.relu(dt.grouped_linear(a, w, offsets, order="tc16")).float().square().sum()

    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for rows in (12, 30, 1):
        cuts = torch.tensor([0, rows // 3, rows // 3, rows])
        results = []
        for call in (layer, compiled):
            a, w = data(rows, 8).requires_grad_(), data(3, 4, 8, seed=1).requires_grad_()
            call(a, w, cuts).backward()
            results.append((a.grad, w.grad))
        for x, y in zip(*results):
            assert_same(x, y)
    with pytest.raises(Exception, match="stacked"):
        compiled(data(12, 8), data(2, 4, 8), torch.tensor([0, 5, 5, 12]))
