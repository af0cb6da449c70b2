"""One operator object per platform: what detgemm.registry hands out."""

from __future__ import annotations

from typing import ClassVar, Optional

import torch
from torch import Tensor

from detgemm import _core, _devices, _orders
from detgemm.torch import _functional, _kernels


def _musa_problem() -> Optional[str]:
    musa = getattr(torch, "musa", None)
    if musa is None:
        return "torch.musa is missing; install and import torch_musa"
    return None if musa.is_available() else "torch.musa.is_available() is False: no MUSA device"


def _cuda_problem() -> Optional[str]:
    if torch.version.hip:
        return "this PyTorch is built for ROCm; its devices are hip"
    return None if torch.cuda.is_available() else "torch.cuda.is_available() is False"


def _hip_problem() -> Optional[str]:
    if not torch.version.hip:
        return "this PyTorch is not built for ROCm"
    return None if torch.cuda.is_available() else "no ROCm device is available to PyTorch"


def _library_problem(platform: str) -> Optional[str]:
    """Why the library itself cannot open the platform's first device, or None."""
    try:
        _devices.handle(platform)
    except (RuntimeError, ValueError) as error:
        return str(error)
    return None


class DetGemmOp:
    """Differentiable products of tensors on one platform, in one order.

    order None means the default order at the time of each call."""

    platform: ClassVar[str] = ""
    _own: ClassVar[str] = ""  # the attribute that is true for the platform's tensors, a quick test

    def __init__(self, order: Optional[str] = None) -> None:
        self.order = None if order is None else _orders.check(order)

    @classmethod
    def unavailable(cls) -> Optional[str]:
        """Why this operator cannot be used here, or None."""
        return _library_problem(cls.platform)

    def _check(self, *tensors: Optional[Tensor]) -> None:
        """Refuses what is on another platform."""
        own, eager = self._own, not torch.compiler.is_compiling()
        for x in tensors:
            if x is None or (eager and getattr(x, own, False)):
                continue
            if not isinstance(x, Tensor):
                raise TypeError(
                    f"{type(self).__name__} takes tensors; one operand is a {type(x).__name__}"
                )
            kind = x.device.type
            if kind in (self.platform, "meta"):
                continue
            if _kernels.platform_of(x.device) != self.platform:
                raise ValueError(
                    f"{type(self).__name__} takes tensors on {self.platform}; one is on {x.device}. "
                    f'Move it, or use detgemm.registry.get_op("det_gemm", device="{kind}")'
                )

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """a[M,K] b[K,N] in the dtype of a; 1-D operands and batches as in torch.matmul."""
        self._check(a, b)
        return _functional.matmul(a, b, order=self.order)

    def linear(self, a: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
        """a[...,K] weight[N,K]^T + bias. The gradient of weight is a contiguous [N,K]."""
        self._check(a, weight, bias)
        return _functional.linear(a, weight, bias, order=self.order)

    def forward_fp32(self, a: Tensor, b: Tensor) -> Tensor:
        """The FP32 state of a b, not rounded. Its gradient is rounded to a's dtype first."""
        self._check(a, b)
        return _functional.matmul(a, b, order=self.order, out_dtype=torch.float32)

    def forward_accum_fp32(self, a: Tensor, b: Tensor, start: Optional[Tensor] = None) -> Tensor:
        """The FP32 state of start + a b: a sum over K continued."""
        self._check(a, b, start)
        return _functional.matmul(a, b, order=self.order, out_dtype=torch.float32, start=start)

    def kernel(self, a: Tensor, b: Tensor) -> str:
        """The name of the kernel that __call__ would use for two matrices."""
        self._check(a, b)
        m, n = _kernels.product_shape(a, b, None, None, self.order or _orders.get_default_order())
        device: _core.Device = _devices.handle(_kernels.name_of(a.device))
        code = _orders.CODES[_orders.resolve(self.order)]
        x, y = _kernels.strided(a), _kernels.strided(b)
        return device.kernel(
            code,
            1,
            0,
            (x.address, x.dtype, m, a.shape[1], *a.stride(), 0),  # type: ignore[arg-type]
            (y.address, y.dtype, b.shape[0], n, *b.stride(), 0),  # type: ignore[arg-type]
            (a.new_empty((m, n)).data_ptr(), x.dtype, m, n, n, 1, 0),
            None,
            None,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(order={self.order!r})"


class CpuDetGemmOp(DetGemmOp):
    """On the CPU, with as many threads as torch.get_num_threads()."""

    platform = "cpu"
    _own = "is_cpu"


class CudaDetGemmOp(DetGemmOp):
    """On NVIDIA GPUs, on the current stream of the tensors' device."""

    platform = "cuda"
    _own = "" if torch.version.hip else "is_cuda"

    @classmethod
    def unavailable(cls) -> Optional[str]:
        return _cuda_problem() or _library_problem("cuda")


class MusaDetGemmOp(DetGemmOp):
    """On Moore Threads GPUs through torch_musa."""

    platform = "musa"

    @classmethod
    def unavailable(cls) -> Optional[str]:
        return _musa_problem() or _library_problem("musa")


class HipDetGemmOp(DetGemmOp):
    """On AMD GPUs through a ROCm build of PyTorch, which calls their device type cuda."""

    platform = "hip"
    _own = "is_cuda" if torch.version.hip else ""

    @classmethod
    def unavailable(cls) -> Optional[str]:
        return _hip_problem() or _library_problem("hip")
