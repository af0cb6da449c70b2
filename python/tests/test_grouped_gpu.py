"""Products of a mixture of experts on an NVIDIA GPU: the bits of the CPU, offsets that the host does
not read, CUDA graphs, and offsets that are wrong."""

import pytest

torch = pytest.importorskip("torch")
from grouped import (  # noqa: E402
    EXPERTS,
    ROUTINGS,
    assert_bias_and_state,
    assert_experts_alone,
    assert_same,
    assert_weight_gradients_continued,
    data,
)

import detgemm.torch as dt  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
ORDERS = pytest.mark.parametrize("order", ["fma", "tc16"])


@ORDERS
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("cuts", ROUTINGS.values(), ids=ROUTINGS.keys())
def test_every_expert_alone_and_the_bits_of_the_cpu(order, dtype, cuts):
    tensors = data(200, 40), data(EXPERTS, 24, 40, seed=1), data(200, 24, seed=2)
    host = assert_experts_alone(*tensors, cuts, order, dtype)
    device = assert_experts_alone(*(x.cuda() for x in tensors), cuts, order, dtype)
    for x, y in zip(device, host):
        assert_same(x.cpu(), y)


@ORDERS
def test_a_token_does_not_depend_on_how_many_came_to_its_expert(order):
    rows, w = data(200, 64).cuda(), data(3, 24, 64, seed=3).cuda()
    alone = dt.linear(rows[:1], w[1], order=order)
    for count in range(1, 201):
        cuts = torch.tensor([0, 0, count, count], device="cuda")
        assert_same(dt.grouped_linear(rows[:count], w, cuts, order=order)[:1], alone)


@ORDERS
@pytest.mark.parametrize("cuts", ROUTINGS.values(), ids=ROUTINGS.keys())
@pytest.mark.parametrize("shared", [False, True])
def test_bias_and_state(order, cuts, shared):
    assert_bias_and_state(order, cuts, shared, "cuda")


@ORDERS
def test_weight_gradients_continued_over_micro_batches(order):
    assert_weight_gradients_continued(order, "cuda")


@ORDERS
def test_layouts(order):
    a, w, dc = data(200, 40).cuda(), data(EXPERTS, 24, 40, seed=1).cuda(), data(200, 24, seed=2).cuda()
    cuts = ROUTINGS["some each"]
    expected = assert_experts_alone(a, w, dc, cuts, order)
    turned = assert_experts_alone(a, w.mT.contiguous().mT, dc, cuts, order)
    columns = assert_experts_alone(a.t().contiguous().t(), w, dc.t().contiguous().t(), cuts, order)
    for x, y, z in zip(expected, turned, columns):
        assert_same(y, x)
        assert_same(z, x)


@ORDERS
def test_a_graph_routes_anew(order):
    a, w = data(200, 40).cuda(), data(EXPERTS, 24, 40, seed=1).cuda()
    offsets = torch.tensor(ROUTINGS["some each"], device="cuda")
    dt.grouped_linear(a, w, offsets, order=order)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = dt.grouped_linear(a, w, offsets, order=order)
    for cuts in ROUTINGS.values():
        offsets.copy_(torch.tensor(cuts))
        graph.replay()
        assert_same(out, dt.grouped_linear(a, w, offsets.clone(), order=order))


@ORDERS
def test_wrong_offsets_leave_the_device_as_it_was(order):
    a, w = data(200, 40).cuda(), data(EXPERTS, 24, 40, seed=1).cuda()
    good = torch.tensor(ROUTINGS["some each"], device="cuda")
    expected = dt.grouped_linear(a, w, good, order=order)
    for cuts in ([0, 50, 20, 60, 10, 300], [-5, 0, 2**30, 7, 200, 200]):
        dt.grouped_linear(a, w, torch.tensor(cuts, device="cuda"), order=order)
        torch.cuda.synchronize()
    assert_same(dt.grouped_linear(a, w, good, order=order), expected)
