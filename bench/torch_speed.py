"""Times detgemm.torch beside torch and, where its package is importable, batch_invariant_ops.

python bench/torch_speed.py            # on a CUDA machine; prints Markdown tables
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Optional

import torch
import torch.nn.functional as F

import detgemm.torch as dt

BF16 = torch.bfloat16
WEIGHT_BYTES = 400 << 20  # weights rotate over this much memory, so that they come from it


def peer() -> Optional[Callable[..., torch.Tensor]]:
    try:
        from batch_invariant_ops import matmul_persistent
    except ImportError:
        return None
    return lambda a, w: matmul_persistent(a, w.t())


def weights(n: int, k: int) -> list[torch.Tensor]:
    count = max(2, min(200, WEIGHT_BYTES // (n * k * 2)))
    return [torch.randn(n, k, device="cuda").to(BF16) for _ in range(count)]


def eager(call: Callable[..., object], a: torch.Tensor, ws: list[torch.Tensor]) -> float:
    """Microseconds of one call, Python included, of a loop that the device has to keep up with."""
    for w in ws[:3]:
        call(a, w)
    times = []
    for _ in range(5):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for i in range(40):
            call(a, ws[i % len(ws)])
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / 40)
    return statistics.median(times) * 1e6


def graph(call: Callable[..., object], a: torch.Tensor, ws: list[torch.Tensor]) -> float:
    """Microseconds of one call in a CUDA graph of calls one after another."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for w in ws[:3]:
            call(a, w)
    torch.cuda.synchronize()
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        for w in ws:
            call(a, w)
    times = []
    for _ in range(7):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        recorded.replay()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / len(ws))
    return statistics.median(times) * 1e6


def host(call: Callable[..., object]) -> float:
    """Microseconds the CPU spends in one call."""
    for _ in range(200):
        call()
    torch.cuda.synchronize()
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(200):
            call()
        times.append((time.perf_counter() - begin) / 200)
        torch.cuda.synchronize()
    return statistics.median(times) * 1e6


def ours(order: str) -> Callable[..., torch.Tensor]:
    op = dt.CudaDetGemmOp(order=order)
    return op.linear


def row(name: str, times: list[float]) -> None:
    base, own, rest = times[0], times[1], times[2:]
    share = f"{base / own:.2f}"
    others = " | ".join(f"{t:.1f} ({base / t:.2f})" for t in rest)
    print(f"| {name} | {base:.1f} | {own:.1f} ({share}) |" + (f" {others} |" if rest else ""))


def head(title: str, calls: dict[str, object]) -> None:
    print(f"\n{title}\n\n| M x N x K | " + " | ".join(calls) + " |")
    print("|" + "---|" * (len(calls) + 1))


def main() -> None:
    torch.manual_seed(0)
    calls: dict[str, Callable[..., torch.Tensor]] = {"torch us": F.linear, "detgemm tc16": ours("tc16")}
    bio = peer()
    if bio is not None:
        calls["batch_invariant_ops"] = bio
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    with torch.no_grad():
        head("Eager, Python included", calls)
        for m, n, k in ((1024, 4096, 4096), (2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192)):
            a, ws = torch.randn(m, k, device="cuda").to(BF16), weights(n, k)[:8]
            row(f"{m} x {n} x {k}", [eager(call, a, ws) for call in calls.values()])
        head("In a CUDA graph", calls)
        for m in (1, 16, 64):
            for n, k in ((4096, 4096), (12288, 4096), (4096, 12288), (1024, 4096)):
                a, ws = torch.randn(m, k, device="cuda").to(BF16), weights(n, k)
                row(f"{m} x {n} x {k}", [graph(call, a, ws) for call in calls.values()])
    head("Forward and backward, eager", {"torch us": 0, "detgemm tc16": 0})
    for size in (2048, 4096):
        a = torch.randn(size, size, device="cuda").to(BF16).requires_grad_()
        w = torch.randn(size, size, device="cuda").to(BF16).requires_grad_()
        dc = torch.randn(size, size, device="cuda").to(BF16)

        def step(call: Callable[..., torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> None:
            x.grad = y.grad = None
            call(x, y).backward(dc)  # noqa: B023

        times = [
            eager(lambda x, y, call=call: step(call, x, y), a, [w]) for call in (F.linear, ours("tc16"))
        ]
        row(f"{size} x {size} x {size}", times)
    small = torch.randn(16, 64, device="cuda").to(BF16)
    square = torch.randn(64, 64, device="cuda").to(BF16)
    grad = square.clone().requires_grad_()
    op = dt.CudaDetGemmOp(order="tc16")
    names = {
        shape: op.kernel(
            torch.empty(shape[0], shape[2], device="cuda", dtype=BF16),
            torch.empty(shape[1], shape[2], device="cuda", dtype=BF16).t(),
        )
        for shape in ((1024, 4096, 4096), (4096, 4096, 4096), (64, 12288, 4096), (1, 4096, 4096))
    }
    print("\nKernels:", ", ".join(f"{' x '.join(map(str, s))}: {name}" for s, name in names.items()))
    print("\nHost time of a call, microseconds\n")
    print(f"torch.mm {host(lambda: torch.mm(small, square)):.1f}")
    print(f"op(a, b) {host(lambda: op(small, square)):.1f}")
    print(f"F.linear {host(lambda: F.linear(small, square)):.1f}")
    print(f"op.linear {host(lambda: op.linear(small, square)):.1f}")
    print(f"torch.mm, recording a gradient {host(lambda: torch.mm(small, grad)):.1f}")
    print(f"op(a, b), recording a gradient {host(lambda: op(small, grad)):.1f}")


if __name__ == "__main__":
    main()
