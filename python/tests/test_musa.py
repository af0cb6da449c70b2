"""MUSA without its hardware: a stand-in for torch_musa under the name it gives PrivateUse1, in a process
of its own, since a name can be given only once."""

import subprocess
import sys

import pytest

pytest.importorskip("torch")

STAND_IN = """
import types
import torch

calls = []
torch.utils.rename_privateuse1_backend("musa")
stream = types.SimpleNamespace(musa_stream=0x1234)

def current_stream(index):
    calls.append(index)
    return stream

torch.musa = types.SimpleNamespace(is_available=lambda: True, current_stream=current_stream)

import detgemm.torch as dt
from types import SimpleNamespace
from detgemm import _core, _devices, registry
from detgemm.torch import _det_gemm_op, _kernels

device = torch.device("musa", 1)
assert device.type in ("musa", "privateuseone")
assert _kernels.platform_of(device) == "musa"
assert _kernels.name_of(device) == "musa:1"

opened = []
real = _devices.handle
handles = []

def handle(name, threads=0):  # the CPU stands in for the GPU's computing
    opened.append(name)
    handles.append(real("cpu", threads))
    return handles[-1]

_devices.handle = handle
there = SimpleNamespace(is_cpu=False, is_cuda=False, device=device, get_device=lambda: 1)
found, used = _kernels.target(there)
assert opened == ["musa:1"] and calls == [1] and used == 0x1234
found, used = _kernels.target(there)
assert found is handles[0]
assert calls == [1, 1] and used == 0x1234, "the stream is asked for at every call"

op = registry.get_op("det_gemm", device="musa")
assert type(op) is dt.MusaDetGemmOp
assert type(registry.get_op("det_gemm", device=device)) is dt.MusaDetGemmOp
try:
    op(torch.zeros(2, 3), torch.zeros(3, 2))
except ValueError as error:
    assert "takes tensors on musa; one is on cpu" in str(error)
else:
    raise AssertionError("a CPU tensor was taken")

# The kernel's Python, on a tensor that says it lies on the device.
class Elsewhere(torch.Tensor):
    @property
    def device(self):
        return device

    is_cpu = property(lambda self: False)

    def get_device(self):
        return 1

a = torch.ones(2, 3, dtype=torch.bfloat16).as_subclass(Elsewhere)
b = torch.ones(3, 4, dtype=torch.bfloat16).as_subclass(Elsewhere)
plain = torch.ones(2, 3, dtype=torch.bfloat16) @ torch.ones(3, 4, dtype=torch.bfloat16)
assert torch.equal(_kernels.matmul(a, b, None, None, "fma", False).as_subclass(torch.Tensor), plain)
assert calls == [1, 1, 1]

for key in ("PrivateUse1",):
    assert torch._C._dispatch_has_kernel_for_dispatch_key("detgemm::linear", key)
with dt.deterministic_mode("fma"):
    x = torch.ones(2, 2, dtype=torch.bfloat16)
    assert (x @ x).tolist() == [[2, 2], [2, 2]]
print("good")
"""

WITHOUT = """
import torch
import detgemm.torch as dt
from detgemm import registry

assert not hasattr(torch, "musa")
assert "torch_musa" in dt.MusaDetGemmOp.unavailable()
assert "musa" in registry.describe()
print("good")
"""


@pytest.mark.parametrize("script", [STAND_IN, WITHOUT], ids=["stand-in", "absent"])
def test_musa(script):
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.stdout.strip() == "good", run.stderr
