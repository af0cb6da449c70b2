"""The examples of several ranks, started by torchrun as their users do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def torchrun(ranks, name, *arguments):
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={ranks}",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [*command, str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        env=environment,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_data_parallel():
    status, output = torchrun(2, "data_parallel.py", "--steps", "3", "--order", "tc16")
    assert status == 0, output
    assert output.count("weights the same bits") == 3, output


def test_tensor_parallel_with_a_rank_of_another_shape():
    status, output = torchrun(2, "tensor_parallel.py", "--fail", "shape", "--timeout", "20")
    assert status != 0
    assert "rank 1 came with" in output, output
