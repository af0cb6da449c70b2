#!/usr/bin/env bash
# Installs a build into a new folder, moves it, and uses it from outside: find_package, pkg-config,
# shared and static, C and C++, strict compilers; looks at the exported symbols and at what is
# installed; compiles the program and follows the lines that the README shows.
# usage: install.sh BUILD [with-tool]
# shellcheck disable=SC2046 # the words of pkg-config
set -eu
build=$1
source=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

check() {
  local name=$1
  shift
  if "$@" >"$work/log" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "failed: $name" && tail -n 20 "$work/log"
  fi
}

cmake --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/moved"
prefix=$work/moved
libdir=$(dirname "$(find "$prefix" -name libdetgemm.a)")
export PKG_CONFIG_PATH=$libdir/pkgconfig LD_LIBRARY_PATH=$libdir
cd "$work"

check "no path of this build in what is installed" \
  sh -c "! grep -rIl -e '$source' -e '$work/first' '$prefix'"
check "only dg_ symbols are exported" \
  sh -c "nm -D --defined-only '$libdir/libdetgemm.so' | awk '\$2 ~ /[A-Z]/ && \$3 !~ /^dg_/ { print; bad = 1 } END { exit bad }'"
check "every function of the header is exported" sh -c "
  for f in \$(grep -oE '^(DG_API .*|.*)\bdg_[a-z0-9_]+\(' '$prefix/include/detgemm.h' | grep DG_API | grep -oE 'dg_[a-z0-9_]+\($' | tr -d '('); do
    nm -D --defined-only '$libdir/libdetgemm.so' | grep -qw \"T \$f\" || { echo \"\$f is missing\"; exit 1; }
  done"
check "the static library defines only dg_ symbols" \
  sh -c "nm -g --defined-only '$libdir/libdetgemm.a' | awk 'NF == 3 && \$3 !~ /^dg_/ { print; bad = 1 } END { exit bad }'"
check "the soname is the ABI number" sh -c "
  abi=\$(awk '/define DG_ABI/ { print \$3 }' '$prefix/include/detgemm.h')
  readelf -d '$libdir/libdetgemm.so' | grep -q \"libdetgemm.so.\$abi]\""
check "pkg-config knows the version" pkg-config --exact-version="$(awk '
  /define DG_VERSION_/ { v = v sep $3; sep = "." } END { print v }' "$prefix/include/detgemm.h")" detgemm

consumers() { # compiler flags...
  "$@" "$source/tests/consumer/consumer.c" -o c1 $(pkg-config --cflags --libs detgemm) && ./c1
}
static_consumers() {
  "$@" "$source/tests/consumer/consumer.c" -o c2 $(pkg-config --cflags detgemm) \
    "$libdir/libdetgemm.a" $(pkg-config --static --libs-only-other --libs-only-l detgemm | sed 's/-ldetgemm//') && ./c2
}
for cc in gcc clang; do
  command -v $cc >/dev/null || continue
  check "$cc with pkg-config" consumers $cc -std=c11 -pedantic-errors -Wall -Wextra -Wconversion -Wshadow -Werror
  check "$cc with pkg-config, C99" consumers $cc -std=c99 -pedantic-errors -Wall -Wextra -Werror
  check "$cc with pkg-config, C23" consumers $cc -std=c2x -Wall -Wextra -Werror
  check "$cc as a host with -Ofast start-up code" consumers $cc -Ofast
done
check "gcc, static" static_consumers gcc
for cxx in g++ clang++; do
  command -v $cxx >/dev/null || continue
  check "$cxx with pkg-config" sh -c "
    $cxx -std=c++11 -pedantic-errors -Wall -Wextra -Wold-style-cast -Werror \
      '$source/tests/consumer/consumer.cpp' -o cpp \$(pkg-config --cflags --libs detgemm) && ./cpp"
  check "$cxx, C++20" sh -c "
    $cxx -std=c++20 -Wall -Wextra -Werror \
      '$source/tests/consumer/consumer.cpp' -o cpp \$(pkg-config --cflags --libs detgemm) && ./cpp"
done
check "find_package" sh -c "
  cmake -S '$source/tests/consumer' -B find -DCMAKE_PREFIX_PATH='$prefix' && cmake --build find"
for program in find/c_shared find/c_static find/c_detgemm find/cxx_shared find/cxx_static find/cxx_detgemm; do
  check "$program" "./$program"
done
mkdir sub && cat >sub/CMakeLists.txt <<EOF
cmake_minimum_required(VERSION 3.25)
project(sub C)
include(CTest)
add_subdirectory("$source" detgemm)
foreach(kind detgemm shared static)
  add_executable(\${kind} "$source/tests/consumer/consumer.c")
  target_link_libraries(\${kind} PRIVATE detgemm::\${kind})
endforeach()
if(TARGET test_api OR TARGET test_vectors OR TARGET detgemm_readers)
  message(FATAL_ERROR "tests or the tool come along")
endif()
EOF
check "add_subdirectory" cmake -S sub -B sub/build -DDETGEMM_CUDA=OFF
# The program in the README, as it stands there, compiled by the line beside it.
# shellcheck disable=SC2016 # the quotes of Markdown
sed -n '/^```c$/,/^```$/p' "$source/README.md" | sed '1d;$d' >example.c
check "the README's program is short" sh -c "test \$(grep -c . example.c) -le 15"
check "the README's program" sh -c "cc -Wall -Wextra -Werror example.c \$(pkg-config --cflags --libs detgemm) -o example &&
  ./example >printed && printf '4 5\n10 11\n' | cmp - printed"
if [ "${2:-}" = with-tool ]; then
  check "the installed tool" "$prefix/bin/detgemm" info
  check "its man page" test -s "$prefix/share/man/man1/detgemm.1"
fi
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
