"""detgemm for PyTorch: differentiable products, the operator classes, DetLinear and the mode that
routes a whole model's products."""

from detgemm.torch._accumulate import reset_main_grad
from detgemm.torch._det_gemm_op import (
    CpuDetGemmOp,
    CudaDetGemmOp,
    DetGemmOp,
    HipDetGemmOp,
    MusaDetGemmOp,
)
from detgemm.torch._functional import grad_weight, linear, matmul
from detgemm.torch._grouped import grouped_grad_weight, grouped_linear
from detgemm.torch._linear import Conversion, DetLinear, convert
from detgemm.torch._mode import (
    deterministic_mode,
    deterministic_module,
    is_deterministic,
    set_deterministic_mode,
)

__all__ = [
    "Conversion",
    "CpuDetGemmOp",
    "CudaDetGemmOp",
    "DetGemmOp",
    "DetLinear",
    "HipDetGemmOp",
    "MusaDetGemmOp",
    "convert",
    "deterministic_mode",
    "deterministic_module",
    "grad_weight",
    "grouped_grad_weight",
    "grouped_linear",
    "is_deterministic",
    "linear",
    "matmul",
    "reset_main_grad",
    "set_deterministic_mode",
]
