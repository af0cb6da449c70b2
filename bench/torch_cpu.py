"""Times libdetgemm's fma order on the CPU beside torch.mm in FP32 (MKL on x86), in turns.

usage: torch_cpu.py LIBDETGEMM.so [THREADS...]
"""

import ctypes
import statistics
import sys
import time

import torch

BF16, FMA = 1, 1
SQUARES = [(n, n, n) for n in (1024, 2048, 4096)]
LAYERS = [
    (m, n, k)
    for n, k in ((4096, 4096), (12288, 4096), (4096, 12288))
    for m in (1, 16, 256)
]


class View(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p)] + [
        (name, ctypes.c_int64)
        for name in ("rows", "cols", "row_stride", "col_stride", "batch_stride")
    ] + [("dtype", ctypes.c_int)]


def view(tensor, dtype):
    return View(tensor.data_ptr(), *tensor.shape, *tensor.stride(), 0, dtype)


def median_in_turns(calls, seconds):
    """The median time of each call; the calls take turns."""
    times = [[] for _ in calls]
    end = time.perf_counter() + seconds
    turn = 0
    while turn < 3 or (time.perf_counter() < end and turn < 100):
        for call, record in zip(calls, times):
            begin = time.perf_counter()
            call(turn)
            record.append(time.perf_counter() - begin)
        turn += 1
    return [statistics.median(record[1:]) for record in times]


def main():
    lib = ctypes.CDLL(sys.argv[1])
    lib.dg_forward.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, View, View, View]
    device = ctypes.c_void_p()
    assert lib.dg_device_open(b"cpu", ctypes.byref(device)) == 0
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads by default")
    print(f"{'M x N x K':24} {'threads':>7} {'fma us':>10} {'torch us':>10} {'GFLOP/s':>9} {'x torch':>8}")
    for threads in map(int, sys.argv[2:] or ["1"]):
        torch.set_num_threads(threads)
        lib.dg_device_set_threads(device, threads)
        for m, n, k in SQUARES + LAYERS:
            if threads == 1 and m * n * k > 1 << 33:
                continue
            copies = max(1, (128 << 20) // (2 * n * k)) if m <= 64 else 1
            a = torch.randn(m, k).bfloat16()
            first = torch.randn(n, k).bfloat16()
            w = [first.clone() for _ in range(copies)]
            wide_a, wide_w = a.float(), [x.float() for x in w]
            out, wide_out = torch.empty(m, n).bfloat16(), torch.empty(m, n)

            def ours(turn):
                status = lib.dg_forward(device, None, FMA, view(a, BF16),
                                        view(w[turn % copies].t(), BF16), view(out, BF16))
                assert status == 0

            def theirs(turn):
                torch.mm(wide_a, wide_w[turn % copies].t(), out=wide_out)

            mine, peer = median_in_turns([ours, theirs], 0.3)
            rate = 2e-9 * m * n * k / mine
            print(f"{m} x {n} x {k:<12} {threads:7} {1e6 * mine:10.0f} {1e6 * peer:10.0f} "
                  f"{rate:9.1f} {peer / mine:8.2f}", flush=True)


main()
