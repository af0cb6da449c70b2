#!/usr/bin/env bash
# The tiled fma kernels beside one thread per output element (fma_1x1), at the sizes of the first
# MUSA kernel's table and at squares: forward, dA and dB. On an NVIDIA GPU through the MUSA back end:
# build with tests/stand_in/mcc and STAND_IN_NVCC, build tests/musa_forward.c as libmusa.so.1, and
#   LD_LIBRARY_PATH=FOLDER-OF-IT bench/baseline.sh BUILD/tools/detgemm musa:0
# Goals: 3 times faster at 128, 8 times from 1024 on.
set -eu
if [ $# -ne 2 ]; then
  echo "usage: bench/baseline.sh TOOL DEVICE" >&2
  exit 2
fi
tool=$1 device=$2
shapes=(--shape 128x128x128 --shape 256x512x512 --shape 512x1024x1024
  --shape 1024x1024x1024 --shape 2048x2048x2048 --shape 4096x4096x4096)
for op in forward grad-a grad-b; do
  for pattern in 'fma_1x1_*' 'fma_*'; do
    echo "== $op, $pattern"
    DETGEMM_KERNEL=$pattern "$tool" bench --device "$device" --order fma --peer none --op "$op" "${shapes[@]}"
  done
done
