"""Times grouped products on the CPU beside a loop over experts with torch.matmul, in turns.

python bench/grouped_cpu.py [--threads 1] [--tokens 64 512]      # prints a Markdown table

The shapes are those of Qwen3-30B-A3B: 128 experts, 8 for each token, 2048 x 768."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

import detgemm.torch as dt

EXPERTS, CHOSEN, WIDTH, HIDDEN = 128, 8, 2048, 768
BF16 = torch.bfloat16


def routing(tokens: int) -> torch.Tensor:
    """Where the rows of the experts begin: every token goes to 8 experts, popular ones more often."""
    generator = torch.Generator().manual_seed(tokens)
    popular = torch.rand(EXPERTS, generator=generator) + 0.2
    chosen = torch.multinomial(popular.expand(tokens, -1), CHOSEN, generator=generator)
    counts = torch.bincount(chosen.flatten(), minlength=EXPERTS)
    return torch.cat((torch.zeros(1, dtype=torch.int64), counts.cumsum(0)))


def loop(a: torch.Tensor, w: torch.Tensor, cuts: list[int], out: torch.Tensor) -> None:
    for e in range(EXPERTS):
        rows = slice(cuts[e], cuts[e + 1])
        if cuts[e] < cuts[e + 1]:
            torch.matmul(a[rows], w[e].t(), out=out[rows])


def in_turns(calls: list[Callable[[], object]], seconds: float) -> list[float]:
    """The best time of each call; the calls take turns."""
    times: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + seconds
    while len(times[0]) < 3 or time.perf_counter() < end:
        for call, record in zip(calls, times):
            begin = time.perf_counter()
            call()
            record.append(time.perf_counter() - begin)
    return [min(record) for record in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=[8, 64, 512])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {options.threads} threads; milliseconds, x of the loop in FP32\n")
    print("| tokens | rows | N x K | fma | tc16 | loop, FP32 | loop, BF16 |\n|---|---|---|---|---|---|---|")
    cases = [(t, n, k) for t in options.tokens for n, k in ((HIDDEN, WIDTH), (WIDTH, HIDDEN))]
    for tokens, n, k in cases:
        offsets = routing(tokens)
        cuts = offsets.tolist()
        a = torch.randn(cuts[-1], k).to(BF16)
        w = torch.randn(EXPERTS, n, k).to(BF16)
        wide = (a.float(), w.float())
        out, wide_out = a.new_empty(cuts[-1], n), wide[0].new_empty(cuts[-1], n)
        calls: list[Callable[[], object]] = [
            lambda: dt.grouped_linear(a, w, offsets, order="fma"),  # noqa: B023
            lambda: dt.grouped_linear(a, w, offsets, order="tc16"),  # noqa: B023
            lambda: loop(*wide, cuts, wide_out),  # noqa: B023
            lambda: loop(a, w, cuts, out),  # noqa: B023
        ]
        fma, tc16, fp32, bf16 = in_turns(calls, options.seconds / len(cases))
        words = [f"{1e3 * t:.1f} ({fp32 / t:.2f})" for t in (fma, tc16, fp32, bf16)]
        print(f"| {tokens} | {cuts[-1]} | {n} x {k} | {' | '.join(words)} |", flush=True)


if __name__ == "__main__":
    main()
