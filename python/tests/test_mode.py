"""deterministic_mode: what it routes, how it nests, what it leaves, and torch.compile."""

import threading

import pytest

import detgemm

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import detgemm.torch as dt  # noqa: E402
from detgemm.torch import _einsum  # noqa: E402

BF16 = torch.bfloat16


def normal(*shape, seed=0, dtype=BF16, grad=False):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype).requires_grad_(grad)


def assert_same(x, y):
    comparison = detgemm.compare(x, y)
    assert comparison, str(comparison)


A, B = normal(24, 96), normal(96, 16, seed=1)
A3, B3 = normal(3, 24, 96, seed=2), normal(3, 96, 16, seed=3)
BIAS, ADDED, ADDED3 = normal(16, seed=4), normal(24, 16, seed=5), normal(3, 24, 16, seed=6)
FP32 = torch.float32


def _scaled(state, added, beta, alpha):
    return (state * alpha + added.float() * beta).to(BF16)


CALLS = {
    "mm": (lambda: torch.mm(A, B), lambda o: dt.matmul(A, B, order=o)),
    "Tensor.mm": (lambda: A.mm(B), lambda o: dt.matmul(A, B, order=o)),
    "@": (lambda: A @ B, lambda o: dt.matmul(A, B, order=o)),
    "matmul": (lambda: torch.matmul(A3, B), lambda o: dt.matmul(A3, B, order=o)),
    "bmm": (lambda: torch.bmm(A3, B3), lambda o: dt.matmul(A3, B3, order=o)),
    "linear": (lambda: F.linear(A3, B.t(), BIAS), lambda o: dt.linear(A3, B.t(), BIAS, order=o)),
    "mv": (lambda: A.mv(B[:, 0]), lambda o: dt.matmul(A, B[:, 0], order=o)),
    "matrix @ vector": (lambda: A @ B[:, 0], lambda o: dt.matmul(A, B[:, 0], order=o)),
    "dot": (lambda: A[0].dot(B[:, 0]), lambda o: dt.matmul(A[0], B[:, 0], order=o)),
    "addmm": (lambda: torch.addmm(BIAS, A, B), lambda o: dt.matmul(A, B, bias=BIAS, order=o)),
    "addmm matrix": (
        lambda: ADDED.addmm(A, B),
        lambda o: _scaled(dt.matmul(A, B, order=o, out_dtype=FP32), ADDED, 1, 1),
    ),
    "addmm alpha, beta": (
        lambda: torch.addmm(ADDED, A, B, beta=0.5, alpha=2),
        lambda o: _scaled(dt.matmul(A, B, order=o, out_dtype=FP32), ADDED, 0.5, 2),
    ),
    "addmm beta 0": (
        lambda: torch.addmm(torch.full_like(ADDED, float("nan")), A, B, beta=0),
        lambda o: dt.matmul(A, B, order=o),
    ),
    "addmm_": (
        lambda: ADDED.clone().addmm_(A, B, beta=0),
        lambda o: dt.matmul(A, B, order=o),
    ),
    "baddbmm": (
        lambda: torch.baddbmm(ADDED3, A3, B3, alpha=3),
        lambda o: _scaled(dt.matmul(A3, B3, order=o, out_dtype=FP32), ADDED3, 1, 3),
    ),
    "addmv": (
        lambda: torch.addmv(ADDED[:, 0], A, B[:, 0]),
        lambda o: _scaled(dt.matmul(A, B[:, 0], order=o, out_dtype=FP32), ADDED[:, 0], 1, 1),
    ),
    "einsum": (
        lambda: torch.einsum("bik,bkj->bji", A3, B3),
        lambda o: dt.matmul(A3, B3, order=o).transpose(1, 2),
    ),
    "einsum of 3": (
        lambda: torch.einsum("ik,kj,lj->il", A, B, ADDED),
        lambda o: dt.matmul(dt.matmul(A, B, order=o), ADDED.t(), order=o),
    ),
    "out=": (
        lambda: torch.mm(A, B, out=torch.empty(24, 16, dtype=BF16)),
        lambda o: dt.matmul(A, B, order=o),
    ),
    "inner": (lambda: torch.inner(A, B.t()), lambda o: dt.matmul(A, B, order=o)),
    "tensordot": (lambda: torch.tensordot(A, B, 1), lambda o: dt.matmul(A, B, order=o)),
    "chain_matmul": (
        lambda: torch.linalg.multi_dot([A, B]),
        lambda o: dt.matmul(A, B, order=o),
    ),
}


@pytest.mark.parametrize("order", ["fma", "tc16"])
@pytest.mark.parametrize("name", CALLS)
def test_routes(name, order):
    call, expected = CALLS[name]
    with dt.deterministic_mode(order):
        assert_same(call(), expected(order))


@pytest.mark.parametrize("name", CALLS)
def test_products_that_come_from_inside_pytorch(name):
    """The kernels of ATen alone, as composite operators and C++ reach them."""
    call, expected = CALLS[name]
    if name == "dot" and not hasattr(torch.library, "get_kernel"):
        pytest.skip("before PyTorch 2.9 the kernel of dot cannot be replaced; torch.dot is routed")
    if name == "addmm beta 0":
        expected = CALLS["mm"][1]
    with dt.deterministic_mode("tc16"), torch._C.DisableTorchFunctionSubclass():
        from detgemm.torch import _mode

        with _mode._forced(_mode._innermost()), torch._C.DisableTorchFunction():
            got = call()
    assert_same(got, expected("tc16"))


def difference():
    """Operands whose products differ between the orders and PyTorch."""
    generator = torch.Generator().manual_seed(9)
    return [torch.randn(64, 4096, generator=generator).to(BF16) for _ in range(2)]


def test_nesting():
    x, y = difference()
    fma = dt.matmul(x, y.t(), order="fma")
    tc16 = dt.matmul(x, y.t(), order="tc16")
    plain = x @ y.t()
    assert not detgemm.compare(fma, tc16)
    assert not detgemm.compare(fma, plain)
    with dt.deterministic_mode("fma"):
        assert_same(x @ y.t(), fma)
        with dt.deterministic_mode("tc16"):
            assert_same(x @ y.t(), tc16)
            assert dt.is_deterministic() == "tc16"
        with dt.deterministic_mode(enabled=False):
            assert_same(x @ y.t(), plain)
            assert dt.is_deterministic() is None
            with dt.deterministic_mode("tc16"):
                assert_same(x @ y.t(), tc16)
            assert_same(x @ y.t(), plain)
        assert_same(x @ y.t(), fma)
    assert_same(x @ y.t(), plain)
    with pytest.raises(ZeroDivisionError), dt.deterministic_mode("fma"):
        _ = 1 / 0
    assert_same(x @ y.t(), plain)
    mode = dt.deterministic_mode("fma")
    with mode, mode:
        assert_same(x @ y.t(), fma)


def test_process_wide():
    x, y = difference()
    plain, fma = x @ y.t(), dt.matmul(x, y.t(), order="fma")
    results = []
    dt.set_deterministic_mode("fma")
    try:
        assert_same(x @ y.t(), fma)
        with dt.deterministic_mode(enabled=False):
            assert_same(x @ y.t(), plain)
        thread = threading.Thread(target=lambda: results.append(x @ y.t()))
        thread.start()
        thread.join()
        assert_same(results[0], fma)
    finally:
        dt.set_deterministic_mode(enabled=False)
    assert_same(x @ y.t(), plain)


def test_other_threads_are_not_in_a_block():
    x, y = difference()
    plain, results = x @ y.t(), []
    with dt.deterministic_mode("fma"):
        thread = threading.Thread(target=lambda: results.append(x @ y.t()))
        thread.start()
        thread.join()
    assert_same(results[0], plain)


def test_backward_is_routed():
    x, y = difference()
    w = normal(32, 4096, grad=True)
    with dt.deterministic_mode("tc16"):
        F.linear(x, w).sum().backward()
    got, w.grad = w.grad, None
    dt.linear(x, w, order="tc16").sum().backward()
    assert_same(got, w.grad)
    w.grad = None
    with dt.deterministic_mode("tc16"):
        result = F.linear(x, w)
    result.sum().backward()  # outside: the operator brought its own gradient
    assert_same(got, w.grad)
    a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
    with dt.deterministic_mode("fma"):
        torch.inner(a, b).backward(normal(64, 64))
    assert_same(a.grad, dt.matmul(normal(64, 64), y, order="fma"))


def test_module():
    x, _ = difference()
    model = nn.Sequential(nn.Linear(4096, 32), nn.Linear(32, 8)).to(BF16)
    first = dt.linear(x, model[0].weight, model[0].bias, order="tc16")
    dt.deterministic_module(model[0], "tc16")
    assert_same(model[0](x), first)
    assert_same(model(x), F.linear(first, model[1].weight, model[1].bias))


def test_what_is_not_covered():
    x = torch.ones(2, 2)
    with dt.deterministic_mode() as mode:
        assert (x @ x).tolist() == [[2, 2], [2, 2]]
        F.scaled_dot_product_attention(x[None], x[None], x[None])
    assert any("torch.float32" in reason for reason in mode.passed)
    assert any("attention" in reason for reason in mode.passed)
    with dt.deterministic_mode(uncovered="raise"):
        with pytest.raises(NotImplementedError, match=r"dtype torch\.float32"):
            x @ x
        with pytest.raises(NotImplementedError, match="attention kernels"):
            F.scaled_dot_product_attention(x[None], x[None], x[None])
        with pytest.raises(NotImplementedError, match="not covered"):
            torch.inner(x, x)
        assert torch.ones(2).sum() == 2
    with dt.deterministic_mode("fma", dtypes=(torch.float32,)) as mode:
        assert_same(x @ x, dt.matmul(x, x, order="fma"))
    assert not mode.passed
    with pytest.raises(ValueError, match="uncovered"):
        dt.deterministic_mode(uncovered="warn")
    with pytest.raises(TypeError, match="float64"):
        dt.deterministic_mode(dtypes=(torch.float64,))


def test_autocast():
    x, y = (z.float() for z in difference())
    expected = dt.matmul(x.to(BF16), y.to(BF16).t(), order="tc16")
    with dt.deterministic_mode("tc16"), torch.autocast("cpu", dtype=BF16):
        assert_same(x @ y.t(), expected)
        assert_same(F.linear(x, y), expected)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compile_in_the_mode(backend, dynamic):
    if not hasattr(torch.overrides, "_get_current_function_mode_stack") or (torch.__version__ < "2.6"):
        pytest.skip("torch.compile traces function modes from PyTorch 2.6 on")
    torch._dynamo.reset()
    x, y = difference()

    def f(x, y):
        z = x @ y.t()
        d = z.detach()  # a compiler may round sums of gradients less often than eager mode
        return torch.einsum("ij,kj->ki", torch.relu(z), z), torch.addmm(d, d, d, alpha=0.3)

    compiled = torch.compile(f, backend=backend, dynamic=dynamic, fullgraph=True)
    plain = compiled(x, y)
    for order in ("fma", "tc16", "fma"):
        with dt.deterministic_mode(order):
            a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
            expected = f(a, y)
            got = compiled(b, y)
            for ours, theirs in zip(got, expected):
                assert_same(ours, theirs)
            expected[0].sum().backward()
            got[0].sum().backward()
            assert_same(a.grad, b.grad)
            with dt.deterministic_mode(enabled=False):
                assert_same(compiled(x, y)[0], plain[0])
    assert_same(compiled(x, y)[0], plain[0])


def test_whole_model_alone_and_in_a_batch():
    """A row of a transformer layer's projections has the same bits alone and in every batch."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)).to(BF16)
    x = normal(65, 256)
    with torch.no_grad(), dt.deterministic_mode("fma"):
        whole = model(x)
        for rows in (1, 2, 7, 33):
            assert_same(model(x[:rows]), whole[:rows])


def test_einsum_parsing():
    cases = {
        "ij,jk": (2, 2),
        "...ij,...jk->...ik": (4, 3),
        "bhqd,bhkd->bhqk": (4, 4),
        " ab , cb -> ca": (2, 2),
        "abc,cd->abd": (3, 2),
        "ab,ab->": (2, 2),
    }
    for equation, ranks in cases.items():
        shape = (2, 3, 4, 5)
        sizes = dict(zip("abchijkqdABCD", (2, 3, 4, 2, 3, 4, 5, 3, 4)))
        terms = equation.replace(" ", "").split("->")[0].split(",")
        operands = []
        for index, (term, rank) in enumerate(zip(terms, ranks)):
            own = [sizes[c] for c in term.replace("...", "")]
            leading = list(shape[: rank - len(own)]) if "..." in term else []
            if "..." in term and ranks[index] < max(ranks):
                leading = list(shape[: max(ranks) - 2])[-len(leading) :]
            operands.append(torch.randn(*leading, *own, dtype=torch.float64))
        got = _einsum.einsum(equation, operands, torch.matmul)
        expected = torch.einsum(equation, *operands)
        if got is not None:
            assert torch.allclose(got, expected), equation
    assert _einsum.einsum("ii,ij", [torch.ones(2, 2)] * 2, torch.matmul) is None
    assert _einsum.einsum("ij,kl->", [torch.ones(2, 2)] * 2, torch.matmul) is None
