#!/usr/bin/env bash
# The tiled fma kernels beside one thread per output element (fma_1x1), as the first MUSA kernel did
# it: forward, dA, dB, and their sum, at the sizes of that kernel's table and at squares. Prints the
# table of docs/performance.md. On an NVIDIA GPU through the MUSA back end: build with tests/stand_in
# first in PATH, STAND_IN_NVCC="nvcc -arch=sm_90" and -DDETGEMM_MUSA=ON, build tests/musa_forward.c as
# libmusa.so.1, and
#   LD_LIBRARY_PATH=FOLDER-OF-IT bench/baseline.sh BUILD/tools/detgemm musa:0
# More shapes, M x N x K, may follow. Goals: 3 times faster at 128 cubed, 8 times from 1024 cubed on.
set -eu
if [ $# -lt 2 ]; then
  echo "usage: bench/baseline.sh TOOL DEVICE [MxNxK]..." >&2
  exit 2
fi
tool=$1 device=$2
shift 2
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
shapes=()
for shape in 128x128x128 256x512x512 512x1024x1024 1024x1024x1024 2048x2048x2048 "$@"; do
  shapes+=(--shape "$shape")
done
for op in forward grad-a grad-b; do
  for kernel in 1x1 tiled; do
    pattern='fma_*'
    [ "$kernel" = 1x1 ] && pattern='fma_1x1_*'
    DETGEMM_KERNEL=$pattern "$tool" bench --json --device "$device" --order fma --peer none --op "$op" \
      "${shapes[@]}" >"$results/$op.$kernel"
  done
done
python3 - "$results" <<'EOF'
import json, sys
def read(op, kernel):
    with open(f"{sys.argv[1]}/{op}.{kernel}") as file:
        return {(r["m"], r["k"], r["n"]): r for r in json.load(file)["rows"]}
ops = ["forward", "grad-a", "grad-b"]
runs = {(op, kernel): read(op, kernel) for op in ops for kernel in ["1x1", "tiled"]}
print("| M x K x N | | one thread per output, us | tiled, us | times faster | TFLOP/s | kernels |")
print("|---|---|---|---|---|---|---|")
for shape in runs["forward", "1x1"]:
    for name, parts in [(op, [op]) for op in ops] + [("forward + backward", ops)]:
        naive, tiled = ([runs[op, kernel][shape] for op in parts] for kernel in ["1x1", "tiled"])
        slow, fast = (1e6 * sum(r["seconds"] for r in rows) for rows in (naive, tiled))
        m, k, n = shape
        kernels = ", ".join(sorted({r["kernel"] for r in tiled}))
        print(f"| {m} x {k} x {n} | {name} | {slow:.1f} | {fast:.1f} | {slow / fast:.1f} | "
              f"{2e-6 * m * k * n * len(parts) / fast:.2f} | {kernels} |")
EOF
