#!/usr/bin/env bash
# All that must be seen on a GPU, in one command of under nine minutes:
#   bench/device.sh FOLDER REPORT [DEVICE]
# FOLDER is what bench/pack.sh made, or a build directory; nothing is built. Each step has its own
# time limit and its own files in REPORT, and what a step finds or misses stops none of the others.
# summary.txt has a line a step. DETGEMM_DEVICE_SECONDS: the limit of all steps together.
set -u
if [ $# -lt 2 ]; then
  echo "usage: bench/device.sh FOLDER REPORT [DEVICE]" >&2
  exit 2
fi
folder=$1 report=$2 device=${3:-cuda:0}
whole=${DETGEMM_DEVICE_SECONDS:-535}
mkdir -p "$report"
: >"$report/summary.txt"

# place PROGRAM: the command line of a program of the folder, packed or just built.
place() {
  if [ -x "$folder/run" ]; then command_line=("$folder/run" "$1")
  elif [ -x "$folder/tools/$1" ]; then command_line=("$folder/tools/$1")
  else command_line=("$folder/tests/$1"); fi
}

# step NAME SECONDS PROGRAM ARGUMENT...: one step, ended when its time or the whole time is over.
failed=0 wrapper=()
step() {
  local name=$1 limit=$2 begin=$SECONDS status left=$((whole - SECONDS))
  shift 2
  if [ "$left" -lt 5 ]; then
    echo "$name: not run, the time is over" | tee -a "$report/summary.txt"
    failed=1
    return
  fi
  [ "$limit" -lt "$left" ] || limit=$left
  place "$1"
  shift
  timeout -k 5 "$limit" ${wrapper[@]+"${wrapper[@]}"} "${command_line[@]}" "$@" \
    >"$report/$name.txt" 2>"$report/$name.err"
  status=$?
  grep -q '^skipped everything' "$report/$name.txt" && status=77
  [ "$status" -eq 0 ] || failed=1
  case $status in
    0) status=good ;;
    77) status="nothing was run" ;;
    124 | 137) status="cut off after $limit s" ;;
    *) status="exit status $status" ;;
  esac
  echo "$name: $status, $((SECONDS - begin)) s" | tee -a "$report/summary.txt"
}

{ nvidia-smi; uname -a; date; } >"$report/machine.txt" 2>&1

# What opening takes and what a call costs the calling thread.
step info 30 detgemm info --device "$device"
step call_cost 30 call_cost "$device"

# Bits: every kernel forced in turn, and the planner; streams, graphs, threads, contexts, 1000
# repeats on two streams under load; deep, wide and large products in samples.
step verify 90 detgemm verify --quick --device "$device"
step repeats 60 test_gpu_device --repeats 1000
printf '%s\n' 64,96,32768 1,151936,1024 40,151936,128 >"$report/deep.csv"
step deep 60 detgemm verify --quick --device "$device" --shapes "$report/deep.csv"
echo 46400,46400,16 >"$report/large.csv"
for kernel in tc16_128x256 tc16_copy128x128 fma_128x128; do
  step "large_$kernel" 25 detgemm verify --quick --device "$device" --kernel "${kernel}_*" \
    --shapes "$report/large.csv"
done

# Speed, by the planner's choice. A table is written when it is complete, so there are several.
for op in nt forward grad-a grad-b; do
  step "bench_tc16_$op" 100 detgemm bench --device "$device" --order tc16 --op "$op" \
    --peer cublas --json
done
step bench_fma 80 detgemm bench --device "$device" --order fma --peer cublas --json

# compute-sanitizer on small odd shapes, for as long as there is time.
PATH=$PATH:/usr/local/cuda/bin
if command -v compute-sanitizer >/dev/null; then
  for check in memcheck racecheck initcheck; do
    wrapper=(compute-sanitizer --target-processes all --tool "$check" --error-exitcode 9)
    [ "$check" = memcheck ] && wrapper+=(--leak-check no)
    step "$check" 60 test_gpu_device --sweep
  done
else
  echo "memcheck, racecheck, initcheck: not run, there is no compute-sanitizer" |
    tee -a "$report/summary.txt"
fi

wrapper=()
for table in bench_tc16_nt bench_fma; do
  [ -s "$report/$table.txt" ] &&
    step "chart_$table" 10 detgemm bench --from "$report/$table.txt" --svg "$report/$table.svg"
done
echo "$SECONDS s in all; the report is in $report"
exit $failed
