"""Weight gradients kept as FP32 state and continued from micro-batch to micro-batch, so that any
split of a batch into micro-batches gives the bits of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor, nn

from detgemm.torch import _kernels, _ops
from detgemm.torch._plain import check_real, uncompiled

# Where the state is kept, on the parameter: the convention of Megatron's optimisers.
STATE = "main_grad"
_ROWS = "_detgemm_rows"  # (rows summed so far, version of the state after that)


def _rows_so_far(parameter: Any, state: Optional[Tensor]) -> int:
    """How many rows the state holds: none when it is new, or was changed (zeroed) by someone else."""
    rows, version = getattr(parameter, _ROWS, (0, -1))
    return rows if state is not None and state._version == version else 0


def _padded(x: Tensor, rows: int) -> Tensor:
    return x if x.shape[0] == rows else torch.cat((x, x.new_zeros(rows - x.shape[0], x.shape[1])))


class Options(NamedTuple):
    """How gradients are kept: whether micro-batches are filled up, and whether .grad is written."""

    pad: bool
    to_grad: bool


def options(grad_accum: Optional[str], grad_pad: bool) -> Optional[Options]:
    """What a layer's arguments mean; None: gradients go to autograd as usual."""
    if grad_accum not in (None, "fp32", "fp32-grad"):
        raise ValueError(f'grad_accum is {grad_accum!r}; use None, "fp32" or "fp32-grad"')
    return None if grad_accum is None else Options(grad_pad, grad_accum == "fp32-grad")


def check_parameters(*parameters: Optional[Tensor]) -> None:
    """Refuses weights that would be gone, and their state with them, after the step."""
    for parameter in parameters:
        if parameter is not None and not parameter.is_leaf:
            raise ValueError(
                "grad_accum keeps the gradient with the parameter, but this layer's weight or bias is "
                "computed from others (a parametrization, or a view of FSDP's flat parameter); use "
                "grad_accum=None"
            )


def accumulate(parameter: Any, rows: Tensor, columns: Tensor, order: str, how: Options) -> None:
    """parameter.main_grad[N, K] += columns[R, N]^T rows[R, K], continued row by row.

    In the tc16 order a sum may go on only after a multiple of 16 rows. Padding fills every micro-batch
    up with rows of zeros instead, which gives the bits of a batch filled up in the same places.
    to_grad also writes the state, rounded, to parameter.grad; without a .grad a new sum begins."""
    state: Optional[Tensor] = getattr(parameter, STATE, None)
    if how.to_grad and parameter.grad is None:
        state = None
    before = _rows_so_far(parameter, state)
    if order == "tc16" and before % 16 and rows.shape[0]:
        raise ValueError(
            f"the gradient holds the sum over {before} rows; in the tc16 order it can be continued "
            f"after a multiple of 16 only: give every micro-batch but the last a multiple of 16 tokens, "
            f"use the fma order, or pad=True"
        )
    if how.pad and order == "tc16":
        count = -(-rows.shape[0] // 16) * 16
        rows, columns = _padded(rows, count), _padded(columns, count)
    if state is None:
        state = _kernels.grad_weight(rows, columns, None, order, True)
        setattr(parameter, STATE, state)
    else:
        _kernels.grad_weight_into(state, rows, columns, state, order)
    setattr(parameter, _ROWS, (before + rows.shape[0], state._version))
    if how.to_grad:
        parameter.grad = state.to(parameter.dtype)


def accumulate_linear(
    parameters: Sequence[Any],
    needs: Sequence[bool],
    a: Tensor,
    dc: Tensor,
    order: str,
    how: Options,
) -> None:
    """Continues the states of a linear layer's weight and bias, those that are needed."""
    rows, columns = _kernels.rows_of(a), _kernels.rows_of(dc)
    weight, bias = parameters
    if needs[0]:
        accumulate(weight, rows, columns, order, how)
    if needs[1]:
        ones = columns.new_ones(columns.shape[0], 1)
        view = _Column(bias)
        accumulate(view, ones, columns, order, how)
        view.hand_back()


class AccumulatingLinear(torch.autograd.Function):
    """A linear layer whose parameters' gradients go to their FP32 state instead of autograd."""

    @staticmethod
    def forward(
        ctx: Any,
        a: Tensor,
        weight: Tensor,
        bias: Optional[Tensor],
        layer: Any,
        order: str,
        how: Options,
    ) -> Tensor:
        a = a.resolve_neg()
        ctx.save_for_backward(a, weight)
        ctx.parameters, ctx.order, ctx.how = (layer.weight, layer.bias), order, how
        return _kernels.linear(a, weight, bias, order, False)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dc: Tensor) -> tuple[Optional[Tensor], ...]:
        a, weight = ctx.saved_tensors
        rounded = dc.to(a.dtype).resolve_neg()
        accumulate_linear(ctx.parameters, ctx.needs_input_grad[1:3], a, rounded, ctx.order, ctx.how)
        needs = (ctx.needs_input_grad[0], False, False)
        grads = _ops.linear_gradients(needs, a, weight, None, rounded, ctx.order)
        return grads[0], None, None, None, None, None


_WHAT = "a layer with grad_accum keeps its gradients beside autograd"


@uncompiled(
    f"{_WHAT}, which a graph cannot do; leave out fullgraph=True (everything else is compiled), or use "
    f"grad_accum=None and add up the gradients yourself"
)
def linear(layer: Any, x: Tensor, order: str, how: Options) -> Tensor:
    """The layer's product. A compiler leaves it alone: its backward has side effects."""
    check_parameters(layer.weight, layer.bias)
    check_real(_WHAT, x, layer.weight, layer.bias)
    weight: Tensor = layer.weight
    if torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
        x, weight = x.to(dtype), weight.to(dtype)
    result: Tensor = AccumulatingLinear.apply(  # type: ignore[no-untyped-call]
        x, weight, layer.bias, layer, order, how
    )
    return result


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
