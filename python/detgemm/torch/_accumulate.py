"""Weight gradients kept as FP32 state and continued from micro-batch to micro-batch, so that any
split of a batch into micro-batches gives the bits of the whole."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor, nn

from detgemm.torch import _kernels, _ops

# Where the state is kept, on the parameter: the convention of Megatron's optimisers.
STATE = "main_grad"
_ROWS = "_detgemm_rows"  # (rows summed so far, version of the state after that)


def _rows_so_far(parameter: Any, state: Optional[Tensor]) -> int:
    """How many rows the state holds: none when it is new, or was changed (zeroed) by someone else."""
    rows, version = getattr(parameter, _ROWS, (0, -1))
    return rows if state is not None and state._version == version else 0


def _padded(x: Tensor, rows: int) -> Tensor:
    return x if x.shape[0] == rows else torch.cat((x, x.new_zeros(rows - x.shape[0], x.shape[1])))


def accumulate(
    parameter: Any, rows: Tensor, columns: Tensor, order: str, *, pad: bool, to_grad: bool
) -> None:
    """parameter.main_grad[N, K] += columns[R, N]^T rows[R, K], continued row by row.

    In the tc16 order a sum may go on only after a multiple of 16 rows. pad fills every micro-batch up
    with rows of zeros instead, which gives the bits of a batch filled up in the same places.
    to_grad also writes the state, rounded, to parameter.grad; without a .grad a new sum begins."""
    state: Optional[Tensor] = getattr(parameter, STATE, None)
    if to_grad and parameter.grad is None:
        state = None
    before = _rows_so_far(parameter, state)
    if order == "tc16" and before % 16:
        raise ValueError(
            f"the gradient holds the sum over {before} rows; in the tc16 order it can be continued "
            f"after a multiple of 16 only: give every micro-batch but the last a multiple of 16 tokens, "
            f"use the fma order, or pad=True"
        )
    if pad and order == "tc16":
        count = -(-rows.shape[0] // 16) * 16
        rows, columns = _padded(rows, count), _padded(columns, count)
    if state is None:
        state = _kernels.grad_weight(rows, columns, None, order, True)
        setattr(parameter, STATE, state)
    else:
        _kernels.grad_weight_into(state, rows, columns, state, order)
    setattr(parameter, _ROWS, (before + rows.shape[0], state._version))
    if to_grad:
        parameter.grad = state.to(parameter.dtype)


class AccumulatingLinear(torch.autograd.Function):
    """A linear layer whose parameters' gradients go to their FP32 state instead of autograd."""

    @staticmethod
    def forward(
        ctx: Any,
        a: Tensor,
        weight: Tensor,
        bias: Optional[Tensor],
        order: str,
        pad: bool,
        to_grad: bool,
    ) -> Tensor:
        ctx.save_for_backward(a, weight)
        ctx.bias, ctx.order, ctx.pad, ctx.to_grad = bias, order, pad, to_grad
        return _kernels.linear(a, weight, bias, order, False)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dc: Tensor) -> tuple[Optional[Tensor], ...]:
        a, weight = ctx.saved_tensors
        bias = ctx.bias
        options = {"pad": ctx.pad, "to_grad": ctx.to_grad}
        rounded = dc.to(a.dtype)
        rows, columns = _kernels.rows_of(a), _kernels.rows_of(rounded)
        if ctx.needs_input_grad[1]:
            accumulate(weight, rows, columns, ctx.order, **options)
        if ctx.needs_input_grad[2]:
            ones = columns.new_ones(columns.shape[0], 1)
            view = _Column(bias)
            accumulate(view, ones, columns, ctx.order, **options)
            view.hand_back()
        needs = (ctx.needs_input_grad[0], False, False)
        grads = _ops.linear_gradients(needs, a, weight, None, rounded, ctx.order)
        return grads[0], None, None, None, None, None


class _Column:
    """A bias seen as a weight of one column, so that its gradient is a sum like any other."""

    def __init__(self, bias: Tensor) -> None:
        self.bias, self.dtype = bias, bias.dtype
        self.grad = None if bias.grad is None else bias.grad[:, None]
        state = getattr(bias, STATE, None)
        self.main_grad = None if state is None else state.view(-1, 1)
        self._detgemm_rows = getattr(bias, _ROWS, (0, -1))

    def hand_back(self) -> None:
        assert self.main_grad is not None
        if (
            getattr(self.bias, STATE, None) is None
            or self.main_grad.data_ptr() != getattr(self.bias, STATE).data_ptr()
        ):
            setattr(self.bias, STATE, self.main_grad.view(-1))
        setattr(self.bias, _ROWS, self._detgemm_rows)
        if self.grad is not None:
            self.bias.grad = self.grad.view(-1)


def reset_main_grad(module: nn.Module) -> None:
    """Forgets the gradient states of a module's parameters: the next backward begins new sums."""
    for parameter in module.parameters():
        if hasattr(parameter, STATE):
            setattr(parameter, STATE, None)
        if hasattr(parameter, _ROWS):
            delattr(parameter, _ROWS)
