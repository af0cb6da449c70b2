"""The same training run whichever rank has which micro-batch.

    torchrun --nproc-per-node 3 examples/data_parallel.py [--order tc16] [--backend nccl]

A small model is trained under DistributedDataParallel three times: micro-batches dealt out in a row, in
turns, and all to the last rank. Losses and weights must be equal, bit for bit."""

from __future__ import annotations

import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

import detgemm
import detgemm.torch as dt
from detgemm.torch.parallel import OrderedReduction, ordered_sum

MICRO_BATCHES, TOKENS, WIDTH = 12, 16, 64


def train(order: str, device: str, owners: list[int], steps: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The losses of the micro-batches of the last step, and all weights."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, 1))
    model = nn.parallel.DistributedDataParallel(dt.convert(layers, order=order).model.to(device))
    reduction = OrderedReduction(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    own = [i for i, owner in enumerate(owners) if owner == dist.get_rank()]
    losses = torch.zeros(MICRO_BATCHES, device=device)
    for step in range(steps):
        optimizer.zero_grad()
        for i in own or [None]:  # a rank without micro-batches takes part all the same
            generator = torch.Generator().manual_seed(step * MICRO_BATCHES + (i or 0))
            x = torch.randn(TOKENS, WIDTH, generator=generator).to(device)
            with (
                reduction.micro_batch(i, last=i is None or i == own[-1]),
                torch.autocast(device.partition(":")[0], torch.bfloat16),
            ):
                loss = (model(x).float() - x.sum(1, keepdim=True).tanh()).square().mean()
                loss.backward()
            if i is not None and step == steps - 1:
                losses[i] = loss.detach()
        optimizer.step()
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    return ordered_sum([losses]), weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="gloo", choices=("gloo", "nccl"))
    parser.add_argument("--order", default="fma", choices=("fma", "tc16"))
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    device, bound = "cpu", None
    if options.backend == "nccl":
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
        bound = torch.device(device)
    dist.init_process_group(options.backend, timeout=timedelta(seconds=60), device_id=bound)
    ranks = dist.get_world_size()
    dealt = {
        "in a row": [i * ranks // MICRO_BATCHES for i in range(MICRO_BATCHES)],
        "in turns": [i % ranks for i in range(MICRO_BATCHES)],
        "all to the last": [ranks - 1] * MICRO_BATCHES,
    }
    results = {how: train(options.order, device, owners, options.steps) for how, owners in dealt.items()}
    losses, weights = results["in a row"]
    equal = True
    for how, (x, y) in results.items():
        comparisons = detgemm.compare(x, losses), detgemm.compare(y, weights)
        equal = equal and all(comparisons)
        if dist.get_rank() == 0:
            print(f"{ranks} ranks, {how}: losses {comparisons[0]}; weights {comparisons[1]}")
    dist.barrier()
    dist.destroy_process_group()
    if not equal:
        raise SystemExit("the bits differ")


if __name__ == "__main__":
    main()
