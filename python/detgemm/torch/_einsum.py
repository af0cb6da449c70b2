"""torch.einsum as products of two operands at a time, from left to right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Optional

from torch import Tensor

Multiply = Callable[[Tensor, Tensor], Tensor]


def _expand_dots(terms: list[str], output: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Replaces "..." by letters of its own, one for each dimension it stands for."""
    letters = [c for c in map(chr, range(0x100, 0x180)) if c.isalpha()]
    widths = [rank - len(t.replace("...", "")) for t, rank in zip(terms, ranks) if "..." in t]
    widest = "".join(letters[: max(widths, default=0)])
    result = []
    for term, rank in zip(terms, ranks):
        width = rank - len(term.replace("...", ""))
        result.append(term.replace("...", widest[len(widest) - width :] if width else ""))
    return result, output.replace("...", widest)


def parse(equation: str, ranks: Sequence[int]) -> Optional[tuple[list[str], str]]:
    """The subscripts of each operand and of the result, or None where a letter occurs twice in one
    operand or the dimensions do not match: torch.einsum takes or refuses those."""
    text = equation.replace(" ", "")
    left, arrow, output = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        return None
    if not arrow:
        names = left.replace(",", "").replace("...", "")
        output = "".join(sorted(c for c in set(names) if names.count(c) == 1))
        output = ("..." if "..." in left else "") + output
    terms, output = _expand_dots(terms, output, ranks)
    fits = all(len(t) == rank and len(set(t)) == rank for t, rank in zip(terms, ranks))
    return (terms, output) if fits and len(set(output)) == len(output) else None


def _sizes(terms: Sequence[str], tensors: Sequence[Tensor]) -> Optional[dict[str, int]]:
    """The extent of every letter, or None where a dimension of one is broadcast."""
    sizes: dict[str, int] = {}
    for term, tensor in zip(terms, tensors):
        for letter, extent in zip(term, tensor.shape):
            if sizes.setdefault(letter, extent) != extent:
                return None
    return sizes


def _pair(
    x: Tensor, y: Tensor, terms: tuple[str, str], keep: str, multiply: Multiply
) -> Optional[tuple[Tensor, str]]:
    """One contraction, as a batch of matrix products. None where nothing is summed over a pair, or
    a letter of one operand alone is summed: those are no matrix products."""
    p, q = terms
    sizes = _sizes(terms, (x, y))
    shared = [c for c in p if c in q]
    batch = [c for c in shared if c in keep]
    summed = [c for c in shared if c not in keep]
    rows, columns = [c for c in p if c not in q], [c for c in q if c not in p]
    if sizes is None or not summed or any(c not in keep for c in rows + columns):
        return None

    def extents(names: list[str]) -> list[int]:
        return [sizes[c] for c in names]

    def product(names: list[str]) -> int:
        result = 1
        for c in names:
            result *= sizes[c]
        return result

    inner = product(summed)
    a = x.permute(*(p.index(c) for c in batch + rows + summed))
    b = y.permute(*(q.index(c) for c in batch + summed + columns))
    a = a.reshape([*extents(batch), product(rows), inner])
    b = b.reshape([*extents(batch), inner, product(columns)])
    result = multiply(a, b).reshape(extents(batch + rows + columns))
    return result, "".join(batch + rows + columns)


def einsum(equation: Any, tensors: Sequence[Tensor], multiply: Multiply) -> Optional[Tensor]:
    """The value, or None where the equation has a part that is no matrix product."""
    if not isinstance(equation, str) or len(tensors) < 2:
        return None
    parsed = parse(equation, [x.dim() for x in tensors])
    if parsed is None:
        return None
    terms, output = parsed
    result, names = tensors[0], terms[0]
    for i in range(1, len(tensors)):
        keep = output + "".join(terms[i + 1 :])
        done = _pair(result, tensors[i], (names, terms[i]), keep, multiply)
        if done is None:
            return None
        result, names = done
    if set(names) != set(output):
        return None
    return result.permute(*(names.index(c) for c in output)) if output else result
