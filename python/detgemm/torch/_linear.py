"""DetLinear, and a whole model's linear layers replaced by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor, nn

from detgemm import _orders
from detgemm.torch import _accumulate, _functional


class DetLinear(nn.Linear):
    """torch.nn.Linear with the bits of an order; its parameters and state dict are the same.

    order None means the default order at the time of each call.

    grad_accum="fp32" keeps the gradients of weight and bias as FP32 state, weight.main_grad, which the
    next backward continues: any split of a batch into micro-batches gives the same bits (tc16: splits
    after multiples of 16 tokens; grad_pad=True fills micro-batches up with zero rows instead).
    grad_accum="fp32-grad" does the same and writes the state, rounded, to weight.grad as well, for
    optimisers that read that; zero_grad(set_to_none=True) then begins a new sum."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Optional[torch.dtype] = None,
        *,
        order: Optional[str] = None,
        grad_accum: Optional[str] = None,
        grad_pad: bool = False,
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        self._accumulation = _accumulate.options(grad_accum, grad_pad)
        self.grad_accum, self.grad_pad = grad_accum, grad_pad
        self.order = None if order is None else _orders.check(order)

    @classmethod
    def from_linear(
        cls,
        linear: nn.Linear,
        *,
        order: Optional[str] = None,
        grad_accum: Optional[str] = None,
        grad_pad: bool = False,
    ) -> DetLinear:
        """A layer that shares the parameters of an nn.Linear."""
        layer = cls(
            linear.in_features,
            linear.out_features,
            bias=False,
            device="meta",
            order=order,
            grad_accum=grad_accum,
            grad_pad=grad_pad,
        )
        layer.weight, layer.bias = linear.weight, linear.bias
        layer.train(linear.training)
        return layer

    def forward(self, input: Tensor) -> Tensor:
        if self._accumulation is None or not torch.is_grad_enabled():
            return _functional.linear(input, self.weight, self.bias, order=self.order)
        order = _orders.resolve(self.order)
        result: Tensor = _accumulate.linear(self, input, order, self._accumulation)
        return result

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, order={self.order!r}"


class Conversion(NamedTuple):
    """What convert did: the model, the layers it replaced, and those it left and why."""

    model: nn.Module
    converted: tuple[str, ...]
    left: dict[str, str]


def _why_left(module: nn.Module) -> Optional[str]:
    if isinstance(module, DetLinear):
        return "is a DetLinear already"
    if type(module) is not nn.Linear:
        return f"is a {type(module).__name__}, a subclass with a forward of its own"
    if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks:
        return "has hooks, which a new module would not have"
    return None


def convert(
    model: nn.Module,
    *,
    order: Optional[str] = None,
    grad_accum: Optional[str] = None,
    grad_pad: bool = False,
    where: Callable[[str, nn.Linear], bool] = lambda name, module: True,
) -> Conversion:
    """Replaces the nn.Linear layers of a model, in place, by DetLinear layers that share their
    parameters. A model that is itself an nn.Linear comes back as a DetLinear."""
    converted, left = [], {}
    replaced: dict[int, DetLinear] = {}  # a layer that occurs twice stays one layer
    for parent_name, parent in list(model.named_modules(remove_duplicate=False)):
        for child_name, child in list(parent._modules.items()):
            name = f"{parent_name}.{child_name}" if parent_name else child_name
            if not isinstance(child, nn.Linear):
                continue
            if id(child) in replaced:
                setattr(parent, child_name, replaced[id(child)])
                continue
            if not where(name, child):
                continue
            why = _why_left(child)
            if why is not None:
                left[name] = why
                continue
            layer = DetLinear.from_linear(child, order=order, grad_accum=grad_accum, grad_pad=grad_pad)
            replaced[id(child)] = layer
            setattr(parent, child_name, layer)
            converted.append(name)
    if type(model) is nn.Linear and where("", model):
        model = DetLinear.from_linear(model, order=order, grad_accum=grad_accum, grad_pad=grad_pad)
        converted.append("")
    return Conversion(model, tuple(converted), left)
