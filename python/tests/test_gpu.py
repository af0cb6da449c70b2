"""detgemm.torch on an NVIDIA GPU: the bits of the CPU, gradients, streams, graphs, compilers."""

import warnings

import pytest

import detgemm

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

import detgemm.torch as dt  # noqa: E402
from detgemm import _core, _orders, registry  # noqa: E402

BF16 = torch.bfloat16
ORDERS = ("fma", "tc16")


def normal(*shape, seed=0, dtype=BF16, grad=False):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype).cuda().requires_grad_(grad)


def leaf(x):
    return x.detach().clone().requires_grad_()


def assert_same(x, y):
    comparison = detgemm.compare(x, y)
    assert comparison, str(comparison)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shape", [(1, 64, 256), (17, 33, 100), (300, 128, 512), (5, 9, 31)])
def test_the_bits_of_the_cpu(order, shape):
    m, n, k = shape
    a, w, bias = normal(m, k), normal(n, k, seed=1), normal(n, seed=2)
    dc = normal(m, n, seed=3)

    def run(a, w, bias, dc):
        a, w, bias = leaf(a), leaf(w), leaf(bias)
        y = dt.linear(a, w, bias, order=order)
        y.backward(dc)
        wide = dt.matmul(a, w.t(), order=order, out_dtype=torch.float32)
        return y, a.grad, w.grad, bias.grad, wide

    host = run(*(x.cpu() for x in (a, w, bias, dc)))
    for x, y in zip(run(a, w, bias, dc), host):
        assert_same(x, y)


@pytest.mark.parametrize("order", ORDERS)
def test_gradients_against_fp64(order):
    op = registry.get_op("det_gemm", device="cuda", order=order)
    a, b = normal(256, 512, grad=True), normal(512, 384, seed=1, grad=True)
    x, y = leaf(a.double()), leaf(b.double())
    dc = normal(256, 384, seed=2, dtype=torch.float32)
    for forward in (op, op.forward_fp32, op.forward_accum_fp32):
        a.grad = b.grad = x.grad = y.grad = None
        result = forward(a, b)
        result.backward(dc.to(result.dtype))
        (x @ y).backward(dc.double())
        for ours, exact in ((a, x), (b, y)):
            assert ours.grad.dtype == BF16
            assert (ours.grad.double() - exact.grad).norm() / exact.grad.norm() < 4e-3


def test_layouts_and_batches():
    a, w = normal(4, 6, 64), normal(40, 64, seed=1)
    flat = dt.linear(a.reshape(-1, 64), w, order="tc16")
    assert_same(dt.linear(a, w, order="tc16").reshape(-1, 40), flat)
    turned = a.transpose(0, 1)
    assert_same(dt.linear(turned, w, order="tc16").transpose(0, 1).reshape(-1, 40), flat)
    b = normal(4, 64, 24, seed=2)
    for order in ORDERS:
        got = dt.matmul(a, b, order=order)
        assert_same(got, torch.stack([dt.matmul(x, y, order=order) for x, y in zip(a, b)]))
    assert dt.linear(a[:0], w).shape == (0, 6, 40)


def test_side_streams():
    a, w = normal(512, 1024), normal(768, 1024, seed=1)
    expected = dt.linear(a, w, order="tc16")
    streams = [torch.cuda.Stream() for _ in range(2)]
    results = []
    torch.cuda.synchronize()
    for _ in range(8):
        for stream in streams:
            with torch.cuda.stream(stream):
                x = a.clone()  # on this stream: a product on another one would come too early
                results.append(dt.linear(x, w, order="tc16"))
    torch.cuda.synchronize()
    for y in results:
        assert_same(y, expected)


@pytest.mark.parametrize("order", ORDERS)
def test_cuda_graph(order):
    a, w = normal(16, 256, grad=True), normal(64, 256, seed=1, grad=True)
    a_static = a.detach().clone().requires_grad_()

    def step():
        a_static.grad = w.grad = None
        y = dt.linear(a_static, w, order=order)
        y.sum().backward()
        return y

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = step()
    other = normal(16, 256, seed=5)
    with torch.no_grad():
        a_static.copy_(other)
    graph.replay()
    torch.cuda.synchronize()
    assert_same(y, dt.linear(other, w, order=order))
    assert_same(w.grad, dt.grad_weight(other, torch.ones_like(y), order=order))


def test_opcheck_and_compile():
    a, w, bias = normal(8, 64, grad=True), normal(32, 64, seed=1, grad=True), normal(32, grad=True)
    torch.library.opcheck(torch.ops.detgemm.linear.default, (a, w, bias, "tc16", False))

    def f(a, w, bias):
        return dt.linear(torch.relu(a), w, bias, order="tc16")

    for backend in ("aot_eager", "inductor"):
        compiled = torch.compile(f, backend=backend, fullgraph=True, dynamic=True)
        for rows in (8, 24):
            x, y = normal(rows, 64, seed=rows, grad=True), normal(rows, 64, seed=rows, grad=True)
            f(x, w, bias).sum().backward()
            compiled(y, w, bias).sum().backward()
            assert_same(x.grad, y.grad)


def test_mode():
    x, y = normal(64, 4096, grad=True), normal(48, 4096, seed=1)
    with dt.deterministic_mode("fma"):
        torch.inner(x, y).sum().backward()
        got = torch.nn.functional.linear(x, y)
    assert_same(got, dt.linear(x, y, order="fma"))
    assert_same(x.grad, dt.matmul(torch.ones_like(got), y, order="fma"))


def test_one_hint_at_tc16():
    _orders._warned = False
    a = normal(2, 16)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dt.matmul(a, a.t(), order="fma")
        assert not caught
        dt.matmul(a, a.t())
        dt.matmul(a, a.t())
    assert len(caught) == 1
    assert "tc16" in str(caught[0].message)


def test_devices():
    with pytest.raises(ValueError, match="one device"):
        dt.matmul(normal(2, 3), normal(3, 2).cpu())
    if torch.cuda.device_count() > 1:
        a = normal(5, 64).to("cuda:1")
        assert_same(dt.matmul(a, a.t()), dt.matmul(a.to("cuda:0"), a.to("cuda:0").t()))


def test_other_libraries_on_the_gpu():
    a = normal(6, 32)
    cupy = pytest.importorskip("cupy")
    bits = cupy.from_dlpack(a.view(torch.int16)).view(cupy.uint16)
    got = detgemm.matmul(bits, bits.T, order="tc16")
    assert type(got) is cupy.ndarray
    assert_same(got, dt.matmul(a, a.t(), order="tc16"))


def test_jax_on_the_gpu():
    jax = pytest.importorskip("jax")
    a = jax.numpy.asarray(normal(6, 32).float().cpu().numpy(), "bfloat16")
    if next(iter(a.devices())).platform != "gpu":
        pytest.skip("JAX has no GPU")
    got = detgemm.matmul(a, a.T, order="tc16")
    assert type(got) is type(a)
    x = normal(6, 32)
    assert_same(got, dt.matmul(x, x.t(), order="tc16"))


def test_verify():
    found = detgemm.verify("cuda:0")
    assert found, str(found)
    assert any(check.products for check in found.checks)
    assert _core.Device("cuda:0").name == "cuda:0"
