"""Inputs that several tests use."""

import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest

VECTORS = Path(__file__).resolve().parents[2] / "tests" / "vectors"
NUMPY = {"BF16": np.uint16, "F16": np.float16, "F32": np.float32, "U16": np.uint16}


def read_safetensors(path):
    """The tensors of a file, BF16 as bits, and the metadata."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        flat = np.frombuffer(data[begin:end], NUMPY[entry["dtype"]])
        tensors[name] = flat.reshape(entry["shape"])
    return tensors, metadata


def vector_files(*patterns):
    files = [path for pattern in patterns for path in sorted(VECTORS.glob(pattern))]
    return [pytest.param(path, id=path.stem) for path in files]


@pytest.fixture(autouse=True)
def _fresh_default_order():
    """Every test begins without a chosen default order."""
    import detgemm

    os.environ.pop("DETGEMM_ORDER", None)
    detgemm.set_default_order(None)
    yield
    detgemm.set_default_order(None)


def bf16_bits(shape, seed=0, wild=False):
    """BF16 bits of normal numbers, or any bits at all."""
    random = np.random.default_rng(seed)
    if wild:
        return random.integers(0, 1 << 16, shape, dtype=np.uint16)
    values = random.standard_normal(shape).astype(np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16)
