#!/usr/bin/env bash
# What the build does with each variable that users of MUSA and HIP know, with a stand-in for mcc
# that records its arguments, and what a clang of mcc's kind makes of the portable kernels.
# usage: gpu_builds.sh; ends with "N passed, N failed, N skipped".
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0
export STAND_IN_LOG=$work/log
unset MUSA_HOME MUSA_PATH TORCH_MUSA_ARCH_LIST FORCE_MUSA FORCE_HIP PYTORCH_ROCM_ARCH ROCM_PATH
mkdir -p "$work/sdk/bin" "$work/other/bin"
for sdk in sdk other; do ln -s "$PWD/tests/stand_in/mcc" "$work/$sdk/bin/mcc"; done
ln -s "$PWD/tests/stand_in/include" "$work/sdk/bin/include"

# configure VARIABLE=VALUE... [OPTION...]: into a new folder; what it said is in $work/said.
configure() {
  local argument settings=() options=()
  for argument in "$@"; do
    if [[ $argument == -D* ]]; then options+=("$argument"); else settings+=("$argument"); fi
  done
  rm -rf "$work/build"
  env "${settings[@]}" cmake -S . -B "$work/build" -G Ninja -DDETGEMM_CUDA=OFF -DDETGEMM_HIP=OFF \
    -DDETGEMM_OPENMP=OFF -DDETGEMM_TOOL=OFF -DBUILD_TESTING=OFF "${options[@]}" >"$work/said" 2>&1
}

result() { # NAME STATUS
  if [ "$2" -eq 0 ]; then
    passed=$((passed + 1))
  else
    echo "failed: $1" && failed=$((failed + 1)) && tail -n 20 "$work/said"
  fi
}

# says TEXT: the message, which CMake wraps.
says() { tr -s '\n ' ' ' <"$work/said" | grep -qF -- "$1"; }

# accepts NAME TEXT ...: configures and says TEXT. refuses: does not configure and says it.
accepts() {
  local name=$1 text=$2
  shift 2
  configure "$@" && says "$text"
  result "$name" $?
}
refuses() {
  local name=$1 text=$2
  shift 2
  ! configure "$@" && says "$text"
  result "$name" $?
}

mcc=-DDETGEMM_MCC=$work/sdk/bin/mcc

# ---- MUSA ----
accepts "AUTO without mcc builds none" "MUSA kernels: none, mcc was not found"
refuses "ON without mcc" "mcc was not found. Install the MUSA SDK and set MUSA_HOME" -DDETGEMM_MUSA=ON
refuses "FORCE_MUSA=1 without mcc" "without FORCE_MUSA=1" FORCE_MUSA=1
refuses "FORCE_MUSA=1 is more than OFF" "mcc was not found" FORCE_MUSA=1 -DDETGEMM_MUSA=OFF
accepts "FORCE_MUSA=0 forces nothing" "none, mcc was not found" FORCE_MUSA=0
accepts "MUSA_HOME" "with $work/sdk/bin/mcc for mp_21;22;31" MUSA_HOME="$work/sdk"
accepts "MUSA_PATH" "with $work/other/bin/mcc" MUSA_PATH="$work/other"
accepts "MUSA_HOME comes before MUSA_PATH" "with $work/sdk/bin/mcc" MUSA_HOME="$work/sdk" MUSA_PATH="$work/other"
accepts "mcc in PATH" "with $work/other/bin/mcc" PATH="$work/other/bin:$PATH"
accepts "MUSA_HOME comes before PATH" "with $work/sdk/bin/mcc" MUSA_HOME="$work/sdk" PATH="$work/other/bin:$PATH"
accepts "AUTO with mcc builds" "with $work/sdk/bin/mcc" "$mcc" -DDETGEMM_MUSA=AUTO
configure "$mcc" -DDETGEMM_MUSA=OFF && ! says "MUSA kernels"
result "OFF with mcc builds none" $?
accepts "TORCH_MUSA_ARCH_LIST" "for mp_22;31" TORCH_MUSA_ARCH_LIST="22;31" "$mcc"
accepts "TORCH_MUSA_ARCH_LIST with blanks" "for mp_21;31" TORCH_MUSA_ARCH_LIST="21 31" "$mcc"
accepts "DETGEMM_MUSA_ARCHS is more" "for mp_22" TORCH_MUSA_ARCH_LIST="31" "$mcc" -DDETGEMM_MUSA_ARCHS=22
refuses "an architecture of another kind" "\"sm_90\" is not two digits such as 31" TORCH_MUSA_ARCH_LIST="31;sm_90" "$mcc"
refuses "no architecture" "DETGEMM_MUSA_ARCHS is empty" "$mcc" -DDETGEMM_MUSA_ARCHS=

# The image: no device, no list of architectures, all of them and the arithmetic's flags.
accepts "FORCE_MUSA=1 with mcc" "for mp_21;22;31" FORCE_MUSA=1 MUSA_HOME="$work/sdk"
command -v clang++ >/dev/null && export STAND_IN_CLANG=clang++
ninja -C "$work/build" musa/fma.bundle >"$work/said" 2>&1
result "mcc's image" $?
arguments=" $(cat "$STAND_IN_LOG") "
for flag in "-x musa" -mtgpu --cuda-device-only --offload-arch=mp_21 --offload-arch=mp_22 \
  --offload-arch=mp_31 -ffp-contract=off; do
  [[ $arguments == *" $flag "* ]]
  result "mcc gets $flag" $?
done
! [[ $arguments =~ fast|flush|unsafe ]]
result "mcc gets no flag that changes bits" $?

if [ -n "${STAND_IN_CLANG:-}" ]; then
  python3 tests/device_code.py ptx "$work/build/musa/fma.bundle" >"$work/said" 2>&1
  result "what mcc's kind of compiler makes of the kernels" $?
  awk '/^__CLANG|^\.version/ { n++ } /bar\.sync/ { barrier[n] = barrier[n] $2 }
    END { exit !(barrier[2] ~ /^(0;)+$/ && barrier[3] ~ /^(0;)+$/ && barrier[4] ~ /^(1;)+$/) }' \
    "$work/build/musa/fma.bundle"
  result "mp_31 has its own barrier, mp_21 and mp_22 have not" $?
  printf '%s\n' '#include <musa_runtime.h>' \
    'extern "C" __global__ void f(float *x, float a) { *x = a * x[1] + x[2]; }' >"$work/small.mu"
  for flag in -ffp-contract=fast -ffast-math -fcuda-flush-denormals-to-zero; do
    tests/stand_in/mcc --cuda-device-only --offload-arch=mp_31 $flag -O3 -o "$work/small" \
      "$work/small.mu" && ! python3 tests/device_code.py ptx "$work/small" >/dev/null 2>&1
    result "the check notices $flag" $?
  done
else
  skipped=$((skipped + 1))
fi

# ---- HIP ----
if command -v clang++ >/dev/null && command -v ld.lld >/dev/null; then
  accepts "AUTO with clang" "HIP kernels: with" -DDETGEMM_HIP=AUTO
  accepts "FORCE_HIP=1" "HIP kernels: with" FORCE_HIP=1
  accepts "PYTORCH_ROCM_ARCH" "for gfx1030" PYTORCH_ROCM_ARCH=gfx1030 -DDETGEMM_HIP=ON
  accepts "PYTORCH_ROCM_ARCH with several" "for gfx90a;gfx1030" PYTORCH_ROCM_ARCH="gfx90a gfx1030" -DDETGEMM_HIP=ON
  refuses "an architecture that clang does not know" "for any of gfx1 was found" -DDETGEMM_HIP_ARCHS=gfx1 -DDETGEMM_HIP=ON
  accepts "AUTO and an unknown architecture" "HIP kernels: none" -DDETGEMM_HIP_ARCHS=gfx1 -DDETGEMM_HIP=AUTO
  refuses "a compiler without the target" "HIP kernels: no clang" -DDETGEMM_HIP_CLANG=/bin/false -DDETGEMM_HIP=ON
  refuses "FORCE_HIP=1 without it" "without FORCE_HIP=1" FORCE_HIP=1 -DDETGEMM_HIP_CLANG=/bin/false
else
  skipped=$((skipped + 1))
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
