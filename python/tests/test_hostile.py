"""What users do that nobody planned for: odd tensors, copies, checkpoints, threads, wrong operands."""

import copy
import inspect
import io
import pickle
import threading

import pytest

import detgemm

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import detgemm.torch as dt  # noqa: E402

BF16 = torch.bfloat16


def normal(*shape, seed=0, dtype=BF16, grad=False):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype).requires_grad_(grad)


def assert_same(x, y):
    comparison = detgemm.compare(x, y)
    assert comparison, str(comparison)


A, B = normal(5, 8), normal(8, 3, seed=1)
FP32 = normal(5, 3, dtype=torch.float32)

# Calls that PyTorch refuses: in the mode they are refused as well, with PyTorch's own error.
WRONG = {
    "mm of 3-D": lambda: torch.mm(A[None], B),
    "mm of 1-D": lambda: torch.mm(A[0], B),
    "mm of other sizes": lambda: torch.mm(normal(4, 7), B),
    "mm of two dtypes": lambda: torch.mm(A, B.float()),
    "mm out= of another dtype": lambda: torch.mm(A, B, out=torch.empty(5, 3)),
    "mm out= with a gradient": lambda: torch.mm(normal(5, 8, grad=True), B, out=normal(5, 3)),
    "bmm of 2-D": lambda: torch.bmm(A, B),
    "bmm that would broadcast": lambda: torch.bmm(normal(2, 5, 8), normal(1, 8, 3)),
    "mv of two matrices": lambda: torch.mv(A, B),
    "dot of two matrices": lambda: torch.dot(A, B),
    "dot that would broadcast": lambda: torch.dot(normal(1), normal(4)),
    "matmul of a scalar": lambda: torch.matmul(torch.tensor(1.0, dtype=BF16), B),
    "matmul of other batches": lambda: normal(2, 5, 8) @ normal(3, 8, 3),
    "addmm of 3-D": lambda: torch.addmm(normal(5, 3), A[None], B),
    "addmm that would grow": lambda: torch.addmm(normal(2, 5, 3), A, B),
    "addmm of another width": lambda: torch.addmm(normal(4), A, B),
    "addmm of an FP32 bias": lambda: torch.addmm(FP32[0], A, B),
    "addmm of an FP32 matrix": lambda: torch.addmm(FP32, A, B),
    "addmm_ that would grow": lambda: normal(1, 3).addmm_(A, B),
    "baddbmm of 2-D": lambda: torch.baddbmm(normal(5, 3), A, B),
    "addmv of a matrix": lambda: torch.addmv(normal(5), A, B),
    "linear of a 3-D weight": lambda: F.linear(A, normal(2, 3, 8)),
    "linear of an FP32 bias": lambda: F.linear(A, B.t(), FP32[0]),
    "mm of a list": lambda: torch.mm(A, [[1.0]]),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_pytorch_refuses_is_refused_in_the_mode(name):
    with pytest.raises(Exception) as expected:
        WRONG[name]()
    for uncovered in ("pass", "raise"):
        with dt.deterministic_mode("fma", uncovered=uncovered) as mode:
            with pytest.raises((type(expected.value), NotImplementedError)):
                WRONG[name]()
            if uncovered == "pass" and "dtype" not in name:
                assert not mode.passed, mode.passed


@pytest.mark.parametrize("shape", [(3,), (1, 3), (5, 1), (1, 1), (1,), (), (5, 3)])
def test_addmm_and_linear_broadcast_as_pytorch_does(shape):
    added = normal(*shape, seed=2)
    expected = (dt.matmul(A, B, out_dtype=torch.float32) + added.float()).to(BF16)
    with dt.deterministic_mode("fma"):
        assert_same(torch.addmm(added, A, B), expected)
        assert_same(torch.baddbmm(added, A[None], B[None])[0], expected)
        assert_same(F.linear(A, B.t(), added), expected)


@pytest.mark.parametrize("alpha", [0, 1, 2.5])
def test_beta_0_ignores_what_is_added(alpha):
    nan = torch.full((5, 3), float("nan"), dtype=BF16)
    with dt.deterministic_mode("fma"):
        for result in (
            torch.addmm(nan, A, B, beta=0, alpha=alpha),
            torch.addmm(nan[0], A, B, beta=0, alpha=alpha),
            torch.baddbmm(nan[None], A[None], B[None], beta=0, alpha=alpha),
            torch.addmv(nan[:, 0], A, B[:, 0], beta=0, alpha=alpha),
        ):
            assert not result.isnan().any()


def test_out_is_filled_whatever_its_layout_and_even_where_it_is_an_operand():
    expected = dt.matmul(A, B)
    square = normal(4, 4)
    with dt.deterministic_mode("fma"):
        for out in (torch.empty(3, 5, dtype=BF16).t(), torch.empty(5, 6, dtype=BF16)[:, ::2]):
            assert torch.mm(A, B, out=out) is out
            assert_same(out.contiguous(), expected)
        assert_same(torch.mm(A, B, out=torch.empty(0, dtype=BF16)), expected)
        own = square.clone()
        assert_same(torch.mm(own, own, out=own), dt.matmul(square, square))


def test_types_that_are_no_tensors():
    for call in (
        lambda: dt.linear([1.0], B.t()),
        lambda: dt.linear(A, [1.0]),
        lambda: dt.linear(A, B.t(), [1.0]),
        lambda: dt.matmul(A, B, start=5),
        lambda: dt.matmul(A, B, bias=3.0),
        lambda: dt.matmul(A, B, out=[1.0]),
        lambda: dt.grad_weight(A, [1.0]),
        lambda: dt.grad_weight([1.0], A),
    ):
        with pytest.raises(TypeError, match=r"is a (list|int|float)"):
            call()


def test_meta_tensors():
    a, w = A.to("meta").requires_grad_(), B.t().to("meta")
    y = dt.linear(a, w)
    assert y.is_meta
    assert y.shape == (5, 3)
    y.sum().backward()
    assert a.grad.shape == a.shape
    with dt.deterministic_mode("fma"):
        assert (a @ w.t()).is_meta


def test_lazily_negated_tensors():
    lazy = torch.randn(4, 4, dtype=torch.complex64).conj().imag
    assert lazy.is_neg()
    plain, w = lazy.resolve_neg().contiguous(), torch.randn(4, 4)
    assert_same(dt.matmul(lazy, w, order="fma"), dt.matmul(plain, w, order="fma"))
    got = dt.matmul(w, w, start=lazy, order="fma")
    assert_same(got, dt.matmul(w, w, start=plain, order="fma"))
    layer = dt.DetLinear(4, 4, order="fma", grad_accum="fp32")
    assert_same(layer(lazy), layer(plain))


def test_forward_mode_derivatives_are_refused():
    x, w = torch.randn(4, 8), torch.randn(8, 3)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        with pytest.raises(NotImplementedError, match="forward-mode"):
            dt.matmul(dual, w, order="fma")
        assert_same(dt.matmul(x, w, order="fma"), dt.matmul(x.clone(), w, order="fma"))
        with (
            dt.deterministic_mode("fma", dtypes=(torch.float32,)),
            pytest.raises(NotImplementedError, match="forward-mode"),
        ):
            torch.addmm(dual, torch.randn(4, 8), torch.randn(8, 8))
    for call in (lambda x: dt.matmul(x, w, order="fma"), lambda x: dt.linear(x, w.t(), order="fma")):
        with pytest.raises(NotImplementedError, match="forward-mode"):
            torch.func.jacfwd(call)(x)
        with pytest.raises(NotImplementedError, match="forward-mode"):
            torch.func.jvp(call, (x,), (x,))


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_nested_tensors_are_named(layout):
    nested = torch.nested.nested_tensor([normal(2, 8), normal(3, 8)], layout=layout)
    for call in (
        lambda: dt.matmul(nested, B),
        lambda: dt.linear(nested, B.t()),
        lambda: dt.linear(nested, B.t().clone().requires_grad_()),
        lambda: dt.grad_weight(nested, nested),
        lambda: dt.DetLinear(8, 3, dtype=BF16)(nested),
    ):
        with pytest.raises(TypeError, match="nested tensor"):
            call()
    with dt.deterministic_mode("fma") as mode:
        assert F.linear(nested, B.t()).is_nested
    assert mode.passed == {"linear: a nested tensor": 1}


def test_other_layouts_are_named():
    quantized = torch.quantize_per_tensor(A.float(), 0.1, 0, torch.qint8)
    for wrong, match in (
        (A.to_sparse(), "sparse_coo"),
        (A.float().to_sparse_csr(), "sparse_csr"),
        (A.float().to_mkldnn(), "mkldnn"),
        (quantized, "quantized"),
    ):
        with pytest.raises(TypeError, match=match):
            dt.matmul(wrong, B)
        with pytest.raises(TypeError, match=match):
            dt.linear(B.t(), wrong)


RECORDED = {
    "grad": lambda layer: torch.func.grad(lambda x: layer(x).float().sum())(A),
    "vmap": lambda layer: torch.func.vmap(layer)(A[None]),
    "jvp": lambda layer: torch.func.jvp(layer, (A,), (A,)),
    "jit.trace": lambda layer: torch.jit.trace(layer, (A,)),
    "make_fx": lambda layer: torch.fx.experimental.proxy_tensor.make_fx(layer)(A),
    "export": lambda layer: torch.export.export(layer, (A,)),
    "meta": lambda layer: copy.deepcopy(layer).to("meta")(A.to("meta")),
    "fullgraph": lambda layer: torch.compile(layer, backend="aot_eager", fullgraph=True)(A),
}


@pytest.mark.parametrize("how", RECORDED)
def test_gradients_beside_autograd_are_not_lost_in_silence(how):
    torch._dynamo.reset()
    layer = dt.DetLinear(8, 3, dtype=BF16, grad_accum="fp32")
    with pytest.raises(Exception, match=r"beside autograd|disable|Unsupported") as caught:
        RECORDED[how](layer)
    if how == "fullgraph" and torch.__version__ >= "2.8":
        assert "leave out fullgraph=True" in str(caught.value)


def test_distributed_tensors_are_named():
    pytest.importorskip("torch.distributed.tensor")
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, distribute_tensor

    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        b = distribute_tensor(B, mesh, [Replicate()])
        for call in (lambda: dt.matmul(A, b), lambda: dt.matmul(b.t(), b), lambda: dt.linear(A, b.t())):
            with pytest.raises(NotImplementedError, match="to_local"):
                call()
        with pytest.raises(TypeError, match="DTensor"):
            dt.DetLinear(8, 3, dtype=BF16, grad_accum="fp32")(distribute_tensor(A, mesh, [Replicate()]))
        layer = dt.DetLinear(8, 3, dtype=BF16, grad_accum="fp32")
        with pytest.raises(ValueError, match="fully_shard"):
            fully_shard(layer, mesh=mesh)
        layer = dt.DetLinear(8, 3, dtype=BF16)
        expected = layer(A)
        fully_shard(layer, mesh=mesh)
        result = layer(A)
        assert_same(result, expected)
        result.sum().backward()
        assert layer.weight.grad is not None
    finally:
        torch.distributed.destroy_process_group()


def test_fx():
    layer = dt.DetLinear(8, 3, dtype=BF16)
    graph = torch.fx.symbolic_trace(nn.Sequential(layer, nn.ReLU()))
    assert_same(graph(A), torch.relu(layer(A)))


# ---- gradients ----


def long_operands():
    """Operands whose products differ between the orders and PyTorch."""
    return normal(64, 4096, grad=True), normal(32, 4096, seed=1, grad=True)


def layers(x, w):
    return torch.relu(F.linear(F.linear(x, w), w.t()))


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("how", ["Tensor.backward", "autograd.backward", "autograd.grad", "process"])
def test_checkpoints_are_computed_again_in_the_mode(how, reentrant):
    if reentrant and how == "autograd.grad":
        pytest.skip("PyTorch refuses that")
    x, w = long_operands()
    expected = torch.autograd.grad(
        torch.relu(dt.linear(dt.linear(x, w, order="tc16"), w.t(), order="tc16")).sum(), (x, w)
    )
    block = dt.deterministic_mode("tc16") if how != "process" else None
    if block is None:
        dt.set_deterministic_mode("tc16")
    else:
        block.__enter__()
    try:
        loss = checkpoint(layers, x, w, use_reentrant=reentrant).sum()
        if how == "autograd.grad":
            x.grad, w.grad = torch.autograd.grad(loss, (x, w))
        elif how == "autograd.backward":
            torch.autograd.backward(loss)
        else:
            loss.backward()
    finally:
        if block is None:
            dt.set_deterministic_mode(enabled=False)
        else:
            block.__exit__(None, None, None)
    assert_same(x.grad, expected[0])
    assert_same(w.grad, expected[1])


def test_attention_layers_are_seen_inside():
    layer, x = nn.MultiheadAttention(64, 4, dtype=BF16, batch_first=True), normal(2, 5, 64)
    with dt.deterministic_mode("tc16", uncovered="raise"):
        layer(x, x, x)[0].sum().backward()
        with pytest.raises(NotImplementedError, match="attention kernels"):
            layer(x, x, x, need_weights=False)


# ---- modules ----


def test_copies_of_modules_compute_with_their_own_parameters():
    module = dt.deterministic_module(nn.Linear(8, 3, dtype=BF16), "tc16")
    expected = module(A)
    assert "input" in inspect.signature(module.forward).parameters
    loaded = pickle.loads(pickle.dumps(module))
    twin = copy.deepcopy(module)
    module.weight.data.zero_()
    for other in (loaded, twin):
        assert_same(other(A), expected)
        other.weight.data.zero_()
        other.bias.data.zero_()
        assert not other(A).any()
    layer = dt.DetLinear(8, 3, dtype=BF16, order="tc16")
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    assert_same(torch.load(file, weights_only=False)(A), layer(A))


def test_a_second_mode_of_a_module_replaces_the_first():
    x = normal(64, 4096)
    layer = nn.Linear(4096, 256, bias=False, dtype=BF16)
    layer.weight.data.copy_(normal(256, 4096, seed=1))
    w = layer.weight.detach()
    dt.deterministic_module(dt.deterministic_module(layer, "tc16"), "fma")
    assert_same(layer(x), dt.linear(x, w, order="fma"))
    assert not detgemm.compare(layer(x), dt.linear(x, w, order="tc16"))


def test_a_module_in_a_mode_compiles_in_one_graph():
    if not hasattr(torch.overrides, "_get_current_function_mode_stack") or torch.__version__ < "2.9":
        pytest.skip("torch.compile constructs such a mode from PyTorch 2.9 on")
    torch._dynamo.reset()
    x = normal(64, 4096)
    layer = dt.deterministic_module(nn.Linear(4096, 32, dtype=BF16), "tc16")
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    expected = dt.linear(x, layer.weight, layer.bias, order="tc16")
    assert_same(compiled(x), expected)
    with dt.deterministic_mode("fma"):
        assert_same(compiled(x), expected)


def test_convert_keeps_hooks_and_attributes():
    calls = []
    linear = nn.Linear(8, 3, dtype=BF16)
    linear.name = "head"
    handle = linear.register_forward_hook(lambda *_: calls.append(1))
    other = nn.Linear(8, 8)
    other.forward = lambda x: x
    model = nn.Sequential(linear, other, nn.MultiheadAttention(8, 2), nn.Conv1d(1, 1, 1))
    found = dt.convert(model, order="tc16")
    assert found.converted == ("0",)
    assert {"1", "2", "3"} <= set(found.left)
    assert "deterministic_mode" in found.left["2"]
    assert model[0].name == "head"
    assert model[0].order == "tc16"
    model[0](A)
    handle.remove()
    model[0](A)
    assert calls == [1]
    assert dt.convert(model).left["0"] == "is a DetLinear already"


def test_parameters_may_be_exchanged():
    layer = dt.DetLinear(8, 3, dtype=BF16, order="fma")
    layer.weight.data = B.t().contiguous()
    assert_same(layer(A), dt.linear(A, B.t(), layer.bias, order="fma"))
    layer.weight = nn.Parameter(normal(3, 8))
    layer(A).sum().backward()
    assert layer.weight.grad.shape == (3, 8)
    layer.weight.data = torch.empty(0, dtype=BF16)  # as sharded training leaves it between uses
    with pytest.raises(ValueError, match="weight"):
        layer(A)


# ---- modes, threads, the process ----


def test_the_process_switch_within_blocks_and_threads():
    assert dt.is_deterministic() is None
    with dt.deterministic_mode("fma"):
        dt.set_deterministic_mode("tc16")
        assert dt.is_deterministic() == "fma"
        with dt.deterministic_mode(enabled=False):
            assert dt.is_deterministic() is None
    assert dt.is_deterministic() == "tc16"
    with dt.deterministic_mode("fma"):
        dt.set_deterministic_mode(enabled=False)
        assert dt.is_deterministic() == "fma"
    assert dt.is_deterministic() is None
    dt.set_deterministic_mode("fma")
    thread = threading.Thread(target=dt.set_deterministic_mode, kwargs={"enabled": False})
    thread.start()
    thread.join()
    assert dt.is_deterministic() is None
    dt.set_deterministic_mode("fma")
    if torch.__version__ < "2.6":  # its default device has to be the last mode of the stack
        dt.set_deterministic_mode(enabled=False)
        return
    torch.set_default_device("cpu")
    dt.set_deterministic_mode("tc16")
    torch.set_default_device(None)
    assert dt.is_deterministic() == "tc16"
    dt.set_deterministic_mode(enabled=False)
    assert dt.is_deterministic() is None
    assert not torch.overrides._get_current_function_mode_stack()


def test_one_mode_object_in_two_threads():
    x, w = (z.detach() for z in long_operands())
    expected, mode = dt.matmul(x, w.t(), order="tc16"), dt.deterministic_mode("tc16")
    inside, done, results = threading.Event(), threading.Event(), []

    def first():
        with mode, dt.deterministic_mode("fma"):
            inside.set()
            done.wait(30)

    def second():
        inside.wait(30)
        with mode:
            results.extend((x @ w.t(), torch.inner(x, w)))
        done.set()

    threads = [threading.Thread(target=f) for f in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        assert_same(result, expected)


def test_autocast_in_the_mode_gives_the_dtypes_of_autocast():
    x = torch.randn(5, 8)
    with torch.autocast("cpu", dtype=BF16), dt.deterministic_mode("tc16"):
        assert torch.addmm(torch.zeros(5, 5), x, x.t()).dtype == BF16
        assert torch.baddbmm(torch.zeros(1, 5, 5), x[None], x.t()[None]).dtype == BF16


def test_dot_goes_on_as_before_where_no_mode_is_on():
    with dt.deterministic_mode("fma") as mode:
        assert torch.dot(torch.ones(8), torch.ones(8)) == 8
        x, y = normal(3, 64), normal(2, 4, 64, seed=1)
        assert_same(torch.inner(x, y), dt.matmul(x, y.reshape(8, 64).t()).reshape(3, 2, 4))
        assert_same(torch.inner(y, x[0]), dt.matmul(y, x[0]))
        assert_same(torch.vdot(x[0], x[1]), dt.matmul(x[0], x[1]))
        assert torch.inner(x, torch.tensor(2.0, dtype=BF16)).shape == x.shape
    assert list(mode.passed) == ["dot: dtype torch.float32"]
    assert torch.dot(torch.ones(8), torch.ones(8)) == 8
    assert torch.vdot(torch.ones(8), torch.ones(8)) == 8


def test_exact_products_pass_and_complex_ones_do_not():
    with dt.deterministic_mode("fma", uncovered="raise") as mode:
        assert (torch.ones(2, 2, dtype=torch.int64) @ torch.ones(2, 2, dtype=torch.int64))[0, 0] == 2
        with pytest.raises(NotImplementedError, match="complex64"):
            torch.ones(2, 2, dtype=torch.complex64) @ torch.ones(2, 2, dtype=torch.complex64)
    assert not mode.passed


def test_convert_takes_layers_whose_weight_a_hook_computes():
    linear = nn.utils.weight_norm(nn.Linear(8, 3, dtype=BF16))
    expected = linear(A)
    model = nn.Sequential(linear)
    assert dt.convert(model).converted == ("0",)
    assert model[0](A).shape == expected.shape
    model[0](A).sum().backward()
    assert model[0].weight_g.grad is not None
