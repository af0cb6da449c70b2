"""The same logits with any number of ranks.

    torchrun --nproc-per-node 3 examples/tensor_parallel.py [--order tc16] [--backend nccl]
    torchrun --nproc-per-node 3 examples/tensor_parallel.py --fail hangs --timeout 10

Every rank builds the same two-layer model, splits it, and compares output and gradients with the whole
model on its own device, bit for bit. --fail shows what becomes of the others when the last rank dies,
hangs, or comes with another shape or dtype."""

from __future__ import annotations

import argparse
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

import detgemm
import detgemm.torch as dt
from detgemm.torch.parallel import ColumnParallelLinear, RowParallelLinear


def misbehave(how: str, x: torch.Tensor) -> torch.Tensor:
    """What the last rank does under --fail."""
    if how == "dies":
        os._exit(3)
    if how == "hangs":
        time.sleep(3600)
    return x.detach()[:-16] if how == "shape" else x.detach().half()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="gloo", choices=("gloo", "nccl"))
    parser.add_argument("--order", default="fma", choices=("fma", "tc16"))
    parser.add_argument("--tokens", type=int, default=600)
    parser.add_argument("--width", type=int, default=300)
    parser.add_argument("--timeout", type=float, default=60, help="seconds")
    parser.add_argument("--fail", choices=("dies", "hangs", "shape", "dtype"))
    options = parser.parse_args()
    device, bound = "cpu", None
    if options.backend == "nccl":
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
        bound = torch.device(device)
    timeout = timedelta(seconds=options.timeout)
    dist.init_process_group(options.backend, timeout=timeout, device_id=bound)
    torch.manual_seed(0)
    up = nn.Linear(options.width, 4 * options.width).to(device, torch.bfloat16)
    down = nn.Linear(4 * options.width, options.width).to(device, torch.bfloat16)
    x = torch.randn(options.tokens, options.width).to(device, torch.bfloat16).requires_grad_()
    whole = [dt.DetLinear.from_linear(layer, order=options.order) for layer in (up, down)]
    expected = whole[1](torch.relu(whole[0](x)))
    expected.sum().backward()
    gradient, x.grad = x.grad, None
    first = ColumnParallelLinear(up, order=options.order)
    second = RowParallelLinear(down, order=options.order)
    if options.fail and dist.get_rank() == dist.get_world_size() - 1:
        x = misbehave(options.fail, x)
        if options.fail == "dtype":
            first, second = first.half(), second.half()
    y = second(torch.relu(first(x)))
    y.sum().backward()
    results = {
        "output": detgemm.compare(y, expected),
        "gradient of the input": detgemm.compare(x.grad, gradient),
        "gradient of a shard": detgemm.compare(second.weight.grad, down.weight.grad[:, second.own()]),
    }
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} ranks, order {options.order}, K cut at {second.bounds}")
        for name, result in results.items():
            print(f"{name}: {result}")
    dist.barrier()
    dist.destroy_process_group()
    if not all(results.values()):
        raise SystemExit("the bits differ")


if __name__ == "__main__":
    main()
