"""Arrays of NumPy and others: the vectors' bits, layouts, batches, and errors."""

import numpy as np
import pytest
from conftest import bf16_bits, read_safetensors, vector_files

import detgemm


def assert_same(x, y):
    comparison = detgemm.compare(x, y)
    assert comparison, str(comparison)


@pytest.mark.parametrize("path", vector_files("fma-*", "tc16-[!m]*"))
def test_vectors(path):
    v, metadata = read_safetensors(path)
    order = {"order": metadata["order"]}
    a, b, bt, dc = v["a"], v["b"], v["b_transposed"], v["grad_c"]
    assert_same(detgemm.forward(a, b, **order), v["forward"])
    assert_same(detgemm.forward_nt(a, bt, **order), v["forward"])
    assert_same(detgemm.matmul(a, bt.T, out_dtype="float32", **order), v["forward_fp32"])
    continued = detgemm.matmul(a, b, start=v["c_in"], out_dtype=np.float32, **order)
    assert_same(continued, v["forward_continue_fp32"])
    assert_same(detgemm.grad_a(dc, b, **order), v["grad_a"])
    assert_same(detgemm.grad_b(a, dc, **order), v["grad_b"])
    assert_same(detgemm.grad_b(a, dc, out_dtype="float32", **order), v["grad_b_fp32"])
    assert_same(detgemm.grad_b_t(a, dc, **order), v["grad_b_transposed"])


@pytest.mark.parametrize("path", vector_files("tc16-measured*"))
def test_vectors_read_off_hardware(path):
    v, _ = read_safetensors(path)
    right = v["b_transposed"].transpose(0, 2, 1)
    got = detgemm.matmul(v["a"], right, order="tc16", start=v["c_in"], out_dtype="float32")
    assert_same(got, v["d"])


@pytest.mark.parametrize("order", ["fma", "tc16"])
def test_a_row_does_not_depend_on_its_batch(order):
    a, b = bf16_bits((65, 100), 1, wild=True), bf16_bits((100, 33), 2)
    whole = detgemm.matmul(a, b, order=order)
    for rows in (slice(0, 1), slice(3, 20), slice(64, 65)):
        assert_same(detgemm.matmul(a[rows], b, order=order), whole[rows])
    assert_same(detgemm.matmul(a, b[:, 5:6], order=order), whole[:, 5:6])


def test_layouts_change_no_bit():
    a, b = bf16_bits((24, 50), 3), bf16_bits((50, 40), 4)
    expected = detgemm.matmul(a, b)
    padded = np.zeros((30, 61), np.uint16)
    padded[2:26, 7:57] = a
    assert_same(detgemm.matmul(padded[2:26, 7:57], b), expected)
    assert_same(detgemm.matmul(np.asfortranarray(a), np.asfortranarray(b)), expected)
    assert_same(detgemm.matmul(a[::-1], b[:, ::-1])[::-1, ::-1], expected)
    out = np.zeros((24, 90), np.uint16)
    assert detgemm.matmul(a, b, out=out[:, 10:90:2]).base is out
    assert_same(out[:, 10:90:2].copy(), expected)


def test_batches_broadcast_as_in_numpy():
    a, b = bf16_bits((3, 1, 5, 8), 5), bf16_bits((4, 8, 6), 6)
    got = detgemm.matmul(a, b)
    assert got.shape == (3, 4, 5, 6)
    for i in range(3):
        for j in range(4):
            assert_same(got[i, j], detgemm.matmul(a[i, 0], b[j]))
    shared = bf16_bits((8, 6), 7)
    turned = bf16_bits((5, 3, 4, 8), 8).transpose(1, 2, 0, 3)
    got = detgemm.matmul(turned, shared)
    assert_same(got, detgemm.matmul(np.ascontiguousarray(turned), shared))
    assert_same(got[1, 2], detgemm.matmul(turned[1, 2], shared))


def test_vectors_and_empty_arrays():
    a, x = bf16_bits((5, 8), 9), bf16_bits((8,), 10)
    assert_same(detgemm.matmul(a, x), detgemm.matmul(a, x[:, None])[:, 0])
    assert_same(detgemm.matmul(x, a.T), detgemm.matmul(x[None], a.T)[0])
    assert detgemm.matmul(x, x).shape == ()
    assert detgemm.matmul(a[:0], a.T).shape == (0, 5)
    assert not detgemm.matmul(a[:, :0], a.T[:0]).any()
    assert detgemm.matmul(np.zeros((0, 5, 8), np.uint16), a.T).shape == (0, 5, 5)


def test_types():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    a, b = bf16_bits((5, 8), 11), bf16_bits((8, 4), 12)
    typed = detgemm.matmul(a.view(ml_dtypes.bfloat16), b.view(ml_dtypes.bfloat16))
    assert typed.dtype == ml_dtypes.bfloat16
    assert_same(typed, detgemm.matmul(a, b))
    assert detgemm.matmul(a, b).dtype == np.uint16
    assert detgemm.matmul(a, b, out_dtype=np.float32).dtype == np.float32
    half = np.ones((2, 3), np.float16)
    assert detgemm.matmul(half, half.T).dtype == np.float16
    single = np.ones((2, 3), np.float32)
    assert detgemm.matmul(single, single.T).tolist() == [[3, 3], [3, 3]]
    with pytest.raises(ValueError, match="tc16 order takes BF16 or F16"):
        detgemm.matmul(single, single.T, order="tc16")


def test_bias_and_start():
    a, b = bf16_bits((5, 8), 13), bf16_bits((8, 4), 14)
    bias = np.arange(4, dtype=np.float32)
    state = detgemm.matmul(a, b, out_dtype="float32")
    got = detgemm.matmul(a, b, bias=bias, out_dtype="float32")
    assert_same(got, state + bias)
    half = detgemm.matmul(a[:, :3], b[:3], out_dtype="float32")
    assert_same(detgemm.matmul(a[:, 3:], b[3:], start=half, out_dtype="float32"), state)
    detgemm.matmul(a[:, 3:], b[3:], start=half, out=half)
    assert_same(half, state)


def test_jax():
    jnp = pytest.importorskip("jax.numpy")
    a = jnp.asarray(np.random.default_rng(0).standard_normal((5, 8)), jnp.bfloat16)
    got = detgemm.matmul(a, a.T)
    assert type(got) is type(a)
    assert got.dtype == jnp.bfloat16
    host = np.asarray(a)
    assert_same(got, detgemm.matmul(host, host.T))


class OnlyDlpack:
    """An array of a library that detgemm has never heard of."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack():
    a = np.random.default_rng(1).standard_normal((5, 8)).astype(np.float16)
    out = np.zeros((5, 5), np.float16)
    other = OnlyDlpack(a)
    assert detgemm.matmul(other, a.T, out=out) is out
    assert_same(out, detgemm.matmul(a, a.T))
    with pytest.raises(TypeError, match="pass out="):
        detgemm.matmul(other, a.T)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"b": bf16_bits((7, 4))}, ValueError, "do not go together"),
        ({"b": np.zeros((8, 4), np.float16)}, TypeError, "a is bfloat16 and b is float16"),
        ({"a": np.zeros((5, 8))}, TypeError, "float64"),
        ({"a": [[1.0]]}, TypeError, "a is a list"),
        ({"order": "fast"}, ValueError, 'the orders are "fma" and "tc16"'),
        ({"out_dtype": "int8"}, TypeError, "int8"),
        ({"bias": np.zeros(3, np.float32)}, ValueError, r"bias has shape \(3,\)"),
        ({"start": np.zeros((5, 3), np.float32)}, ValueError, "start has shape"),
        ({"start": np.zeros((5, 4), np.float16)}, ValueError, "start"),
        ({"out": np.zeros((4, 4), np.uint16)}, ValueError, "out has shape"),
        ({"a": np.array(1, np.uint16)}, ValueError, "scalar"),
    ],
)
def test_errors(change, error, text):
    arguments = {"a": bf16_bits((5, 8)), "b": bf16_bits((8, 4)), **change}
    with pytest.raises(error, match=text):
        detgemm.matmul(arguments.pop("a"), arguments.pop("b"), **arguments)


def test_overlapping_output_is_refused():
    a = bf16_bits((8, 8))
    with pytest.raises(ValueError, match="overlaps"):
        detgemm.matmul(a, a, out=a)


def test_arrays_that_are_not_what_they_seem():
    a = np.random.default_rng(2).standard_normal((5, 8)).astype(np.float32)
    expected = detgemm.matmul(a, a.T)
    a.setflags(write=False)
    assert_same(detgemm.matmul(a, a.T), expected)
    out = np.zeros((5, 5), np.float32)
    out.setflags(write=False)
    with pytest.raises(ValueError, match="read-only"):
        detgemm.matmul(a, a.T, out=out)
    assert not out.any()
    with pytest.raises(TypeError, match="little-endian"):
        detgemm.matmul(a.astype(">f4"), a.T)
    with pytest.raises(TypeError, match="masked"):
        detgemm.matmul(np.ma.masked_array(a, a > 0), a.T)
    with pytest.raises(TypeError, match="64 bits"):
        detgemm.matmul(a, a.T, out_dtype=float)
    memory = np.zeros(200, np.uint8)
    shifted = np.ndarray((4, 3), np.float32, memory.data, 1, (12, 4))  # at an odd address
    assert not detgemm.matmul(shifted, shifted.T).any()
    with pytest.raises(ValueError, match="14 bytes"):
        detgemm.matmul(np.ndarray((4, 3), np.float32, memory.data, 0, (14, 4)), shifted.T)


def test_jax_arrays_are_not_written():
    jnp = pytest.importorskip("jax.numpy")
    a, out = jnp.ones((2, 3), jnp.float32), jnp.zeros((2, 2), jnp.float32)
    with pytest.raises(ValueError, match="read-only"):
        detgemm.matmul(a, a.T, out=out)


def test_default_order(monkeypatch):
    assert detgemm.get_default_order() == "fma"
    monkeypatch.setenv("DETGEMM_ORDER", "tc16")
    detgemm.set_default_order(None)
    assert detgemm.get_default_order() == "tc16"
    detgemm.set_default_order("fma")
    assert detgemm.get_default_order() == "fma"
    monkeypatch.setenv("DETGEMM_ORDER", "quick")
    detgemm.set_default_order(None)
    with pytest.raises(ValueError, match="DETGEMM_ORDER is 'quick'"):
        detgemm.matmul(bf16_bits((1, 1)), bf16_bits((1, 1)))
    with pytest.raises(ValueError, match="tc16"):
        detgemm.set_default_order("mma")
