"""The operators detgemm::matmul, detgemm::linear and detgemm::grad_weight for PyTorch's
dispatcher: schemas, kernels, fake kernels, gradients, and the rules for vmap and autocast."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional

import torch
from torch import Tensor
from torch.autograd import forward_ad

from detgemm.torch import _kernels
from detgemm.torch._plain import PLAIN, state

LIBRARY = torch.library.Library("detgemm", "DEF")
# Where the kernels run. PrivateUse1 is what torch_musa calls "musa".
KEYS = ("CPU", "CUDA", "PrivateUse1")
AUTOCAST = {"AutocastCPU": "cpu", "AutocastCUDA": "cuda", "AutocastPrivateUse1": "privateuseone"}

LIBRARY.define("matmul(Tensor a, Tensor b, Tensor? start, Tensor? bias, str order, bool fp32) -> Tensor")
LIBRARY.define("linear(Tensor a, Tensor weight, Tensor? bias, str order, bool fp32) -> Tensor")
LIBRARY.define("grad_weight(Tensor a, Tensor dc, Tensor? start, str order, bool fp32) -> Tensor")


def _fake_matmul(
    a: Tensor, b: Tensor, start: Optional[Tensor], bias: Optional[Tensor], order: str, fp32: bool
) -> Tensor:
    shape = _kernels.product_shape(a, b, start, bias, order)
    return a.new_empty(shape, dtype=torch.float32 if fp32 else a.dtype)


def _fake_linear(a: Tensor, weight: Tensor, bias: Optional[Tensor], order: str, fp32: bool) -> Tensor:
    shape = _kernels.linear_shape(a, weight, bias, order)
    return a.new_empty(shape, dtype=torch.float32 if fp32 else a.dtype)


def _fake_grad_weight(a: Tensor, dc: Tensor, start: Optional[Tensor], order: str, fp32: bool) -> Tensor:
    shape = _kernels.grad_weight_shape(a, dc, start)
    return a.new_empty(shape, dtype=torch.float32 if fp32 else a.dtype)


_transformed: dict[str, Callable[..., Tensor]] = {}  # filled by register


def _no_forward_mode(name: str) -> NotImplementedError:
    return NotImplementedError(
        f"{name} has no forward-mode derivative; use backward, torch.func.vjp or jacrev"
    )


def _check_arguments(name: str, schema: Any, tensors: tuple[Any, ...]) -> None:
    """What the dispatcher would say less clearly, or not at all."""
    for argument, x in zip(schema.arguments, tensors):
        if not isinstance(x, Tensor):
            if x is None and argument.type.kind() == "OptionalType":
                continue
            raise TypeError(f"{argument.name} is a {type(x).__name__}; {name} takes tensors")
        _kernels.check_kind(x, argument.name)
        if forward_ad._current_level >= 0 and forward_ad.unpack_dual(x).tangent is not None:
            raise _no_forward_mode(name)


def _distributed(operator: Callable[..., Tensor], *args: Any) -> Tensor:
    """On DTensors, as far as somebody registered how to shard the operator."""
    try:
        return operator(*args)
    except (NotImplementedError, RuntimeError) as error:
        raise NotImplementedError(
            "an operand is a DTensor, and how to shard detgemm's products is not registered; give "
            "x.to_local() of operands that are whole where they are summed over, or use "
            "detgemm.torch.parallel's layers"
        ) from error


def entry(name: str, kernel: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The operator; its kernel alone where nobody watches; and within torch.func transforms, which
    know no gradients of operators, an autograd.Function around it."""
    operator: Callable[..., Tensor] = getattr(torch.ops.detgemm, name).default
    schema: Any = operator._schema  # type: ignore[attr-defined]
    count = sum("Tensor" in str(argument.type) for argument in schema.arguments)

    def call(*args: Any) -> Tensor:
        if not torch.compiler.is_compiling():
            tensors = args[:count]
            if state(*tensors) == PLAIN:
                return kernel(*args)
            _check_arguments(name, schema, tensors)
            if torch._C._are_functorch_transforms_active():
                return _transformed[name](*args)
            if any(hasattr(x, "to_local") for x in tensors):
                return _distributed(operator, *args)
        return operator(*args)

    return call


matmul = entry("matmul", _kernels.matmul)
linear = entry("linear", _kernels.linear)
grad_weight = entry("grad_weight", _kernels.grad_weight)


# ---- gradients: sums in the same order, as operators, so that they can be differentiated again --


class _Products(NamedTuple):
    """The products that gradients consist of."""

    matmul: Callable[..., Tensor]
    linear: Callable[..., Tensor]
    grad_weight: Callable[..., Tensor]


_ENTRIES = _Products(matmul, linear, grad_weight)
_KERNELS = _Products(_kernels.matmul, _kernels.linear, _kernels.grad_weight)


def _products(*tensors: Tensor) -> _Products:
    """The kernels alone where nobody watches: asked once for all the products of these tensors."""
    return _KERNELS if state(*tensors) == PLAIN else _ENTRIES


def _rounded(dc: Tensor, dtype: torch.dtype) -> Tensor:
    return dc if dc.dtype == dtype else dc.to(dtype)


def _reduced_matmul(
    left: Tensor, right: Tensor, own: tuple[int, ...], dtype: torch.dtype, order: str
) -> Tensor:
    """left[..., R, S] right[..., S, T] with the batch dimensions that are not in `own` summed as
    well: they come before s in the sequence of the sum."""
    fp32 = dtype == torch.float32
    if not own and left.dim() == 2 and right.dim() == 2:
        return matmul(left, right, None, None, order, fp32)
    batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    if tuple(batch) == tuple(own):
        return matmul(left, right, None, None, order, fp32)
    left, right = left.expand(*batch, -1, -1), right.expand(*batch, -1, -1)
    count, missing = len(batch), len(batch) - len(own)
    summed = [i for i in range(count) if i < missing or own[i - missing] != batch[i]]
    kept = [i for i in range(count) if i not in summed]
    left = left.permute(*kept, count, *summed, count + 1).flatten(len(kept) + 1)
    right = right.permute(*kept, *summed, count, count + 1).flatten(len(kept), count)
    result = matmul(left, right, None, None, order, fp32)
    return result.reshape(*own, *result.shape[-2:])


def grad_bias(dc: Tensor, dtype: torch.dtype, order: str) -> Tensor:
    """The sum of dc over all rows, ascending: a product with ones, in the order."""
    rows = _kernels.rows_of(dc)
    ones = dc.new_ones(1, 1).expand(1, rows.shape[0])
    return matmul(ones, rows, None, None, order, dtype == torch.float32)[0].to(dtype)


def matmul_gradients(
    needs: tuple[bool, ...],
    a: Tensor,
    b: Tensor,
    bias: Optional[torch.dtype],
    dc: Tensor,
    order: str,
) -> list[Optional[Tensor]]:
    """The gradients of a, b, start and bias, those that are needed. dc is rounded to a's dtype."""
    grads: list[Optional[Tensor]] = [None, None, None, None]
    rounded = _rounded(dc, a.dtype)
    ops, fp32 = _products(rounded, a, b), a.dtype == torch.float32
    if needs[0] and b.dim() == 2:
        grads[0] = ops.linear(rounded, b, None, order, fp32)
    elif needs[0]:
        grads[0] = _reduced_matmul(rounded, b.mT, tuple(a.shape[:-2]), a.dtype, order)
    if needs[1]:
        if b.dim() == 2 and b.stride(0) == 1 and b.stride(1) != 1:
            grads[1] = ops.grad_weight(a, rounded, None, order, fp32).t()
        elif a.dim() == b.dim() == 2:
            grads[1] = ops.matmul(a.t(), rounded, None, None, order, fp32)
        elif b.dim() == 2 and a.dim() > 2:
            rows, columns = _kernels.rows_of(a), _kernels.rows_of(rounded)
            grads[1] = ops.matmul(rows.t(), columns, None, None, order, fp32)
        else:
            grads[1] = _reduced_matmul(a.mT, rounded, tuple(b.shape[:-2]), b.dtype, order)
    if needs[2]:
        grads[2] = dc.to(torch.float32)
    if needs[3] and bias is not None:
        grads[3] = grad_bias(rounded, bias, order)
    return grads


def linear_gradients(
    needs: tuple[bool, ...],
    a: Tensor,
    weight: Tensor,
    bias: Optional[torch.dtype],
    dc: Tensor,
    order: str,
) -> list[Optional[Tensor]]:
    """The gradients of a, weight (a contiguous [N, K]) and bias, those that are needed."""
    grads: list[Optional[Tensor]] = [None, None, None]
    rounded = _rounded(dc, a.dtype)
    ops, fp32 = _products(rounded, a, weight), a.dtype == torch.float32
    if needs[0]:
        vector = rounded.dim() == 1
        grad = ops.matmul(rounded[None] if vector else rounded, weight, None, None, order, fp32)
        grads[0] = grad[0] if vector else grad
    if needs[1]:
        grads[1] = ops.grad_weight(a, rounded, None, order, fp32)
    if needs[2] and bias is not None:
        grads[2] = grad_bias(rounded, bias, order)
    return grads


def grad_weight_gradients(
    needs: tuple[bool, ...], a: Tensor, dc: Tensor, dw: Tensor, order: str
) -> list[Optional[Tensor]]:
    """The gradients of a, dc and start in the weight gradient: what differentiating twice needs."""
    grads: list[Optional[Tensor]] = [None, None, None]
    rounded = dw.to(a.dtype)
    fp32 = a.dtype == torch.float32
    if needs[0]:
        rows = _kernels.rows_of(dc)
        grads[0] = matmul(rows, rounded, None, None, order, fp32).reshape(a.shape)
    if needs[1]:
        grads[1] = linear(a, rounded, None, order, fp32)
    if needs[2]:
        grads[2] = dw.to(torch.float32)
    return grads


def _save_matmul(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, b, _, bias, order, _ = inputs
    ctx.save_for_backward(a, b)
    ctx.bias, ctx.order = None if bias is None else bias.dtype, order


def _matmul_backward(ctx: Any, dc: Tensor) -> tuple[Optional[Tensor], ...]:
    a, b = ctx.saved_tensors
    grads = matmul_gradients(ctx.needs_input_grad, a, b, ctx.bias, dc, ctx.order)
    return (*grads, None, None)


def _save_linear(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, weight, bias, order, _ = inputs
    ctx.save_for_backward(a, weight)
    ctx.bias, ctx.order = None if bias is None else bias.dtype, order


def _linear_backward(ctx: Any, dc: Tensor) -> tuple[Optional[Tensor], ...]:
    a, weight = ctx.saved_tensors
    grads = linear_gradients(ctx.needs_input_grad, a, weight, ctx.bias, dc, ctx.order)
    return (*grads, None, None)


def _save_grad_weight(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, dc, _, order, _ = inputs
    ctx.save_for_backward(a, dc)
    ctx.order = order


def _grad_weight_backward(ctx: Any, dw: Tensor) -> tuple[Optional[Tensor], ...]:
    a, dc = ctx.saved_tensors
    return (*grad_weight_gradients(ctx.needs_input_grad, a, dc, dw, ctx.order), None, None)


# ---- beta * added + alpha * state, rounded once: an operator of its own, since compilers leave the
# rounding out, or join a product and a sum, where they put such steps together --------------------

LIBRARY.define(
    "scaled_sum(Tensor state, Tensor added, float beta, float alpha, str dtype, str order) -> Tensor"
)
_SUM = "detgemm::scaled_sum"
_NAMES = {torch.bfloat16: "bfloat16", torch.float16: "float16", torch.float32: "float32"}
_BY_NAME = {name: dtype for dtype, name in _NAMES.items()}


def _scaled_sum(
    state: Tensor, added: Tensor, beta: float, alpha: float, dtype: str, order: str
) -> Tensor:
    result = state if alpha == 1 else state * alpha
    if beta != 0:
        term = added.to(torch.float32)
        result = result + (term if beta == 1 else term * beta)
    return result.to(_BY_NAME[dtype], copy=True)


def _fake_scaled_sum(
    state: Tensor, added: Tensor, beta: float, alpha: float, dtype: str, order: str
) -> Tensor:
    return torch.empty_like(state, dtype=_BY_NAME[dtype])


def _save_scaled_sum(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, added, ctx.beta, ctx.alpha, _, ctx.order = inputs
    ctx.shape, ctx.dtype = added.shape, added.dtype


def _scaled_sum_backward(ctx: Any, dc: Tensor) -> tuple[Optional[Tensor], ...]:
    state = dc.to(torch.float32) * ctx.alpha if ctx.needs_input_grad[0] else None
    added = None
    if ctx.needs_input_grad[1]:
        if dc.dim() > 1 and len(ctx.shape) > 0 and ctx.shape.numel() == ctx.shape[-1] == dc.shape[-1]:
            added = grad_bias(dc, torch.float32, ctx.order).reshape(ctx.shape)
        else:
            added = dc.to(torch.float32).sum_to_size(ctx.shape)
        added = (added * ctx.beta).to(ctx.dtype)
    return state, added, None, None, None, None


LIBRARY.impl("scaled_sum", _scaled_sum, "CompositeExplicitAutograd")
torch.library.register_fake(_SUM, _fake_scaled_sum, lib=LIBRARY)
torch.library.register_autograd(_SUM, _scaled_sum_backward, setup_context=_save_scaled_sum, lib=LIBRARY)


def scaled_sum(
    state: Tensor, added: Tensor, beta: Any, alpha: Any, dtype: torch.dtype, order: str
) -> Tensor:
    """beta * added + alpha * state in FP32, rounded once to dtype."""
    arguments = (state, added, float(beta), float(alpha), _NAMES[dtype], order)
    operator = torch.ops.detgemm.scaled_sum.default
    if not torch.compiler.is_compiling():
        _check_arguments("scaled_sum", operator._schema, (state, added))
        if torch._C._are_functorch_transforms_active():
            return _scaled_sum(*arguments)
    result: Tensor = operator(*arguments)
    return result


# ---- vmap: the mapped dimension becomes a batch dimension -----------------------------------------


def _front(x: Tensor, dim: Optional[int], rank: int) -> Tensor:
    """x with its mapped dimension in front and as many others after it as rank says."""
    if dim is None:
        return x
    x = x.movedim(dim, 0)
    return x.reshape(x.shape[0], *(1,) * (rank + 1 - x.dim()), *x.shape[1:])


def _logical_rank(x: Tensor, dim: Optional[int]) -> int:
    return x.dim() - (dim is not None)


def _add_bias(state: Tensor, bias: Tensor, dim: Optional[int], dtype: torch.dtype) -> Tensor:
    """What the epilogue does, for a bias of every mapped product: one FP32 addition, one rounding."""
    vector = _front(bias, dim, state.dim() - 1)
    return (state + vector.to(torch.float32)).to(dtype)


def _vmap_matmul(
    info: Any,
    in_dims: tuple[Optional[int], ...],
    a: Tensor,
    b: Tensor,
    start: Optional[Tensor],
    bias: Optional[Tensor],
    order: str,
    fp32: bool,
) -> tuple[Tensor, int]:
    rank = max(_logical_rank(a, in_dims[0]), _logical_rank(b, in_dims[1]))
    left, right = _front(a, in_dims[0], rank), _front(b, in_dims[1], rank)
    if in_dims[0] is None and in_dims[1] is None:
        left = left.expand(info.batch_size, *(1,) * (rank - left.dim()), *left.shape)
    if start is not None:
        mapped = _front(start, in_dims[2], rank)
        start = mapped if in_dims[2] is not None else start.expand(info.batch_size, *start.shape)
        start = start.expand(*start.shape)
    if bias is None or in_dims[3] is None:
        return matmul(left, right, start, bias, order, fp32), 0
    state = matmul(left, right, start, None, order, True)
    return _add_bias(state, bias, in_dims[3], torch.float32 if fp32 else a.dtype), 0


def _vmap_linear(
    info: Any,
    in_dims: tuple[Optional[int], ...],
    a: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    order: str,
    fp32: bool,
) -> tuple[Tensor, int]:
    dtype = torch.float32 if fp32 else a.dtype
    left = a.movedim(in_dims[0], 0) if in_dims[0] is not None else a
    mapped_bias = bias is not None and in_dims[2] is not None
    if in_dims[1] is None:
        if in_dims[0] is None:
            left = left.expand(info.batch_size, *left.shape)
        state = linear(left, weight, None if mapped_bias else bias, order, fp32 or mapped_bias)
    else:
        vector = _logical_rank(a, in_dims[0]) == 1
        left = left.unsqueeze(-2) if vector else left
        rank = left.dim() - (in_dims[0] is not None)
        right = _front(weight, in_dims[1], rank).mT
        left = _front(left, 0 if in_dims[0] is not None else None, rank)
        vectors = None if mapped_bias else bias
        state = matmul(left, right, None, vectors, order, fp32 or mapped_bias)
        state = state.squeeze(-2) if vector else state
    if mapped_bias:
        assert bias is not None
        return _add_bias(state, bias, in_dims[2], dtype), 0
    return state, 0


def _vmap_grad_weight(
    info: Any,
    in_dims: tuple[Optional[int], ...],
    a: Tensor,
    dc: Tensor,
    start: Optional[Tensor],
    order: str,
    fp32: bool,
) -> tuple[Tensor, int]:
    def rows(x: Tensor, dim: Optional[int]) -> Tensor:
        x = x.movedim(dim, 0) if dim is not None else x.expand(info.batch_size, *x.shape)
        return x.reshape(x.shape[0], -1, x.shape[-1])

    if start is not None:
        start = _front(start, in_dims[2], 2)
        start = start.expand(info.batch_size, *start.shape[-2:])
    left = rows(dc, in_dims[1]).mT
    return matmul(left, rows(a, in_dims[0]), start, None, order, fp32), 0


# ---- autocast: operands to the autocast dtype; start and bias stay, they are added in FP32 --------


def _autocast(op: Callable[..., Tensor], key: str, device: str) -> Callable[..., Tensor]:
    exclude = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def cast(x: Tensor, dtype: torch.dtype) -> Tensor:
        return x.to(dtype) if x.is_floating_point() and x.dtype != torch.float64 else x

    def kernel(x: Tensor, y: Tensor, *rest: Any) -> Tensor:
        dtype = torch.get_autocast_dtype(device)
        with torch._C._ExcludeDispatchKeyGuard(exclude):
            return op(cast(x, dtype), cast(y, dtype), *rest)

    return kernel


def _transformable(
    name: str,
    operator: Callable[..., Tensor],
    backward: Callable[..., Any],
    save: Callable[..., None],
    vmap: Callable[..., Any],
) -> Callable[..., Tensor]:
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise _no_forward_mode(name)

    members = {
        "forward": staticmethod(operator),
        "setup_context": staticmethod(save),
        "backward": staticmethod(backward),
        "jvp": staticmethod(jvp),
        "vmap": staticmethod(vmap),
    }
    function = type("DetGemmFunction", (torch.autograd.Function,), members)
    apply: Callable[..., Tensor] = function.apply  # type: ignore[attr-defined]
    return apply


def register(
    name: str,
    kernel: Callable[..., Tensor],
    fake: Callable[..., Tensor],
    backward: Callable[..., Any],
    save: Callable[..., None],
    vmap: Callable[..., Any],
) -> None:
    """Gives a defined operator its kernel, its shape, its gradient, and its rules for vmap and
    autocast, which makes the first two operands the autocast dtype."""
    operator = getattr(torch.ops.detgemm, name).default
    for key in KEYS:
        LIBRARY.impl(name, kernel, key)
    full = f"detgemm::{name}"
    torch.library.register_fake(full, fake, lib=LIBRARY)
    torch.library.register_autograd(full, backward, setup_context=save, lib=LIBRARY)
    if hasattr(torch.library, "register_vmap"):
        torch.library.register_vmap(full, vmap, lib=LIBRARY)
    for key, device in AUTOCAST.items():
        if hasattr(torch._C.DispatchKey, key):
            LIBRARY.impl(name, _autocast(operator, key, device), key)
    _transformed[name] = _transformable(name, operator, backward, save, vmap)


register("matmul", _kernels.matmul, _fake_matmul, _matmul_backward, _save_matmul, _vmap_matmul)
register("linear", _kernels.linear, _fake_linear, _linear_backward, _save_linear, _vmap_linear)
register(
    "grad_weight",
    _kernels.grad_weight,
    _fake_grad_weight,
    _grad_weight_backward,
    _save_grad_weight,
    _vmap_grad_weight,
)
