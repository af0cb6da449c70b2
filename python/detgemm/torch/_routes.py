"""What each routed PyTorch function is in terms of one product function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from detgemm.torch import _functional, _kernels, _ops
from detgemm.torch._einsum import einsum as _contract

# product(a, b, bias, fp32): [..., M, K] [..., K, N] with a bias vector, in FP32 or the dtype of a
Product = Callable[[Tensor, Tensor, Optional[Tensor], bool], Tensor]
# why(tensors): None if they are to be computed by us, else why not
Why = Callable[..., Optional[str]]


def scaled_sum(
    product: Product, order: str, added: Tensor, a: Tensor, b: Tensor, beta: Any, alpha: Any
) -> Tensor:
    """beta * added + alpha * a b. A plain bias vector is added in the epilogue; all else in FP32
    after the finished sum, with one rounding at the end."""
    if beta == 0 and alpha == 1:
        return product(a, b, None, False)
    vector = added.reshape(-1) if added.dim() == 2 and added.shape[0] == 1 else added
    if beta == 1 and alpha == 1 and vector.dim() == 1 and vector.shape[0] == b.shape[-1]:
        return product(a, b, vector, False)
    return _ops.scaled_sum(product(a, b, None, True), added, beta, alpha, a.dtype, order)


class Router:
    """The routed functions for one order."""

    def __init__(self, order: str, why: Why) -> None:
        self.order = order
        self.why = why

    def product(self, a: Tensor, b: Tensor, bias: Optional[Tensor], fp32: bool) -> Tensor:
        dtype = torch.float32 if fp32 else None
        return _functional.matmul(a, b, order=self.order, out_dtype=dtype, bias=bias)

    def multiply(self, a: Tensor, b: Tensor) -> Tensor:
        return _functional.matmul(a, b, order=self.order)

    def matmul(
        self,
        input: Tensor,
        mat2: Tensor,
        out_dtype: Optional[torch.dtype] = None,
        *,
        out: Optional[Tensor] = None,
        **names: Tensor,
    ) -> Any:
        why = self.why(input, mat2)
        if why is not None:
            return Passed(why)
        if out is not None:
            return _into(out, _functional.matmul(input, mat2, order=self.order))
        return _functional.matmul(input, mat2, order=self.order, out_dtype=out_dtype)

    def matmul_other(self, input: Tensor, other: Tensor, *, out: Optional[Tensor] = None) -> Any:
        return self.matmul(input, other, out=out)

    def reversed_matmul(self, input: Tensor, other: Tensor) -> Any:
        return self.matmul(other, input)

    def mv(self, input: Tensor, vec: Tensor, *, out: Optional[Tensor] = None) -> Any:
        return self.matmul(input, vec, out=out)

    def dot(self, input: Tensor, tensor: Tensor, *, out: Optional[Tensor] = None) -> Any:
        return self.matmul(input, tensor, out=out)

    def linear(self, input: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Any:
        why = self.why(input, weight)
        if why is not None:
            return Passed(why)
        if weight.dim() == 1:
            result = _functional.matmul(input, weight, order=self.order)
            return result if bias is None else result + bias
        return _functional.linear(input, weight, bias, order=self.order)

    def addmm(
        self,
        input: Tensor,
        mat1: Tensor,
        mat2: Tensor,
        *,
        beta: Any = 1,
        alpha: Any = 1,
        out: Optional[Tensor] = None,
    ) -> Any:
        why = self.why(mat1, mat2)
        if why is not None:
            return Passed(why)
        result = scaled_sum(self.product, self.order, input, mat1, mat2, beta, alpha)
        return result if out is None else _into(out, result)

    def baddbmm(
        self,
        input: Tensor,
        batch1: Tensor,
        batch2: Tensor,
        *,
        beta: Any = 1,
        alpha: Any = 1,
        out: Optional[Tensor] = None,
    ) -> Any:
        return self.addmm(input, batch1, batch2, beta=beta, alpha=alpha, out=out)

    def addmm_(self, input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
        result = self.addmm(input, mat1, mat2, beta=beta, alpha=alpha)
        return result if isinstance(result, Passed) else input.copy_(result)

    def baddbmm_(
        self, input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1
    ) -> Any:
        return self.addmm_(input, batch1, batch2, beta=beta, alpha=alpha)

    def addmv(
        self,
        input: Tensor,
        mat: Tensor,
        vec: Tensor,
        *,
        beta: Any = 1,
        alpha: Any = 1,
        out: Optional[Tensor] = None,
    ) -> Any:
        why = self.why(mat, vec)
        if why is not None:
            return Passed(why)
        columns = input[..., None].expand(mat.shape[0], 1)
        result = scaled_sum(self.product, self.order, columns, mat, vec[:, None], beta, alpha)[:, 0]
        return result if out is None else _into(out, result)

    def einsum(self, equation: Any, *operands: Any) -> Any:
        if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
            operands = tuple(operands[0])
        if not all(isinstance(x, Tensor) for x in operands):
            return Passed("einsum with lists of subscripts")
        why = self.why(*operands) if len(operands) > 1 else "nothing is multiplied"
        if why is not None:
            return Passed(why)
        result = _contract(equation, operands, self.multiply)
        return Passed(f"einsum {equation!r} is no matrix product") if result is None else result


class Passed(str):
    """Why a call was not computed by us."""


def _into(out: Tensor, result: Tensor) -> Tensor:
    if out.shape != result.shape:
        out.resize_(result.shape)
    return out.copy_(result)


def _table() -> dict[Any, str]:
    tensor = torch.Tensor
    rows: list[tuple[str, list[Any]]] = [
        ("matmul", [torch.mm, tensor.mm, torch.bmm, tensor.bmm]),
        ("matmul_other", [torch.matmul, tensor.matmul, tensor.__matmul__]),
        ("reversed_matmul", [tensor.__rmatmul__]),
        ("mv", [torch.mv, tensor.mv]),
        ("dot", [torch.dot, tensor.dot]),
        ("linear", [F.linear]),
        ("addmm", [torch.addmm, tensor.addmm]),
        ("addmm_", [tensor.addmm_]),
        ("baddbmm", [torch.baddbmm, tensor.baddbmm]),
        ("baddbmm_", [tensor.baddbmm_]),
        ("addmv", [torch.addmv, tensor.addmv]),
        ("einsum", [torch.einsum]),
    ]
    return {function: name for name, functions in rows for function in functions}


ROUTED = _table()

# Functions with sums of products of their own, which the mode leaves as they are.
NOT_COVERED = {
    F.scaled_dot_product_attention: "attention kernels sum in an order of their own",
    torch.conv1d: "convolution",
    torch.conv2d: "convolution",
    torch.conv3d: "convolution",
    torch.conv_transpose1d: "convolution",
    torch.conv_transpose2d: "convolution",
    torch.conv_transpose3d: "convolution",
    torch.lstm: "recurrent layers",
    torch.gru: "recurrent layers",
    torch.rnn_tanh: "recurrent layers",
    torch.rnn_relu: "recurrent layers",
    torch.cdist: "distances through a product",
    torch.bilinear: "bilinear forms",
}
SUPPORTED_DTYPES = tuple(_kernels.DTYPES)
