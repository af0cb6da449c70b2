"""compare, verify, info and the command line."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from conftest import bf16_bits

import detgemm
from detgemm import _core
from detgemm.__main__ import main


def test_compare_counts_and_measures():
    x = np.ones((3, 4), np.float32)
    y = x.copy()
    assert detgemm.compare(x, y)
    y[1, 2] = np.nextafter(y[1, 2], 2, dtype=np.float32)
    y[2, 3] = np.float32(-0.0)
    found = detgemm.compare(x, y)
    assert (found.different, found.first, found.worst) == (2, (1, 2), (2, 3))
    assert found.max_ulp == 0x3F800000
    assert found.bits == ("3f800000", "3f800001")


def test_compare_looks_at_bits():
    zero = np.zeros(2, np.float32)
    assert not detgemm.compare(zero, -zero)
    nan = np.array([np.nan], np.float32)
    assert detgemm.compare(nan, nan)
    assert detgemm.compare(nan, zero[:1]).max_ulp is None
    with pytest.raises(TypeError):
        detgemm.compare(zero, zero.astype(np.float16))
    with pytest.raises(ValueError, match="shape"):
        detgemm.compare(zero, zero[:1])


def test_verify_finds_every_kernel_right():
    found = detgemm.verify("cpu")
    assert found, str(found)
    assert {check.order for check in found.checks if check.products} == {"fma", "tc16"}
    assert "DETGEMM_KERNEL" not in os.environ


def test_info_says_what_is_there_and_what_is_not():
    found = detgemm.info()
    assert found["version"] == detgemm.__version__
    cpu = found["devices"][0]
    assert cpu["name"] == "cpu"
    assert cpu["available"]
    for device in found["devices"]:
        assert device["available"] or device["reason"]


def test_command_line(tmp_path, capsys):
    assert main(["info", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["default_order"] == "fma"
    assert main([]) == 0
    assert "cpu" in capsys.readouterr().out
    x, y = tmp_path / "x.npy", tmp_path / "y.npy"
    np.save(x, bf16_bits((3, 3)))
    np.save(y, bf16_bits((3, 3), 1))
    assert main(["compare", str(x), str(x)]) == 0
    assert main(["compare", str(x), str(y)]) == 1
    assert main(["compare", str(x), str(tmp_path / "none.npy")]) == 2
    run = subprocess.run([sys.executable, "-m", "detgemm", "--version"], capture_output=True, check=True)
    assert run.stdout.decode().strip() == f"detgemm {detgemm.__version__}"


def test_core_refuses_wrong_arguments():
    device = _core.Device("cpu")
    with pytest.raises(TypeError, match="8 arguments"):
        device.gemm(1, 1, 0)
    with pytest.raises(TypeError, match="a must be None or a tuple"):
        device.gemm(1, 1, 0, 5, None, None, None, None)
    with pytest.raises(ValueError, match="names no back end"):
        _core.Device("gpu")
    with pytest.raises(TypeError):
        _core.Device(3)
    with pytest.raises(ValueError, match="threads"):
        device.set_threads(-3)


FORK = """
import os, sys
import numpy as np
import detgemm

random = np.random.default_rng(0)
a = random.integers(0, 1 << 16, (300, 200), dtype=np.uint16)
expected = detgemm.matmul(a, a.T).tobytes()
child = os.fork()
if child == 0:
    os._exit(0 if detgemm.matmul(a, a.T).tobytes() == expected else 3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_forked_child_computes_the_same():
    """The pool of OpenMP threads does not survive a fork; the child must not wait for it."""
    environment = {**os.environ, "OMP_NUM_THREADS": "4"}
    run = subprocess.run([sys.executable, "-c", FORK], env=environment, timeout=60, check=False)
    assert run.returncode == 0
