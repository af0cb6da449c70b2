"""Reinforcement learning in which rollout and training agree to the last bit.

    python examples/grpo_tiny.py [--device cuda] [--dtype bfloat16 --order tc16] [--plot FILE.png]

A small transformer learns, by a policy gradient with group-relative advantages (GRPO), to continue a
sequence by counting on. At rollout it decodes one token at a time, in batches of varying size, with
a key-value cache; in training the log-probabilities of the same tokens are recomputed from whole
sequences in one batch. With PyTorch's products the two differ, and so ratios that should be 1 are
not. With detgemm's they are equal bit for bit. Both are run; the table and the plot show the
mismatch and the share of clipped ratios at every step.

The other operators are chosen so that a row does not depend on how many there are: attention rows
keep their length by a cache of fixed size, and the activation is ReLU."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import detgemm.torch as dt

VOCABULARY, LENGTH, PROMPT, WIDTH, HEADS, LAYERS = 16, 16, 4, 64, 4, 2
GROUPS, GROUP, CLIP, UPDATES = 8, 8, 0.2, 2


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor, cache: Tensor, at: slice) -> Tensor:
        """x holds the tokens of positions `at`; cache[2, B, H, LENGTH, D] all keys and values."""
        heads = self.qkv(self.before(x)).unflatten(-1, (3 * HEADS, -1)).transpose(1, 2)
        q, k, v = heads.chunk(3, dim=1)
        cache = torch.cat((cache[..., : at.start, :], torch.stack((k, v)), cache[..., at.stop :, :]), -2)
        scores = q @ cache[0].transpose(-1, -2) / (WIDTH // HEADS) ** 0.5
        positions = torch.arange(LENGTH, device=x.device)
        scores = scores.masked_fill(positions > positions[at, None], float("-inf"))
        mixed = (torch.softmax(scores, -1) @ cache[1]).transpose(1, 2).flatten(2)
        x = x + self.mix(mixed)
        self.cache = cache
        return x + self.down(torch.relu(self.up(self.after(x))))


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor, caches: list[Tensor], start: int) -> tuple[Tensor, list[Tensor]]:
        """Log-probabilities after each token, and the caches with the tokens in."""
        at = slice(start, start + tokens.shape[1])
        x = self.token(tokens) + self.position.weight[at]
        after = []
        for block, cache in zip(self.blocks, caches):
            x = block(x, cache, at)
            after.append(block.cache)
        return F.log_softmax(self.head(self.norm(x)).float(), -1), after

    def empty(self, batch: int) -> list[Tensor]:
        shape = (2, batch, HEADS, LENGTH, WIDTH // HEADS)
        return [self.head.weight.new_zeros(shape) for _ in self.blocks]


@torch.no_grad()
def rollout(policy: Policy, prompts: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Tokens, and the log-probability each was drawn with. Sequences are decoded in batches of
    random size, as a server would."""
    sequences, drawn, begin = [], [], 0
    while begin < len(prompts):
        size = int(torch.randint(1, 24, (), generator=generator))
        tokens = prompts[begin : begin + size]
        begin += size
        caches, chosen = policy.empty(len(tokens)), []
        for i in range(LENGTH - 1):
            logs, caches = policy(tokens[:, i : i + 1], caches, i)
            if i < PROMPT - 1:
                continue
            uniform = torch.rand(len(tokens), VOCABULARY, generator=generator).to(logs.device)
            picked = (logs[:, 0] - torch.log(-torch.log(uniform))).argmax(-1, keepdim=True)
            chosen.append(logs[:, 0].gather(-1, picked))
            tokens = torch.cat((tokens, picked), 1)
        sequences.append(tokens)
        drawn.append(torch.cat(chosen, 1))
    return torch.cat(sequences), torch.cat(drawn)


def recompute(policy: Policy, sequences: Tensor) -> Tensor:
    """The log-probabilities of the same tokens, from whole sequences in one batch."""
    logs, _ = policy(sequences[:, :-1], policy.empty(len(sequences)), 0)
    return logs.gather(-1, sequences[:, 1:, None])[:, PROMPT - 1 :, 0]


def rewards(sequences: Tensor) -> Tensor:
    """The share of tokens that count on from the one before."""
    right = (sequences[:, PROMPT:] - sequences[:, PROMPT - 1 : -1]) % VOCABULARY == 1
    return right.float().mean(1)


@dataclass
class History:
    reward: list[float] = field(default_factory=list)
    different: list[int] = field(default_factory=list)  # log-probabilities whose bits differ
    distance: list[float] = field(default_factory=list)
    clipped: list[float] = field(default_factory=list)  # share of ratios outside, first update
    unequal: list[float] = field(default_factory=list)  # share of ratios other than 1, first update


def train(options: argparse.Namespace, ours: bool) -> History:
    torch.manual_seed(0)
    dtype = getattr(torch, options.dtype)
    policy = Policy().to(options.device, dtype)
    optimizer = torch.optim.Adam(policy.parameters(), lr=options.rate)
    generator = torch.Generator().manual_seed(1)
    history = History()
    with dt.deterministic_mode(options.order, enabled=ours, dtypes=(dtype,)):
        for _ in range(options.steps):
            first = torch.randint(0, VOCABULARY, (GROUPS, 1), generator=generator)
            prompts = (first + torch.arange(PROMPT)) % VOCABULARY
            prompts = prompts.repeat_interleave(GROUP, 0).to(options.device)
            sequences, old = rollout(policy, prompts, generator)
            reward = rewards(sequences)
            grouped = reward.view(GROUPS, GROUP)
            advantage = (grouped - grouped.mean(1, keepdim=True)) / (grouped.std(1, keepdim=True) + 1e-4)
            for update in range(UPDATES):
                new = recompute(policy, sequences)
                ratio = torch.exp(new - old)
                if update == 0:
                    history.reward.append(float(reward.mean()))
                    history.different.append(int((new != old).sum()))
                    history.distance.append(float((new - old).detach().abs().max()))
                    history.unequal.append(float((ratio != 1).float().mean()))
                    outside = (ratio < options.low) | (ratio > options.high)
                    history.clipped.append(float(outside.float().mean()))
                weight = advantage.view(-1, 1)
                loss = -torch.min(ratio * weight, ratio.clamp(1 - CLIP, 1 + CLIP) * weight).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return history


def plot(histories: dict[str, History], path: Path, title: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 3.4), constrained_layout=True)
    panels = (
        ("distance", "largest |log p(train) - log p(rollout)|"),
        ("unequal", "share of ratios other than 1"),
        ("reward", "reward"),
    )
    for axis, (name, label) in zip(axes, panels):
        for (who, history), color in zip(histories.items(), ("tab:red", "tab:blue")):
            axis.plot(getattr(history, name), label=who, color=color)
        axis.set_xlabel("step")
        axis.set_title(label, fontsize=10)
    axes[0].legend(frameon=False)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--order", default="fma", choices=("fma", "tc16"))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--low", type=float, default=0.9, help="ratios below count as clipped")
    parser.add_argument("--high", type=float, default=1.1)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--threads", type=int, default=1, help="the products are tiny")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    histories = {"torch": train(options, False), f"detgemm ({options.order})": train(options, True)}
    total = options.steps * GROUPS * GROUP * (LENGTH - PROMPT)
    print(f"torch {torch.__version__} on {options.device}, {options.dtype}, {options.steps} steps\n")
    print(
        "| products | log-probabilities that differ | largest difference | ratios other than 1 "
        f"| ratios outside [{options.low}, {options.high}] | reward first, last |"
    )
    print("|---|---|---|---|---|---|")
    for name, h in histories.items():
        print(
            f"| {name} | {sum(h.different)} of {total} | {max(h.distance):.2g} | "
            f"{sum(h.unequal) / len(h.unequal):.1%} | {sum(h.clipped) / len(h.clipped):.2%} | "
            f"{h.reward[0]:.2f}, {h.reward[-1]:.2f} |"
        )
    if options.plot:
        plot(histories, options.plot, f"{options.dtype} on {options.device}")
    if sum(histories[f"detgemm ({options.order})"].different):
        raise SystemExit(
            "rollout and training differ: an operator besides the products depends on the batch"
        )


if __name__ == "__main__":
    main()
