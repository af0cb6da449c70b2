#!/usr/bin/env bash
# Runs the examples of several ranks, in both orders, and ends with an error where bits differ.
#
#   examples/scale.sh                # gloo, 2, 3 and 4 processes on this machine's CPU
#   examples/scale.sh nccl           # NCCL, every number of this machine's GPUs from 1
#   examples/scale.sh nccl 8         # NCCL, 8 GPUs
set -eu
cd "$(dirname "$0")"
backend=${1:-gloo}
python=${PYTHON:-python3}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
if [ $# -ge 2 ]; then
  degrees=$2
elif [ "$backend" = nccl ]; then
  degrees=$(seq "$("$python" -c 'import torch; print(torch.cuda.device_count())')")
else
  degrees="2 3 4"
fi
[ -n "$degrees" ] || { echo "PyTorch sees no GPU" && exit 1; }
for ranks in $degrees; do
  for order in fma tc16; do
    for example in tensor_parallel data_parallel; do
      "$python" -m torch.distributed.run --standalone --nproc-per-node "$ranks" "$example.py" \
        --backend "$backend" --order "$order"
    done
  done
done
