"""What each routed PyTorch function is in terms of one product function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from detgemm.torch import _fits, _functional, _kernels, _ops
from detgemm.torch._einsum import einsum as _contract

# product(a, b, bias, fp32): [..., M, K] [..., K, N] with a bias vector, in FP32 or the dtype of a
Product = Callable[[Tensor, Tensor, Optional[Tensor], bool], Tensor]
# why(tensors): None if they are to be computed by us, else why not
Why = Callable[..., Optional[str]]


def _result_dtype(a: Tensor) -> torch.dtype:
    """The dtype of a product of a: under autocast it is another one than a's."""
    kind = a.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else a.dtype


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
    return _ops.scaled_sum(product(a, b, None, True), added, beta, alpha, _result_dtype(a), order)


class Router:
    """The routed functions for one order. What PyTorch would not take is handed back to it."""

    def __init__(self, order: str, why: Why) -> None:
        self.order = order
        self.why = why

    def product(self, a: Tensor, b: Tensor, bias: Optional[Tensor], fp32: bool) -> Tensor:
        dtype = torch.float32 if fp32 else None
        return _functional.matmul(a, b, order=self.order, out_dtype=dtype, bias=bias)

    def multiply(self, a: Tensor, b: Tensor) -> Tensor:
        return _functional.matmul(a, b, order=self.order)

    def _two(
        self,
        fits: Callable[[Tensor, Tensor], bool],
        a: Any,
        b: Any,
        out: Optional[Tensor],
        out_dtype: Optional[torch.dtype] = None,
    ) -> Any:
        """A function of two operands."""
        if not isinstance(a, Tensor) or not isinstance(b, Tensor):
            return REFUSED
        why = self.why(a, b)
        if why is not None:
            return Passed(why)
        if not fits(a, b) or not _fits.output(out, _result_dtype(a), a, b):
            return REFUSED
        result = _functional.matmul(a, b, order=self.order, out_dtype=out_dtype)
        return result if out is None else into(out, result)

    def mm(
        self,
        input: Tensor,
        mat2: Tensor,
        out_dtype: Optional[torch.dtype] = None,
        *,
        out: Optional[Tensor] = None,
    ) -> Any:
        return self._two(_fits.mm, input, mat2, out, out_dtype)

    def bmm(
        self,
        input: Tensor,
        mat2: Tensor,
        out_dtype: Optional[torch.dtype] = None,
        *,
        out: Optional[Tensor] = None,
    ) -> Any:
        return self._two(_fits.bmm, input, mat2, out, out_dtype)

    def matmul(self, input: Tensor, other: Tensor, *, out: Optional[Tensor] = None) -> Any:
        return self._two(_fits.matmul, input, other, out)

    def reversed_matmul(self, input: Tensor, other: Tensor) -> Any:
        return self.matmul(other, input)

    def mv(self, input: Tensor, vec: Tensor, *, out: Optional[Tensor] = None) -> Any:
        return self._two(_fits.mv, input, vec, out)

    def dot(self, input: Tensor, tensor: Tensor, *, out: Optional[Tensor] = None) -> Any:
        return self._two(_fits.dot, input, tensor, out)

    def inner(self, input: Tensor, other: Tensor, *, out: Optional[Tensor] = None) -> Any:
        if not isinstance(input, Tensor) or not isinstance(other, Tensor):
            return REFUSED
        if input.dim() == 0 or other.dim() == 0:
            return Passed("nothing is summed")
        if other.dim() == 1:
            return self._two(_fits.matmul, input, other, out)
        columns = other.reshape(-1, other.shape[-1]).t()
        result = self._two(_fits.matmul, input, columns, None)
        if isinstance(result, Passed):
            return result
        if not _fits.output(out, result.dtype, input, other):
            return REFUSED
        result = result.reshape(*input.shape[:-1], *other.shape[:-1])
        return result if out is None else into(out, result)

    def linear(self, input: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Any:
        if not isinstance(input, Tensor) or not isinstance(weight, Tensor):
            return REFUSED
        why = self.why(input, weight)
        if why is not None:
            return Passed(why)
        if not _fits.linear(input, weight, bias):
            return REFUSED
        if weight.dim() == 1:
            result = _functional.matmul(input, weight, order=self.order)
            return result if bias is None else result + bias
        if bias is not None and bias.dim() > 1:
            return scaled_sum(self.product, self.order, bias, input, weight.t(), 1, 1)
        if bias is not None and bias.shape != weight.shape[:1]:
            bias = bias.expand(weight.shape[0])
        return _functional.linear(input, weight, bias, order=self.order)

    def _three(
        self,
        fits: Callable[[Tensor, Tensor, Tensor], bool],
        added: Any,
        a: Any,
        b: Any,
        beta: Any,
        alpha: Any,
        out: Optional[Tensor],
    ) -> Any:
        """beta * added + alpha * a b."""
        if not all(isinstance(x, Tensor) for x in (added, a, b)):
            return REFUSED
        why = self.why(a, b)
        if why is not None:
            return Passed(why)
        if not fits(added, a, b) or not _fits.output(out, _result_dtype(a), added, a, b):
            return REFUSED
        if b.dim() == 1:
            columns = added[..., None].expand(a.shape[0], 1)
            sums = scaled_sum(self.product, self.order, columns, a, b[:, None], beta, alpha)
            result = sums[:, 0]
        else:
            result = scaled_sum(self.product, self.order, added, a, b, beta, alpha)
        return result if out is None else into(out, result)

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
        return self._three(_fits.addmm, input, mat1, mat2, beta, alpha, out)

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
        return self._three(_fits.baddbmm, input, batch1, batch2, beta, alpha, out)

    def addmm_(self, input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
        return _in_place(input, self.addmm(input, mat1, mat2, beta=beta, alpha=alpha))

    def baddbmm_(
        self, input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1
    ) -> Any:
        return _in_place(input, self.baddbmm(input, batch1, batch2, beta=beta, alpha=alpha))

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
        return self._three(_fits.addmv, input, mat, vec, beta, alpha, out)

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


REFUSED = Passed("nothing that PyTorch takes")  # it will say why not


def _in_place(input: Tensor, result: Any) -> Any:
    if isinstance(result, Passed):
        return result
    return input.copy_(result) if input.shape == result.shape else REFUSED


def into(out: Tensor, result: Tensor) -> Tensor:
    """The result in memory of the caller's, which is made to fit."""
    if out.shape != result.shape:
        out.resize_(result.shape)
    return out.copy_(result)


def _table() -> dict[Any, str]:
    tensor = torch.Tensor
    rows: list[tuple[str, list[Any]]] = [
        ("mm", [torch.mm, tensor.mm]),
        ("bmm", [torch.bmm, tensor.bmm]),
        ("matmul", [torch.matmul, tensor.matmul, tensor.__matmul__, torch.linalg.matmul]),
        ("reversed_matmul", [tensor.__rmatmul__]),
        ("mv", [torch.mv, tensor.mv]),
        ("dot", [torch.dot, tensor.dot, torch.vdot, tensor.vdot]),
        ("inner", [torch.inner, tensor.inner]),
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


def _named(reasons: dict[str, str]) -> dict[Any, str]:
    """Those of these functions of torch that this version has."""
    found = {getattr(torch, name, None): why for name, why in reasons.items()}
    found.pop(None, None)
    return found


# Functions with sums of products of their own, which the mode leaves as they are.
NOT_COVERED = {
    F.scaled_dot_product_attention: "attention kernels sum in an order of their own",
    **_named(
        {
            **{f"conv{d}d": "convolution" for d in (1, 2, 3)},
            **{f"conv_transpose{d}d": "convolution" for d in (1, 2, 3)},
            "convolution": "convolution",
            "conv_tbc": "convolution",
            "lstm": "recurrent layers",
            "gru": "recurrent layers",
            "rnn_tanh": "recurrent layers",
            "rnn_relu": "recurrent layers",
            "cdist": "distances through a product",
            "bilinear": "bilinear forms",
            "_grouped_mm": "grouped products; detgemm.torch.grouped_linear does them",
            "_scaled_mm": "products of scaled FP8",
            "_addmm_activation": "a product and an activation in one kernel",
            "_transformer_encoder_layer_fwd": "a whole layer in one kernel",
            "_native_multi_head_attention": "a whole attention layer in one kernel",
        }
    ),
}
if hasattr(F, "grouped_mm"):
    NOT_COVERED[F.grouped_mm] = "grouped products; detgemm.torch.grouped_linear does them"

# Python functions of PyTorch that call routed ones, or the program's (checkpoints in backward).
COMPOSITE = {
    F.multi_head_attention_forward,
    torch.Tensor.backward,
    torch.autograd.backward,
    torch.autograd.grad,
}
SUPPORTED_DTYPES = tuple(_kernels.DTYPES)
