"""Arrays of any library as addresses, shapes and strides, and new arrays of the same library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Optional

from detgemm import _core, _cuda
from detgemm._product import BF16, F16, F32, SIZES, Strided

_BY_NAME = {"bfloat16": BF16, "float16": F16, "float32": F32, "half": F16, "float": F32}
_TYPESTR = {"<u2": BF16, "<f2": F16, "<f4": F32}
_DLPACK_CODES = {(4, 16): BF16, (2, 16): F16, (2, 32): F32}
_DLPACK_CPU, _DLPACK_CUDA, _DLPACK_CUDA_HOST, _DLPACK_ROCM, _DLPACK_MANAGED = 1, 2, 3, 10, 13
_DLPACK_DEVICES = {
    _DLPACK_CPU: "cpu",
    _DLPACK_CUDA_HOST: "cpu",
    _DLPACK_CUDA: "cuda",
    _DLPACK_MANAGED: "cuda",
    _DLPACK_ROCM: "hip",
}


class Array(NamedTuple):
    """An array that was taken in."""

    strided: Strided
    device: str
    stream: int
    bits: bool  # BF16 kept as 16-bit unsigned integers
    writable: bool
    owner: Any
    keep: Any  # what keeps the memory alive besides owner


def library(x: Any) -> str:
    """The name of the package that x's type comes from."""
    return str(type(x).__module__).partition(".")[0]


def dtype_code(dtype: Any) -> int:
    """The library's number of a dtype given by any package or by name."""
    if dtype is float:
        raise TypeError("dtype float is 64 bits wide; use bfloat16, float16 or float32")
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", None)
    if name is None:
        name = getattr(dtype, "name", None) or str(dtype)
    code = _BY_NAME.get(str(name).rpartition(".")[2])
    if code is None:
        raise TypeError(f"dtype {dtype} is not known; use bfloat16, float16 or float32")
    return code


def _element(name: str, typestr: str, dtype: Any) -> int:
    code = _BY_NAME.get(getattr(dtype, "name", "")) or _TYPESTR.get(typestr)
    if code is None or typestr.startswith(">"):
        raise TypeError(
            f"{name} has elements of type {dtype if dtype is not None else typestr} ({typestr}); "
            f"detgemm takes bfloat16 (ml_dtypes, or its bits as uint16), float16 and float32, all "
            f"little-endian"
        )
    return code


def _steps(name: str, shape: tuple[int, ...], bytes_: Any, size: int) -> tuple[int, ...]:
    """Strides in elements from strides in bytes, or of a row-major array."""
    if bytes_ is None:
        steps, step = [], 1
        for n in reversed(shape):
            steps.append(step)
            step *= n
        return tuple(reversed(steps))
    for n, s in zip(shape, bytes_):
        if n > 1 and s % size:
            raise ValueError(
                f"{name} has a stride of {s} bytes, which is no multiple of its {size}-byte "
                f"elements; copy it first"
            )
    return tuple(int(s) // size for s in bytes_)


def _from_interface(name: str, x: Any, interface: dict[str, Any], device: str) -> Array:
    dtype = getattr(x, "dtype", None)
    code = _element(name, interface["typestr"], dtype)
    shape = tuple(int(n) for n in interface["shape"])
    strided = Strided(
        int(interface["data"][0]),
        code,
        shape,
        _steps(name, shape, interface.get("strides"), SIZES[code]),
    )
    stream = interface.get("stream")
    bits = interface["typestr"] == "<u2" and getattr(dtype, "name", "uint16") == "uint16"
    return Array(strided, device, int(stream or 0), bits, not interface["data"][1], x, interface)


def _from_dlpack(name: str, x: Any) -> Array:
    kind, index = (int(v) for v in x.__dlpack_device__())
    platform = _DLPACK_DEVICES.get(kind)
    if platform is None:
        raise TypeError(f"{name} is on DLPack device type {kind}; detgemm knows CPU, CUDA and ROCm")
    # Stream 1 is the legacy default stream of CUDA, where the product then runs; 0 that of ROCm.
    capsule = x.__dlpack__() if platform == "cpu" else x.__dlpack__(stream=int(platform == "cuda"))
    _, _, address, code, width, lanes, shape, steps = _core.read_dlpack(capsule)
    dtype = _DLPACK_CODES.get((code, width)) if lanes == 1 else None
    if dtype is None:
        raise TypeError(
            f"{name} has elements of DLPack type {code} with {width} bits; detgemm takes "
            f"bfloat16, float16 and float32"
        )
    strides = steps if steps is not None else _steps(name, shape, None, 1)
    device = platform if platform == "cpu" else f"{platform}:{index}"
    writable = library(x) not in ("jax", "jaxlib")  # immutable, whatever its memory is
    return Array(Strided(address, dtype, shape, strides), device, 0, False, writable, x, capsule)


def take(name: str, x: Any) -> Array:
    """Looks at an array without copying it."""
    if type(x).__module__.startswith("numpy.ma"):
        raise TypeError(
            f"{name} is a masked array, whose mask a product cannot heed; use {name}.filled(0)"
        )
    cuda = getattr(x, "__cuda_array_interface__", None)
    if cuda is not None:
        device = getattr(getattr(x, "device", None), "id", None)
        if device is None:
            device = _cuda.device_of_pointer(int(cuda["data"][0]))
        array = _from_interface(name, x, cuda, f"cuda:{device}")
        if library(x) == "cupy":
            import cupy

            array = array._replace(stream=int(cupy.cuda.get_current_stream().ptr))
        return array
    host = getattr(x, "__array_interface__", None)
    if host is not None:
        return _from_interface(name, x, host, "cpu")
    if hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__"):
        return _from_dlpack(name, x)
    raise TypeError(
        f"{name} is a {type(x).__name__}; detgemm takes arrays with __dlpack__, "
        f"__array_interface__ or __cuda_array_interface__"
    )


def _numpy_dtype(code: int, bits: bool) -> Any:
    import numpy as np

    if code == F32:
        return np.dtype(np.float32)
    if code == F16:
        return np.dtype(np.float16)
    if bits:
        return np.dtype(np.uint16)
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype(np.uint16)
    return np.dtype(ml_dtypes.bfloat16)


class Output(NamedTuple):
    """A new array to compute into, and how to hand it back as its library's."""

    array: Array
    finish: Callable[[], Any]


def _jax_output(like: Array, shape: tuple[int, ...], code: int) -> Output:
    import jax
    import jax.numpy as jnp
    import numpy as np

    if like.device == "cpu":
        host = np.empty(shape, _numpy_dtype(code, False))
        return Output(take("out", host), lambda: jnp.asarray(host))
    name = {BF16: "bfloat16", F16: "float16", F32: "float32"}[code]
    with jax.default_device(next(iter(like.owner.devices()))):
        result = jnp.zeros(shape, name)
    result.block_until_ready()
    array = take("out", result)

    def finish() -> Any:
        # JAX does not know the stream the product ran on, so it is waited for here.
        _cuda.synchronize(int(like.device.rpartition(":")[2]), like.stream)
        return result

    return Output(array, finish)


def new_like(like: Array, shape: tuple[int, ...], code: int) -> Output:
    """A new array of like's library on like's device."""
    import numpy as np

    name = library(like.owner)
    if name == "cupy":
        import cupy

        with cupy.cuda.Device(int(like.device.rpartition(":")[2])):
            made = cupy.empty(shape, _numpy_dtype(code, like.bits))
        return Output(take("out", made), lambda: made)
    if name in ("jax", "jaxlib"):
        return _jax_output(like, shape, code)
    if like.device == "cpu":
        host = np.empty(shape, _numpy_dtype(code, like.bits))
        if hasattr(like.owner, "__array_interface__"):
            return Output(take("out", host), lambda: host)
        namespace = getattr(like.owner, "__array_namespace__", None)
        if namespace is not None:
            return Output(take("out", host), lambda: namespace().from_dlpack(host))
    raise TypeError(
        f"detgemm cannot make a new array of {name} on {like.device}; pass out=, or use NumPy, "
        f"CuPy, JAX or PyTorch arrays"
    )


def device_of(arrays: dict[str, Optional[Array]]) -> str:
    """The one device that all arrays are on."""
    where = {name: x.device for name, x in arrays.items() if x is not None}
    if len(set(where.values())) > 1:
        listed = ", ".join(f"{name} on {device}" for name, device in where.items())
        raise ValueError(f"the arrays are on different devices: {listed}; move them to one")
    return next(iter(where.values()))
