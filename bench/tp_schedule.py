"""Simulates the schedule of a row-parallel product on many ranks, from measured times of its blocks.

python bench/tp_schedule.py                    # blocks measured on this machine's CPU, one thread
python bench/tp_schedule.py --device h200      # blocks from the rates in docs/performance.md
python bench/tp_schedule.py --check            # two real processes over gloo beside their simulation

The product is [M,N] = [M,K] [K,N] with K dealt out to R ranks. Prints Markdown tables."""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import socket
import time
from typing import Callable, NamedTuple, Optional

import torch

BF16, FP32 = 2, 4  # bytes
IN_FLIGHT = 2  # parallel._IN_FLIGHT: blocks being sent while the next is computed


class Link(NamedTuple):
    """Between any two ranks, each direction of each rank at this rate."""

    name: str
    rate: float  # bytes a second
    latency: float  # seconds


class Device(NamedTuple):
    name: str
    block: Callable[[int, int, int], float]  # seconds for rows, N, K
    links: tuple[Link, ...]
    order: str


def measured(order: str) -> Callable[[int, int, int], float]:
    """Seconds of one block on this CPU: the FP32 state continued over the rank's K."""
    from detgemm.torch import _kernels

    known: dict[tuple[int, int, int], float] = {}

    def block(rows: int, n: int, k: int) -> float:
        key = (rows, n, k)
        if key not in known:
            a, w = torch.randn(rows, k).bfloat16(), torch.randn(n, k).bfloat16()
            state = torch.zeros(rows, n)
            times = []
            end = time.perf_counter() + 0.4
            while len(times) < 4 or time.perf_counter() < end:
                begin = time.perf_counter()
                _kernels.matmul(a, w.t(), state, None, order, True)
                times.append(time.perf_counter() - begin)
            known[key] = min(times)
        return known[key]

    return block


# (rows, TFLOP/s) of tc16 for N, K = 4096, 4096 on an H200: docs/performance.md, 2026-12-03.
H200_RATES = ((128, 279), (256, 428), (512, 633), (1024, 720))
H200_LAUNCH = 4e-6  # seconds of a launch, first loads and epilogue; and of a point-to-point message


def h200(rows: int, n: int, k: int) -> float:
    """The rate of so many rows, between the ones that were measured, and a launch."""
    points = [(math.log(m), rate * 1e12) for m, rate in H200_RATES]
    x = min(max(math.log(rows), points[0][0]), points[-1][0])
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        if x0 <= x <= x1:
            return 2 * rows * n * k / (y0 + (y1 - y0) * (x - x0) / (x1 - x0)) + H200_LAUNCH
    raise AssertionError(rows)


def pipeline(ranks: int, blocks: list[float], sends: list[float], latency: float) -> list[float]:
    """When the last rank has each block, by the rules of parallel._pipeline: a block is received one
    block ahead, and no more than IN_FLIGHT sends are under way while a rank computes."""
    count = len(blocks)
    arrived = [0.0] * count
    done = arrived
    for rank in range(ranks):
        done, leaves = [0.0] * count, [0.0] * count
        link_free = 0.0
        for i in range(count):
            ready = done[i - 1] if i else 0.0
            if i > IN_FLIGHT and rank < ranks - 1:
                ready = max(ready, leaves[i - 1 - IN_FLIGHT])
            done[i] = max(ready, arrived[i]) + blocks[i]
            link_free = max(done[i], link_free) + sends[i]
            leaves[i] = link_free
        arrived = [t + latency for t in leaves]
    return done


class Schedule(NamedTuple):
    rows: int
    block: float
    send: float  # of a block's state
    whole: float  # the result on every rank
    reduced: float  # the same with a ring all-reduce in BF16
    scattered: float  # the result left scattered
    reduce_scattered: float  # the same with a ring reduce-scatter in BF16


def simulate(device: Device, link: Link, m: int, n: int, k: int, ranks: int, rows: int) -> Schedule:
    own = -(-k // ranks // 16) * 16
    sizes = [min(rows, m - i) for i in range(0, m, rows)]
    blocks = [device.block(size, n, own) for size in sizes]
    states = [FP32 * size * n / link.rate for size in sizes]
    results = [BF16 * size * n / link.rate for size in sizes]
    # Ranks between the first and the last send their states and pass the results on over one link.
    both = [s + r for s, r in zip(states, results)] if ranks > 2 else states
    whole = 0.0
    for done, result in zip(pipeline(ranks, blocks, both, link.latency), results):
        whole = max(whole, done) + result
    whole += math.ceil(math.log2(ranks)) * link.latency
    scattered = pipeline(ranks, blocks, states, link.latency)[-1] + results[-1] + link.latency
    hop = BF16 * m * n / ranks / link.rate + link.latency
    compute = min(device.block(m, n, own), sum(blocks))  # in one call or in several
    reduced = [compute + turns * (ranks - 1) * hop for turns in (2, 1)]
    return Schedule(rows, blocks[0], states[0], whole, reduced[0], scattered, reduced[1])


def table(device: Device, link: Link, m: int, n: int, k: int, degrees: list[int]) -> None:
    print(f"\n{device.name}, {device.order}, {m} x {n} x {k}, {link.name}\n")
    print("| R | K/R | blocks | block | state | whole | all-reduce | ratio | scattered | reduce-scatter | ratio |")
    print("|" + "---|" * 11)
    for ranks in degrees:
        tried = [simulate(device, link, m, n, k, ranks, rows) for rows in (64, 128, 256, 512) if rows <= m]
        best = min(tried, key=lambda schedule: schedule.whole)
        block, send, whole, reduced, scattered, halfway = (f"{1e3 * t:.3g}" for t in best[1:])
        print(
            f"| {ranks} | {k // ranks} | {-(-m // best.rows)} of {best.rows} rows | {block} | {send} | {whole} | "
            f"{reduced} | {best.whole / best.reduced:.2f} | {scattered} | {halfway} | "
            f"{best.scattered / best.reduce_scattered:.2f} |"
        )


# ---- two real ranks beside their simulation -------------------------------------------------------


def real_rank(rank: int, port: int, m: int, n: int, k: int, rows: int, pipe: object) -> None:
    from detgemm.torch import parallel

    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2
    )
    a, b = torch.randn(m, k // 2).bfloat16(), torch.randn(n, k // 2).bfloat16().t()
    x = torch.zeros(rows, n)
    sent, taken = [], []
    for _ in range(8):
        torch.distributed.barrier()
        begin = time.perf_counter()
        (torch.distributed.send if rank == 0 else torch.distributed.recv)(x, 1 - rank)
        sent.append(time.perf_counter() - begin)
        torch.distributed.barrier()
        begin = time.perf_counter()
        parallel.continued_product(a, b, order="fma", block_rows=rows)
        taken.append(time.perf_counter() - begin)
    pipe.send((min(sent), min(taken)))  # type: ignore[attr-defined]
    torch.distributed.barrier()


def check(m: int, n: int, k: int, rows: int) -> None:
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    processes = [
        context.Process(target=real_rank, args=(rank, port, m, n, k, rows, theirs)) for rank in range(2)
    ]
    for process in processes:
        process.start()
    results = [mine.recv() for _ in processes]
    for process in processes:
        process.join()
    send, taken = max(r[0] for r in results), max(r[1] for r in results)
    link = Link("loopback", FP32 * rows * n / send, 1e-4)
    device = Device("CPU", measured("fma"), (link,), "fma")
    schedule = simulate(device, link, m, n, k, 2, rows)
    print(f"two ranks, {m} x {n} x {k}, blocks of {rows} rows, loopback at {link.rate / 1e9:.2f} GB/s:")
    print(f"measured {1e3 * taken:.1f} ms, simulated {1e3 * schedule.whole:.1f} ms (best of 8)")


DEVICES = {
    "cpu": lambda: Device(
        "CPU, one thread a rank",
        measured("fma"),
        (Link("12.5 GB/s, 20 us", 12.5e9, 20e-6), Link("1.25 GB/s, 30 us", 1.25e9, 30e-6)),
        "fma",
    ),
    "h200": lambda: Device(
        "H200",
        h200,
        (Link("450 GB/s, 5 us", 450e9, 5e-6), Link("50 GB/s, 10 us", 50e9, 10e-6)),
        "tc16",
    ),
}


def main(arguments: Optional[list[str]] = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8, 16, 64])
    parser.add_argument("--shape", type=int, nargs=3, default=[4096, 4096, 12288], metavar=("M", "N", "K"))
    parser.add_argument("--rate", type=float, help="the link's GB/s")
    parser.add_argument("--latency", type=float, default=10, help="with --rate: microseconds")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.check:
        check(1024, 1024, 4096, 128)
        return
    device = DEVICES[options.device]()
    links = device.links
    if options.rate:
        name = f"{options.rate:g} GB/s, {options.latency:g} us"
        links = (Link(name, options.rate * 1e9, options.latency * 1e-6),)
    print("Milliseconds. whole, scattered: the pipeline with the result on every rank, and left scattered.")
    for link in links:
        table(device, link, *options.shape, options.ranks)


if __name__ == "__main__":
    main()
