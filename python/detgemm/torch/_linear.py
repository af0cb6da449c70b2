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

    def __setattr__(self, name: str, value: Any) -> None:
        if getattr(self, "_accumulation", None) is not None and hasattr(value, "to_local"):
            raise ValueError(
                f"{name} becomes a {type(value).__name__}: sharding a layer (fully_shard) throws away "
                f"the parameter that grad_accum={self.grad_accum!r} keeps the gradient with; use "
                f"grad_accum=None"
            )
        super().__setattr__(name, value)

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
        options: dict[str, Any] = {"order": order, "grad_accum": grad_accum, "grad_pad": grad_pad}
        layer = cls(linear.in_features, linear.out_features, bias=False, device="meta", **options)
        layer.weight, layer.bias = linear.weight, linear.bias
        layer.train(linear.training)
        return layer

    @classmethod
    def _in_place_of(cls, linear: nn.Linear, **options: Any) -> DetLinear:
        """from_linear for a layer that nobody keeps: its hooks and its other attributes come along."""
        layer = cls(linear.in_features, linear.out_features, bias=False, device="meta", **options)
        layer.__dict__.update(linear.__dict__)
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


# Layers with products of their own that are no nn.Linear. deterministic_mode reaches the first.
_OTHERS: tuple[tuple[type[nn.Module], str], ...] = (
    (nn.MultiheadAttention, "uses its weights itself; deterministic_mode covers its projections"),
    (nn.modules.conv._ConvNd, "is a convolution, which is not covered"),
    (nn.RNNBase, "is a recurrent layer, which is not covered"),
    (nn.Bilinear, "is a bilinear form, which is not covered"),
)


def _why_left(module: nn.Module) -> Optional[str]:
    """Why a layer with products stays what it is, or None."""
    if isinstance(module, DetLinear):
        return "is a DetLinear already"
    if "forward" in module.__dict__:
        return "has a forward of its own, in place of its class's"
    if isinstance(module, nn.Linear) and type(module) is not nn.Linear:
        return f"is a {type(module).__name__}, a subclass that may compute something else"
    return next((why for kind, why in _OTHERS if isinstance(module, kind)), None)


def convert(
    model: nn.Module,
    *,
    order: Optional[str] = None,
    grad_accum: Optional[str] = None,
    grad_pad: bool = False,
    where: Callable[[str, nn.Linear], bool] = lambda name, module: True,
) -> Conversion:
    """Replaces the nn.Linear layers of a model, in place, by DetLinear layers that share their
    parameters and have their hooks and attributes. A model that is itself an nn.Linear comes back as
    a DetLinear. Conversion.left also names the layers with products that are no nn.Linear."""
    converted, left = [], {}
    options: dict[str, Any] = {"order": order, "grad_accum": grad_accum, "grad_pad": grad_pad}
    replaced: dict[int, DetLinear] = {}  # a layer that occurs twice stays one layer

    def replacement(name: str, module: nn.Module) -> nn.Module:
        known = isinstance(module, nn.Linear) and id(module) in replaced
        if known or (isinstance(module, nn.Linear) and not where(name, module)):
            return replaced.get(id(module), module)
        why = _why_left(module)
        if why is not None:
            left[name] = why
        if why is not None or not isinstance(module, nn.Linear):
            return module
        converted.append(name)
        replaced[id(module)] = DetLinear._in_place_of(module, **options)
        return replaced[id(module)]

    for parent_name, parent in list(model.named_modules(remove_duplicate=False)):
        for child_name, child in list(parent._modules.items()):
            if child is not None:
                name = f"{parent_name}.{child_name}" if parent_name else child_name
                parent._modules[child_name] = replacement(name, child)
    return Conversion(replacement("", model), tuple(converted), left)
