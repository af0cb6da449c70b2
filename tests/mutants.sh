#!/usr/bin/env bash
# Can the tests fail? Breaks the library in one place at a time, in a copy, and expects that the
# vectors, the check of every kernel, or the library itself notices. usage: mutants.sh
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

# compile FILE...: objects of the copy, without its build system.
compile() {
  # shellcheck disable=SC2016 # for the inner shell
  printf '%s\n' "$@" | xargs -P2 -n4 sh -c 'for f; do
    gcc -c -O1 -w -D_GNU_SOURCE -Iinclude -Itests -Itools "$f" -o "objects/$(echo "$f" | tr / -).o" || exit 255
  done' sh
}

library=(src/*.c src/*/*.c src/*/*/*.c)
programs=(tests/{test_vectors,vectors,support,check,inputs,guarded}.c tools/hostile.c)

# Whether the copy, of which one file was changed, does not build or a test of it fails.
noticed() (
  cd "$work/copy" || exit 0
  case $1 in
    *.h) compile "${library[@]}" || exit 0 ;;
    *) compile "$1" || exit 0 ;;
  esac
  library_objects=(objects/src-*.o objects/tests-support.c.o)
  gcc objects/tests-{test_vectors,vectors}.c.o "${library_objects[@]}" -o program -lm -ldl -lpthread &&
    ./program tests/vectors >log 2>&1 || exit 0
  gcc objects/{tests-check,tests-inputs,tests-guarded,tools-hostile}.c.o "${library_objects[@]}" \
    -o program -lm -ldl -lpthread && ./program --seed 1 --cases 400 >log 2>&1 || exit 0
  exit 1
)

# mutant NAME FILE SED-SCRIPT
mutant() {
  rm -rf "$work/copy" && cp -r "$work/base" "$work/copy"
  sed -i "$3" "$work/copy/$2"
  if cmp -s "$2" "$work/copy/$2"; then
    echo "failed: $1: nothing was changed" && failed=$((failed + 1))
  elif noticed "$2"; then
    passed=$((passed + 1))
  else
    echo "failed: $1: nobody noticed" && failed=$((failed + 1))
  fi
}

# Unchanged, nothing must be noticed.
mkdir -p "$work/base/objects" && cp -r include src tests tools "$work/base"
cd "$work/base" && compile "${library[@]}" "${programs[@]}" && cd - >/dev/null || exit 1
rm -rf "$work/copy" && cp -r "$work/base" "$work/copy"
if noticed src/order_fma.c; then
  echo "failed: the tests fail without a mutation" && failed=$((failed + 1))
else
  passed=$((passed + 1))
fi

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
