"""detgemm.torch on the CPU: values, gradients, layouts, the operators under PyTorch's tools."""

import subprocess
import sys

import pytest
from conftest import read_safetensors, vector_files

import detgemm

torch = pytest.importorskip("torch")
import detgemm.torch as dt  # noqa: E402
from detgemm import registry  # noqa: E402

BF16 = torch.bfloat16
ORDERS = ("fma", "tc16")


def normal(*shape, seed=0, dtype=BF16, grad=False):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype).requires_grad_(grad)


def assert_same(x, y):
    comparison = detgemm.compare(x, y)
    assert comparison, str(comparison)


def leaf(x):
    return x.detach().clone().requires_grad_()


def tensor(bits):
    """A tensor of what read_safetensors gives: uint16 holds BF16."""
    if bits.dtype == "uint16":
        return torch.from_numpy(bits.view("int16").copy()).view(BF16)
    return torch.from_numpy(bits.copy())


@pytest.mark.parametrize("path", vector_files("fma-*", "tc16-[!m]*"))
def test_vectors_and_their_gradients(path):
    arrays, metadata = read_safetensors(path)
    v = {name: tensor(bits) for name, bits in arrays.items()}
    op = registry.get_op("det_gemm", device="cpu", order=metadata["order"])
    a, b = leaf(v["a"]), leaf(v["b"])
    y = op(a, b)
    assert_same(y, v["forward"])
    y.backward(v["grad_c"])
    assert_same(a.grad, v["grad_a"])
    assert_same(b.grad, v["grad_b"])
    a, w = leaf(v["a"]), leaf(v["b_transposed"])
    y = op.linear(a, w)
    assert_same(y, v["forward"])
    y.backward(v["grad_c"])
    assert_same(a.grad, v["grad_a"])
    assert_same(w.grad, v["grad_b_transposed"])
    assert w.grad.is_contiguous()
    assert_same(op.forward_fp32(v["a"], v["b"]), v["forward_fp32"])
    assert_same(op.forward_accum_fp32(v["a"], v["b"]), v["forward_fp32"])
    continued = op.forward_accum_fp32(v["a"], v["b"], start=v["c_in"])
    assert_same(continued, v["forward_continue_fp32"])


@pytest.mark.parametrize("order", ORDERS)
def test_gradient_of_fp32_outputs_is_rounded_to_bf16(order):
    op = dt.CpuDetGemmOp(order=order)
    dc = normal(6, 9, seed=3, dtype=torch.float32)
    grads = []
    for forward in (op.forward_fp32, op.forward_accum_fp32, op):
        a, b = normal(6, 20, grad=True), normal(20, 9, seed=1, grad=True)
        y = forward(a, b)
        y.backward(dc if y.dtype == torch.float32 else dc.to(BF16))
        assert a.grad.dtype == b.grad.dtype == BF16
        grads.append((a.grad, b.grad))
    for other in grads[1:]:
        assert_same(grads[0][0], other[0])
        assert_same(grads[0][1], other[1])
    start = normal(6, 9, seed=4, dtype=torch.float32, grad=True)
    op.forward_accum_fp32(a, b, start).backward(dc)
    assert_same(start.grad, dc)


@pytest.mark.parametrize("which", [(True, False), (False, True)])
def test_only_needed_gradients_are_computed(which, monkeypatch):
    from detgemm.torch import _ops

    a, w = normal(4, 8, grad=which[0]), normal(5, 8, seed=1, grad=which[1])
    calls = []

    def seen(name, call):
        return lambda *args: (calls.append(name), call(*args))[1]

    watched = {name: seen(name, call) for name, call in _ops._KERNELS._asdict().items()}
    monkeypatch.setattr(_ops, "_KERNELS", _ops._Products(**watched))
    dt.linear(a, w).sum().backward()
    assert calls == (["matmul"] if which[0] else ["grad_weight"])
    assert (a.grad is not None, w.grad is not None) == which


def test_bias_gradient_is_a_sum_in_the_order():
    a, w, bias = normal(7, 8), normal(5, 8, seed=1), normal(5, seed=2, grad=True)
    dc = normal(7, 5, seed=3)
    dt.linear(a, w, bias).backward(dc)
    assert_same(bias.grad, dt.matmul(torch.ones(1, 7, dtype=BF16), dc)[0])


def test_against_fp64_autograd():
    a, w, bias = normal(33, 64, grad=True), normal(17, 64, seed=1, grad=True), normal(17, grad=True)
    doubles = [leaf(x.double()) for x in (a, w, bias)]
    dc = normal(33, 17, seed=5)
    dt.linear(a, w, bias).backward(dc)
    torch.nn.functional.linear(*doubles).backward(dc.double())
    for x, exact in zip((a, w, bias), doubles):
        error = (x.grad.double() - exact.grad).norm() / exact.grad.norm()
        assert error < 4e-3


def test_double_backward_in_fp32():
    def f(a, b):
        return dt.matmul(a, b, order="fma")

    def g(a, w):
        return dt.linear(a, w, order="fma")

    torch.manual_seed(0)
    a, b = torch.randn(3, 4, requires_grad=True), torch.randn(4, 2, requires_grad=True)
    for function, args in ((f, (a, b)), (g, (a, leaf(b.t())))):
        y = function(*args)
        grads = torch.autograd.grad(y.pow(2).sum(), args, create_graph=True)
        ours = torch.autograd.grad(sum(x.pow(2).sum() for x in grads), args)
        exact = [leaf(x.double()) for x in args]
        y = exact[0] @ (exact[1] if function is f else exact[1].t())
        grads = torch.autograd.grad(y.pow(2).sum(), exact, create_graph=True)
        theirs = torch.autograd.grad(sum(x.pow(2).sum() for x in grads), exact)
        for x, z in zip(ours, theirs):
            assert torch.allclose(x.double(), z, rtol=1e-4)


@pytest.mark.parametrize("order", ORDERS)
def test_layouts_and_dimensions_change_no_bit(order):
    a, w = normal(2, 3, 4, 32), normal(9, 32, seed=1)
    flat = dt.linear(a.reshape(-1, 32), w, order=order)
    assert_same(dt.linear(a, w, order=order).reshape(-1, 9), flat)
    turned = a.permute(2, 0, 1, 3)
    assert_same(dt.linear(turned, w, order=order).permute(1, 2, 0, 3).reshape(-1, 9), flat)
    assert_same(dt.linear(a[0, 0, 0], w, order=order), flat[0])
    assert_same(dt.matmul(a, w.t(), order=order).reshape(-1, 9), flat)
    wide = normal(24, 100, seed=2)[:, 3:99:3]
    assert_same(dt.linear(wide, w, order=order), dt.linear(wide.contiguous(), w, order=order))
    assert_same(dt.matmul(a[0, 0, 0], w.t(), order=order), flat[0])
    assert_same(dt.matmul(w, a[0, 0, 0], order=order), flat[0])


def test_gradients_do_not_depend_on_shape_or_layout():
    w, x, dc = normal(9, 32, seed=1), normal(2, 3, 4, 32), normal(2, 3, 4, 9, seed=2)

    def grads(a, b, d, function):
        a, b = leaf(a), leaf(b)
        function(a, b).backward(d)
        return a.grad.reshape(-1, 32), b.grad

    flat = grads(x.reshape(-1, 32), w, dc.reshape(-1, 9), dt.linear)
    whole = grads(x, w, dc, dt.linear)
    product = grads(x, w.t().contiguous(), dc, dt.matmul)
    for i in range(2):
        assert_same(flat[i], whole[i])
    assert_same(product[0], flat[0])
    assert_same(product[1].t(), flat[1])
    half = x.transpose(1, 2)
    turned = grads(half, w, dc.transpose(1, 2), dt.linear)
    same_rows = grads(half.reshape(-1, 32), w, dc.transpose(1, 2).reshape(-1, 9), dt.linear)
    assert_same(turned[1], same_rows[1])


def test_gradient_of_a_shared_operand_is_one_sum():
    a, b = normal(3, 5, 16, grad=True), normal(4, 1, 16, 7, seed=1, grad=True)
    dc = normal(4, 3, 5, 7, seed=2)
    dt.matmul(a, b).backward(dc)
    rows = a.detach().reshape(15, 16)
    for i in range(4):
        assert_same(b.grad[i, 0], detgemm.grad_b(rows, dc[i].reshape(15, 7)))
    left = dc.permute(1, 2, 0, 3).reshape(3, 5, 28)
    right = b.detach()[:, 0].permute(0, 2, 1).reshape(28, 16)
    assert_same(a.grad, dt.matmul(left, right))


def test_empty_tensors():
    w = normal(5, 8, grad=True)
    a = torch.zeros(0, 8, dtype=BF16, requires_grad=True)
    y = dt.linear(a, w)
    assert y.shape == (0, 5)
    y.sum().backward()
    assert a.grad.shape == (0, 8)
    assert not w.grad.any()
    assert not dt.matmul(torch.zeros(3, 0, dtype=BF16), torch.zeros(0, 4, dtype=BF16)).any()
    assert dt.matmul(torch.zeros(2, 0, 4, dtype=BF16), normal(4, 3)).shape == (2, 0, 3)


def test_out_and_dtypes():
    a, b = normal(5, 8), normal(8, 3, seed=1)
    out = torch.zeros(3, 5, dtype=BF16).t()
    assert dt.matmul(a, b, out=out) is out
    assert_same(out.contiguous(), dt.matmul(a, b))
    assert dt.matmul(a, b, out_dtype=torch.float16).dtype == torch.float16
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        dt.matmul(leaf(a), b, out=out)
    with pytest.raises(ValueError, match="out is"):
        dt.matmul(a, b, out=out[:2])
    assert_same(detgemm.matmul(a, b), dt.matmul(a, b))
    assert_same(detgemm.grad_b_t(a, dt.matmul(a, b)), detgemm.grad_b(a, dt.matmul(a, b)).t())


@pytest.mark.parametrize(
    ("a", "b", "error", "text"),
    [
        (normal(4, 8), normal(7, 3), ValueError, "do not go together"),
        (normal(4, 8), normal(8, 3, dtype=torch.float16), TypeError, "make them the same"),
        (normal(4, 8, dtype=torch.float64), normal(8, 3), TypeError, "float64"),
        (normal(4, 8), normal(8, 3).to("meta"), ValueError, "one device"),
        (normal(4, 8), [[1.0]], TypeError, "b is a list"),
        (normal(4, 8).to_sparse(), normal(8, 3), (TypeError, NotImplementedError), "(?i)sparse"),
        (normal(2, 4, 8), normal(3, 8, 3), ValueError, "batch dimensions"),
    ],
)
def test_errors(a, b, error, text):
    with pytest.raises(error, match=text):
        dt.matmul(a, b)


def test_errors_of_linear_and_state():
    with pytest.raises(ValueError, match="last dimension must be 8"):
        dt.linear(normal(4, 7), normal(3, 8))
    with pytest.raises(ValueError, match="vector of 3"):
        dt.linear(normal(4, 8), normal(3, 8), normal(4))
    with pytest.raises(ValueError, match="on meta"):
        dt.linear(normal(4, 8), normal(3, 8), normal(3).to("meta"))
    with pytest.raises(TypeError, match="tc16"):
        dt.linear(torch.zeros(4, 8), torch.zeros(3, 8), order="tc16")
    with pytest.raises(TypeError, match=r"torch\.float32"):
        dt.matmul(normal(4, 8), normal(8, 3), start=normal(4, 3))
    with pytest.raises(ValueError, match="start is"):
        dt.matmul(normal(4, 8), normal(8, 3), start=torch.zeros(4, 4))
    with pytest.raises(ValueError, match="must agree"):
        dt.grad_weight(normal(4, 8), normal(5, 3))


# ---- PyTorch's tools ----


@pytest.mark.parametrize("fp32", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_opcheck(order, fp32):
    check = torch.library.opcheck
    a, w, b = normal(6, 20, grad=True), normal(9, 20, seed=1, grad=True), normal(9, grad=True)
    state = normal(6, 9, dtype=torch.float32, grad=True)
    check(torch.ops.detgemm.linear.default, (a, w, b, order, fp32))
    check(torch.ops.detgemm.linear.default, (normal(2, 3, 20), w, None, order, fp32))
    check(torch.ops.detgemm.matmul.default, (a, leaf(w.t()), state, b, order, fp32))
    check(
        torch.ops.detgemm.matmul.default,
        (normal(3, 6, 20, grad=True), normal(20, 4), None, None, order, fp32),
    )
    dc = normal(6, 9, seed=4, grad=True)
    check(torch.ops.detgemm.grad_weight.default, (a, dc, None, order, fp32))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile(backend, dynamic):
    torch._dynamo.reset()
    op = dt.CpuDetGemmOp(order="tc16")
    w, bias = normal(9, 32, seed=1), normal(9, seed=2)

    def f(a, w, bias):
        return op.forward_fp32(torch.relu(op.linear(a, w, bias)), w).sum(-1)

    compiled = torch.compile(f, backend=backend, dynamic=dynamic, fullgraph=True)
    for rows in (4, 7, 16):
        args = [leaf(normal(rows, 32, seed=rows)), leaf(w), leaf(bias)]
        others = [leaf(x) for x in args]
        f(*args).sum().backward()
        compiled(*others).sum().backward()
        for x, y in zip(args, others):
            assert_same(x.grad, y.grad)


def test_export():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = dt.DetLinear(32, 9, dtype=BF16, order="fma")

        def forward(self, x):
            return self.layer(x)

    model = Model()
    rows = torch.export.Dim("rows", min=2, max=1000)
    program = torch.export.export(model, (normal(4, 32),), dynamic_shapes={"x": {0: rows}})
    assert "detgemm.linear" in str(program.graph)
    x = normal(11, 32, seed=1)
    assert_same(program.module()(x), model(x))


def test_vmap():
    a, w, bias = normal(5, 6, 16), normal(5, 9, 16, seed=1), normal(5, 9, seed=2)
    vmap = torch.func.vmap
    assert_same(vmap(dt.linear)(a, w), torch.stack([dt.linear(x, y) for x, y in zip(a, w)]))
    assert_same(vmap(dt.linear, (0, None))(a, w[0]), dt.linear(a, w[0]))
    got = vmap(dt.linear, (None, 0, 0))(a[0], w, bias)
    assert_same(got, torch.stack([dt.linear(a[0], y, z) for y, z in zip(w, bias)]))
    got = vmap(dt.linear, (0, None, 0))(a, w[0], bias)
    assert_same(got, torch.stack([dt.linear(x, w[0], z) for x, z in zip(a, bias)]))
    got = vmap(dt.matmul, (1, None), 1)(a, w[0].t())
    assert_same(got.contiguous(), dt.matmul(a, w[0].t()))
    got = vmap(dt.grad_weight)(a, dt.linear(a, w[0]))
    assert_same(got[3], dt.grad_weight(a[3], dt.linear(a[3], w[0])))
    nested = vmap(vmap(dt.linear, (0, None)), (0, 0))(a, w)
    assert_same(nested, vmap(dt.linear)(a, w))
    per_sample = torch.func.vmap(torch.func.grad(lambda w, x: dt.linear(x, w).float().sum()), (None, 0))(
        w[0], a
    )
    weight = leaf(w[0])
    dt.linear(a[2], weight).float().sum().backward()
    assert_same(per_sample[2], weight.grad)


def test_autocast():
    a, w = normal(4, 16, dtype=torch.float32), normal(5, 16, seed=1, dtype=torch.float32, grad=True)
    with torch.autocast("cpu", dtype=BF16):
        y = dt.linear(a, w)
        assert y.dtype == BF16
        assert_same(y, dt.linear(a.to(BF16), w.detach().to(BF16)))
        y.sum().backward()
    assert w.grad.dtype == torch.float32


def test_use_deterministic_algorithms():
    torch.use_deterministic_algorithms(True)
    try:
        a = normal(8, 16, grad=True)
        dt.linear(a, normal(4, 16)).sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)


def test_thread_count_changes_no_bit_and_follows_torch():
    from detgemm.torch import _kernels

    a, w = normal(200, 300), normal(150, 300, seed=1)
    before, expected = torch.get_num_threads(), dt.linear(a, w)
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            assert_same(dt.linear(a, w), expected)
            assert threads in _kernels._cpus
    finally:
        torch.set_num_threads(before)


WORKERS = """
import torch
from torch.utils.data import DataLoader, Dataset
import detgemm.torch as dt

w = torch.randn(64, 256).to(torch.bfloat16)

class Products(Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, i):
        x = torch.full((300, 256), i + 1.0, dtype=torch.bfloat16)
        torch.set_num_threads(2)  # PyTorch itself would hang with more than 1 in a forked child
        y = dt.linear(x, w)
        torch.set_num_threads(1)
        return y

if __name__ == "__main__":
    torch.set_num_threads(4)
    data = Products()
    expected = [dt.linear(torch.full((300, 256), i + 1.0, dtype=torch.bfloat16), w) for i in range(12)]
    loader = DataLoader(data, batch_size=None, num_workers=2, multiprocessing_context="fork")
    for i, y in enumerate(loader):
        assert torch.equal(y, expected[i])
    print("same")
"""


def test_forked_dataloader_workers():
    run = subprocess.run(
        [sys.executable, "-c", WORKERS], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.stdout.strip() == "same", run.stderr


# ---- modules and the registry ----


def test_det_linear():
    linear = torch.nn.Linear(16, 9).to(BF16)
    layer = dt.DetLinear.from_linear(linear, order="tc16")
    assert layer.weight is linear.weight
    assert list(layer.state_dict()) == list(linear.state_dict())
    other = dt.DetLinear(16, 9, dtype=BF16)
    other.load_state_dict(linear.state_dict())
    x = normal(3, 16)
    assert_same(layer(x), dt.linear(x, linear.weight, linear.bias, order="tc16"))
    assert "order='tc16'" in repr(layer)
    assert dt.DetLinear.from_linear(torch.nn.Linear(4, 4, bias=False)).bias is None


def test_convert():
    class Own(torch.nn.Linear):
        pass

    shared = torch.nn.Linear(8, 8)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), Own(8, 8), shared, shared).to(BF16)
    result = dt.convert(model, order="fma", where=lambda name, module: True)
    assert result.model is model
    assert result.converted == ("0", "2")
    assert "Own" in result.left["1"]
    assert model[2] is model[3]
    assert isinstance(dt.convert(torch.nn.Linear(2, 2)).model, dt.DetLinear)


def test_registry():
    assert isinstance(registry.get_op("det_gemm", device="cpu"), dt.CpuDetGemmOp)
    assert isinstance(registry.get_op("det_gemm", device=torch.device("cpu")), dt.CpuDetGemmOp)
    if not torch.cuda.is_available():
        assert isinstance(registry.get_op("det_gemm"), dt.CpuDetGemmOp)
        with pytest.raises(RuntimeError, match=r"cuda: torch\.cuda\.is_available"):
            registry.get_op("det_gemm", device="cuda")
    with pytest.raises(RuntimeError, match="torch_musa"):
        registry.get_op("det_gemm", device="musa")
    with pytest.raises(KeyError, match="there are det_gemm"):
        registry.get_op("gemm")
    with pytest.raises(ValueError, match="no operator for device 'tpu'"):
        registry.get_op("det_gemm", device="tpu")
    with pytest.raises(ValueError, match='the orders are "fma"'):
        registry.get_op("det_gemm", device="cpu", order="bits")


def test_registry_takes_third_parties():
    class Theirs:
        def __init__(self, order=None):
            self.order = order

    registry.register("det_gemm", "cpu", Theirs, priority=5)
    try:
        assert isinstance(registry.get_op("det_gemm", device="cpu", order="fma"), Theirs)
        assert "Theirs" in registry.describe()
    finally:
        registry.unregister("det_gemm", "cpu", Theirs)
    registry.register("det_gemm", "cpu", Theirs, priority=900, unavailable=lambda: "out of order")
    try:
        assert isinstance(registry.get_op("det_gemm", device="cpu"), dt.CpuDetGemmOp)
        assert "passed over: out of order" in registry.describe()
    finally:
        registry.unregister("det_gemm", "cpu", Theirs)


def test_operators_refuse_other_devices():
    with pytest.raises(ValueError, match="takes tensors on cuda; one is on cpu"):
        dt.CudaDetGemmOp()(normal(2, 3), normal(3, 2))
    with pytest.raises(TypeError, match="takes tensors"):
        dt.CpuDetGemmOp()([1.0], normal(3, 2))
    assert dt.CpuDetGemmOp(order="tc16").kernel(normal(2, 3), normal(3, 2)).startswith("tc16_")


def test_matrix_times_vector():
    op, a, x = dt.CpuDetGemmOp(), normal(5, 8, grad=True), normal(8, seed=1, grad=True)
    y = op(a, x)
    assert y.shape == (5,)
    y.backward(normal(5, seed=2))
    assert a.grad.shape == (5, 8)
    assert x.grad.shape == (8,)
    assert op(x, x).shape == ()
