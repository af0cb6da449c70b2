#!/usr/bin/env bash
# Can the tests fail? Breaks the library in one place at a time, in a copy, and expects that the
# vectors, the check of every kernel, or the library itself notices. usage: mutants.sh
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

# mutant NAME FILE SED-SCRIPT
mutant() {
  rm -rf "$work/copy" && mkdir "$work/copy" && cp -r include src tests tools "$work/copy"
  sed -i "$3" "$work/copy/$2"
  if cmp -s "$2" "$work/copy/$2"; then
    echo "failed: $1: nothing was changed" && failed=$((failed + 1))
    return
  fi
  if noticed; then passed=$((passed + 1)); else
    echo "failed: $1: nobody noticed" && failed=$((failed + 1))
  fi
}

# compile FILE...: a test program with the whole library of the copy, without its build system.
compile() {
  gcc -O1 -w -D_GNU_SOURCE -Iinclude -Itests -Itools src/*.c src/*/*.c src/*/*/*.c tests/support.c \
    "$@" -o program -lm -ldl -lpthread
}

# Whether the copy does not build or a test of it fails.
noticed() (
  cd "$work/copy" || exit 0
  compile tests/test_vectors.c tests/vectors.c && ./program tests/vectors >log 2>&1 || exit 0
  compile tests/check.c tests/inputs.c tests/guarded.c tools/hostile.c &&
    ./program --seed 1 --cases 400 >log 2>&1 || exit 0
  exit 1
)

mutant "multiply, then add" src/order_fma.c 's/fmaf(a, b, acc)/a * b + acc/'
mutant "24 bits kept" src/order_tc16.c 's/GUARD = 25/GUARD = 24/'
mutant "26 bits kept" src/order_tc16.c 's/GUARD = 25/GUARD = 26/'
mutant "no least exponent" src/order_tc16.c 's/LEAST_E = -133/LEAST_E = -999/'
mutant "ties away from zero" src/num.h 's/u + 0x7fffu + ((u >> 16) \& 1u)/u + 0x8000u/'
mutant "NaN keeps its sign" src/num.h 's/return (u \& 0x7fffffffu) > 0x7f800000u ? DG_NAN_F32 : u;/return u;/'
mutant "subnormals flushed" src/fpenv.h 's/_mm_setcsr(0x1f80)/_mm_setcsr(0x9fc0)/'
mutant "the caller's rounding mode" src/fpenv.h 's/_mm_setcsr(0x1f80)/(void)0/'
mutant "start forgotten" src/cpu/run.c 's/if (from->data == NULL) return;/return;/'
mutant "bias forgotten" src/cpu/run.c 's/if (bias->data == NULL) return NULL;/return NULL;/'
mutant "one batch stride for all" src/problem.c 's/.bs = v->batch_stride/.bs = v->row_stride/'
mutant "grad_a without its transpose" src/api.c 's/order, dc, dg_transposed(b), da/order, dc, b, da/'
mutant "the last column is lost" src/cpu/run.c 's/.cols = (int)min64(nr, b->cols - j \* nr)/.cols = (int)min64(nr, b->cols - j * nr - (b->cols > 65))/'

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
