"""The operations on the memory of PyTorch tensors: what runs beneath autograd and the dispatcher."""

from __future__ import annotations

from typing import Optional

import torch

from detgemm import _core, _devices, _orders
from detgemm._product import Strided, broadcast_shapes, multiply
from detgemm.torch import _plain

DTYPES = _plain.DTYPES
PLATFORM_OF_CUDA = "hip" if torch.version.hip else "cuda"

_opened: dict[tuple[str, int], _core.Device] = {}
_cpus: dict[int, _core.Device] = {}  # by the number of threads


def _musa_stream(index: int) -> int:
    return int(torch.musa.current_stream(index).musa_stream)  # type: ignore[attr-defined]


def _cuda_stream(index: int) -> int:
    stream: int = torch._C._cuda_getCurrentRawStream(index)
    return stream


def platform_of(device: torch.device) -> str:
    """The library's name of the platform of a PyTorch device."""
    kind = device.type
    if kind == "privateuseone":
        kind = torch._C._get_privateuse1_backend_name()
    if kind == "cuda":
        return PLATFORM_OF_CUDA
    if kind in ("cpu", "musa"):
        return kind
    raise NotImplementedError(
        f"a tensor is on {device}; detgemm computes on cpu, cuda, musa and hip (ROCm, where PyTorch "
        f"calls it cuda)"
    )


def target(x: torch.Tensor) -> tuple[_core.Device, int]:
    """The library's device that a tensor is on, and the stream a product is to run on."""
    if x.is_cpu:
        threads = torch.get_num_threads()
        cpu = _cpus.get(threads)
        if cpu is None:
            cpu = _cpus[threads] = _devices.handle("cpu", threads)
        return cpu, 0
    index = x.get_device()
    if x.is_cuda:
        device = _opened.get(("cuda", index))
        if device is not None:
            return device, _cuda_stream(index)
    platform = platform_of(x.device)
    device = _opened[(x.device.type, index)] = _devices.handle(f"{platform}:{index}")
    return device, (_musa_stream if platform == "musa" else _cuda_stream)(index)


def name_of(device: torch.device) -> str:
    """The library's name of a PyTorch device."""
    platform = platform_of(device)
    return platform if platform == "cpu" else f"{platform}:{device.index or 0}"


def strided(x: torch.Tensor) -> Strided:
    """A tensor as the library sees it."""
    return Strided(x.data_ptr(), DTYPES[x.dtype], tuple(x.shape), x.stride())


def check_kind(x: torch.Tensor, name: str) -> None:
    """Refuses tensors that are no memory with a size and strides for each dimension."""
    if x.is_nested:
        raise TypeError(
            f"{name} is a nested tensor; detgemm takes one matrix of all rows: for a jagged x, "
            f"torch.nested.nested_tensor_from_jagged(linear(x.values(), weight), x.offsets())"
        )
    if x.is_quantized:
        raise TypeError(f"{name} is a quantized tensor ({x.dtype}); use its dequantize() first")
    if x.layout is not torch.strided:
        raise TypeError(f"{name} has the layout {x.layout}; detgemm takes strided tensors")


def check(a: torch.Tensor, b: torch.Tensor, names: tuple[str, str] = ("a", "b")) -> None:
    """Refuses element types and devices that cannot be right."""
    check_kind(a, names[0])
    check_kind(b, names[1])
    if a.dtype not in DTYPES:
        raise TypeError(
            f"{names[0]} is {a.dtype}; detgemm takes torch.bfloat16, torch.float16 and, for the fma "
            f"order, torch.float32"
        )
    if b.dtype != a.dtype:
        raise TypeError(f"{names[0]} is {a.dtype} and {names[1]} is {b.dtype}; make them the same")
    if a.device != b.device:
        raise ValueError(
            f"{names[0]} is on {a.device} and {names[1]} on {b.device}; move them to one device"
        )


def check_order(a: torch.Tensor, order: str) -> None:
    """Refuses what the order does not have."""
    if order == "tc16" and a.dtype is torch.float32:
        raise TypeError("the tc16 order takes BF16 or F16, not FP32; use order='fma', or round first")


def product_shape(
    a: torch.Tensor,
    b: torch.Tensor,
    start: Optional[torch.Tensor],
    bias: Optional[torch.Tensor],
    order: str,
) -> tuple[int, ...]:
    """Checks the operands of a product and gives its shape. Serves real and fake tensors."""
    check(a, b)
    if a.dim() < 2 or b.dim() < 2:
        raise ValueError(f"a has {a.dim()} and b {b.dim()} dimensions; both need at least 2")
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"shapes {tuple(a.shape)} of a and {tuple(b.shape)} of b do not go together: the sum runs "
            f"over {a.shape[-1]} elements of a and {b.shape[-2]} of b"
        )
    check_order(a, order)
    batch: tuple[int, ...] = ()
    if a.dim() > 2 or b.dim() > 2:
        batch = broadcast_shapes(tuple(a.shape[:-2]), tuple(b.shape[:-2]))
    shape = (*batch, a.shape[-2], b.shape[-1])
    if start is not None:
        check_state(start, shape, a.device)
    _check_bias(bias, shape[-1], a.device)
    return shape


def _check_bias(bias: Optional[torch.Tensor], columns: int, device: torch.device) -> None:
    if bias is None:
        return
    if tuple(bias.shape) != (columns,) or bias.dtype not in DTYPES or bias.device != device:
        raise ValueError(
            f"bias is {bias.dtype}{list(bias.shape)} on {bias.device}; it must be a floating-point "
            f"vector of {columns} elements on {device}"
        )


def check_state(start: torch.Tensor, shape: tuple[int, ...], device: torch.device) -> None:
    if start.dtype != torch.float32:
        raise TypeError(f"start is {start.dtype}; the state to continue from is torch.float32")
    if tuple(start.shape) != tuple(shape) or start.device != device:
        raise ValueError(
            f"start is {tuple(start.shape)} on {start.device}; it must be {tuple(shape)} on {device}"
        )


def product_into(
    out: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    start: Optional[torch.Tensor],
    bias: Optional[torch.Tensor],
    order: str,
) -> None:
    """Computes into memory that is there already."""
    device, stream = target(a)
    multiply(
        device.gemm,
        _orders.CODES[order],
        stream,
        strided(a),
        strided(b),
        strided(out),
        None if start is None else strided(start),
        None if bias is None else strided(bias),
    )


# What TENSORS.product exchanges before the product, or of its result.
_A_TRANSPOSED, _B_TRANSPOSED, _OUT_TRANSPOSED = 1, 2, 4
_product = _plain.TENSORS.product


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    start: Optional[torch.Tensor],
    bias: Optional[torch.Tensor],
    order: str,
    fp32: bool,
) -> torch.Tensor:
    """a[..., M, K] b[..., K, N]."""
    if start is None:
        device, stream = target(a)
        done: Optional[torch.Tensor] = _product(
            device, stream, _orders.CODES[order], a, b, 0, bias, fp32
        )
        if done is not None:
            return done
    shape = product_shape(a, b, start, bias, order)
    out = a.new_empty(shape, dtype=torch.float32 if fp32 else a.dtype)
    product_into(out, a, b, start, bias, order)
    return out


def linear_shape(
    a: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor], order: str
) -> tuple[int, ...]:
    """Checks the operands of a linear layer and gives the shape of its result."""
    check(a, weight, ("the input", "weight"))
    if weight.dim() != 2 or a.dim() < 1:
        raise ValueError(
            f"weight has {weight.dim()} dimensions and the input {a.dim()}; weight is [N, K] and the "
            f"input [..., K]"
        )
    n, k = weight.shape
    if a.shape[-1] != k:
        raise ValueError(
            f"the input is {tuple(a.shape)} and weight {tuple(weight.shape)}; the input's last "
            f"dimension must be {k}"
        )
    check_order(a, order)
    _check_bias(bias, n, a.device)
    return (*a.shape[:-1], n)


def linear(
    a: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor], order: str, fp32: bool
) -> torch.Tensor:
    """a[..., K] weight[N, K]^T."""
    device, stream = target(a)
    done: Optional[torch.Tensor] = _product(
        device, stream, _orders.CODES[order], a, weight, _B_TRANSPOSED, bias, fp32
    )
    if done is not None:
        return done
    shape = linear_shape(a, weight, bias, order)
    out = a.new_empty(shape, dtype=torch.float32 if fp32 else a.dtype)
    if len(shape) == 1:
        product_into(out[None], a[None], weight.t(), None, bias, order)
    else:
        product_into(out, a, weight.t(), None, bias, order)
    return out


def rows_of(x: torch.Tensor) -> torch.Tensor:
    """A tensor as one matrix of its rows (a view where the strides allow), also without elements."""
    return x[None] if x.dim() == 1 else x.flatten(0, -2)


def grad_weight_shape(
    a: torch.Tensor, dc: torch.Tensor, start: Optional[torch.Tensor]
) -> tuple[int, int]:
    """Checks the operands of a weight gradient and gives its shape."""
    check(a, dc, ("a", "dc"))
    if a.dim() < 1 or tuple(a.shape[:-1]) != tuple(dc.shape[:-1]):
        raise ValueError(
            f"a is {tuple(a.shape)} and dc {tuple(dc.shape)}; all dimensions but the last must agree"
        )
    shape = (dc.shape[-1], a.shape[-1])
    if start is not None:
        check_state(start, shape, a.device)
    return shape


def grad_weight(
    a: torch.Tensor,
    dc: torch.Tensor,
    start: Optional[torch.Tensor],
    order: str,
    fp32: bool,
) -> torch.Tensor:
    """dc^T a as a contiguous [N, K], summed over all dimensions but the last, ascending. An input
    whose leading dimensions are no evenly stepping sequence of rows is copied into one."""
    if start is None:
        device, stream = target(a)
        flags = _A_TRANSPOSED | _OUT_TRANSPOSED
        done: Optional[torch.Tensor] = _product(
            device, stream, _orders.CODES[order], a, dc, flags, None, fp32
        )
        if done is not None:
            return done
    n, k = grad_weight_shape(a, dc, start)
    rows, columns = rows_of(a), rows_of(dc)
    out = a.new_empty((n, k), dtype=torch.float32 if fp32 else a.dtype)
    grad_weight_into(out, rows, columns, start, order)
    return out


def grad_weight_into(
    out: torch.Tensor,
    rows: torch.Tensor,
    columns: torch.Tensor,
    start: Optional[torch.Tensor],
    order: str,
) -> None:
    """out[N, K] = start + columns[R, N]^T rows[R, K], as the library's grad_b written transposed."""
    state = None if start is None else start.t()
    product_into(out.t(), rows.t(), columns, state, None, order)
