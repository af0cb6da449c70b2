#!/usr/bin/env bash
# Every OpenCL kernel in the simulator oclgrind, which watches for data races in block memory and for
# accesses out of bounds: under_oclgrind.sh OPENCL_KERNELS (tests/opencl_kernels.c). Its own check for
# uninitialised memory does not know LLVM's freeze instruction.
set -u
driver=
for file in /usr/lib/oclgrind/liboclgrind-rt-icd.so /usr/lib/*/oclgrind/liboclgrind-rt-icd.so; do
  [ -e "$file" ] && driver=$file
done
[ -n "$driver" ] || { echo "oclgrind is not installed" && exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/vendors"
echo "$driver" >"$work/vendors/oclgrind.icd"
OCL_ICD_VENDORS=$work/vendors/ OCLGRIND_DATA_RACES=1 OCLGRIND_LOCAL_MEM_SIZE=65536 OCLGRIND_NUM_THREADS=1 \
  "$1" 2>"$work/complaints"
status=$?
grep -v '^[0-9]* warnings\? generated\.$' "$work/complaints" | head -n 40 >"$work/serious"
[ -s "$work/serious" ] && cat "$work/serious" && exit 1
exit $status
