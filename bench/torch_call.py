"""What a call from Python costs beside PyTorch's: tiny products on the CPU, one thread, in turns.

python bench/torch_call.py    (with detgemm and torch installed, on a machine that does nothing else)
"""

import statistics
import time
from typing import Callable

import torch
from torch.nn import functional as F

import detgemm.torch as dt

ROUNDS, CALLS = 41, 400


def once(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - start) / CALLS * 1e6


def row(name: str, torchs: Callable[[], object], ours: Callable[[], object]) -> None:
    rounds = [(once(torchs), once(ours)) for _ in range(ROUNDS)]
    base, own = (statistics.median(times) for times in zip(*rounds))
    more = statistics.median(own - base for base, own in rounds)
    print(f"| {name} | {base:.1f} | {own:.1f} | {more:.1f} |")


def main() -> None:
    torch.set_num_threads(1)
    op = dt.CpuDetGemmOp(order="fma")
    a = torch.randn(4, 16, dtype=torch.bfloat16)
    b = torch.randn(16, 16, dtype=torch.bfloat16)
    w = b.clone().requires_grad_()
    dc = torch.randn(4, 16, dtype=torch.bfloat16)

    def step(call: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        w.grad = None
        call(a, w).backward(dc)

    print(f"torch {torch.__version__}, 4 x 16 x 16, medians of {ROUNDS} rounds of {CALLS} calls, us\n")
    print("| call | torch | detgemm | more |\n|---|---|---|---|")
    row("a b", lambda: torch.mm(a, b), lambda: op(a, b))
    row("linear", lambda: F.linear(a, b), lambda: op.linear(a, b))
    row("a b, recording a gradient", lambda: torch.mm(a, w), lambda: op(a, w))
    row("the same and its backward", lambda: step(torch.mm), lambda: step(op))


if __name__ == "__main__":
    main()
