# shellcheck shell=bash
# The stages of run-tests, and how their tests are counted. $out is run-tests' build folder.
# shellcheck disable=SC2034,SC2154 # set here or there, used there or here

all_stages=(gcc opencl clang sanitizers threads plain flags valgrind qemu fuzz lint python)
more_stages=(mutants) # once per release

count() { echo "$1 $2 $3" >>"$out/counts"; } # passed failed skipped

# check NAME COMMAND...: one test; its output is shown where it fails.
check() {
  local name=$1 log=$out/logs/${1//[^a-zA-Z0-9]/-}.log
  shift
  if "$@" >"$log" 2>&1; then
    echo "ok      $name" && count 1 0 0
  else
    echo "FAILED  $name" && tail -n 40 "$log" && count 0 1 0
    return 1
  fi
}

# program NAME COMMAND...: a test program that ends with "N passed, N failed"; counts those.
program() {
  local name=$1 log=$out/logs/${1//[^a-zA-Z0-9]/-}.log
  shift
  "$@" >"$log" 2>&1
  local status=$? line
  line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)
  if [ $status -eq 0 ] && [[ $line =~ ^([0-9]+)\ passed,\ 0\ failed(,\ ([0-9]+)\ skipped)? ]]; then
    echo "ok      $name: $line" && count "${BASH_REMATCH[1]}" 0 "${BASH_REMATCH[3]:-0}"
  else
    echo "FAILED  $name" && tail -n 40 "$log" && count 0 1 0
  fi
}

skip() { echo "skipped $1" && count 0 0 1; }

# build_only NAME TARGETS OPTION...: configures into build-tests/NAME and builds these targets.
build_only() {
  local name=$1 targets=$2
  shift 2
  # shellcheck disable=SC2016 # for the inner shell
  check "build $name" sh -c 'dir=$1 targets=$2; shift 2
    cmake -S . -B "$dir" -G Ninja -DDETGEMM_WERROR=ON -DDETGEMM_HIP=OFF "$@" &&
      cmake --build "$dir" --target $targets' sh "$out/$name" "$targets" "$@"
}

# build NAME OPTION...: the same, all targets.
build() {
  local name=$1
  shift
  build_only "$name" all "$@"
}

# suite NAME CTEST-OPTION...: the tests of build NAME, each case counted.
suite() {
  local name=$1 junit=$out/logs/$1.xml
  shift
  ctest --test-dir "$out/$name" -j "$(nproc)" --output-junit "$junit" --test-output-size-passed 1000000 \
    --test-output-size-failed 1000000 "$@" >"$out/logs/$name.ctest" 2>&1
  python3 tests/summary.py "$name" "$junit" "$out/counts" || count 0 1 0
}

# The release build with every test and all kernels that can be compiled here, then the tool's own
# proof.
stage_gcc() {
  local hip=ON
  need g++ || skip "C++ consumers: no g++"
  need clang clang-tools lld llvm || { skip "HIP: no clang" && hip=OFF; }
  build gcc -DCMAKE_C_COMPILER=gcc -DDETGEMM_HIP=$hip || return
  suite gcc
  program "builds of the GPU back ends" tests/gpu_builds.sh
  check "detgemm verify --quick" "$out/gcc/tools/detgemm" verify --quick
}

# The portable GPU kernel through PoCL, an OpenCL driver for CPUs.
stage_opencl() {
  [ -d src/opencl ] || return
  need ocl-icd-libopencl1 pocl-opencl-icd || { skip "OpenCL: no driver" && return; }
  [ -x "$out/gcc/tools/detgemm" ] || build gcc -DCMAKE_C_COMPILER=gcc || return
  check "detgemm verify --quick on OpenCL" "$out/gcc/tools/detgemm" verify --quick --device opencl:0
  program "OpenCL memory, queues and contexts" env POCL_DEVICES="pthread basic" \
    "$out/gcc/tests/test_opencl"
  if need oclgrind; then
    program "OpenCL kernels under oclgrind" tests/under_oclgrind.sh "$out/gcc/tests/opencl_kernels"
  else
    skip "OpenCL kernels under oclgrind"
  fi
}

# Whether the tests can fail.
stage_mutants() { program "mutants" tests/mutants.sh; }

need_clang() {
  need clang || return 1
  local version
  version=$(clang --version | grep -oE 'version [0-9]+' | head -n 1 | tr -dc 0-9)
  need "libclang-rt-$version-dev" "libomp-$version-dev"
}

stage_clang() {
  need_clang || { skip "clang is missing" && return; }
  build clang -DCMAKE_C_COMPILER=clang -DDETGEMM_CUDA=OFF && suite clang -E '^(check|gpu_host.*|verify_.*|opencl)$'
}

stage_sanitizers() {
  build asan --preset asan -B "$out/asan" && suite asan -E '^(installed|check_new_seed|verify_.*|opencl)$'
}

stage_threads() {
  build_only tsan "test_vectors test_threads" --preset tsan -B "$out/tsan" && suite tsan -R '^(vectors|threads)$'
}

# The library without a build system, at several levels of optimisation.
plain_sources() { ls src/*.c src/*/*.c src/*/*/*.c; }

# plain COMPILER FLAG...: builds test_vectors from all sources in one line.
plain() {
  # shellcheck disable=SC2046 # one word a file
  "$@" -w -D_GNU_SOURCE -Iinclude -Itests $(plain_sources) tests/test_vectors.c tests/vectors.c \
    tests/support.c -o "$out/plain" -lm -ldl -lpthread
}

stage_plain() {
  local compiler flags
  # shellcheck disable=SC2046
  check "cc -O2 src/*.c src/*/*.c src/*/*/*.c" \
    cc -O2 -shared -fPIC -D_GNU_SOURCE -Iinclude $(plain_sources) -o "$out/plain.so" -lm -ldl -lpthread
  for compiler in gcc clang; do
    command -v $compiler >/dev/null || continue
    for flags in -O0 -O1 "-O3 -march=native -flto" "-O2 -ffp-contract=fast -mfma" -std=gnu2x; do
      # shellcheck disable=SC2086
      check "build $compiler $flags" plain $compiler $flags &&
        program "vectors with $compiler $flags" "$out/plain" tests/vectors
    done
  done
}

# Unsafe flags: the build fails, or opening a device does, or every bit is right all the same.
unsafe_is_safe() {
  if ! plain "$@" 2>"$out/refused"; then
    grep -E 'detgemm (defines|needs)|unrecognized|unknown argument|not supported|unsupported' "$out/refused"
    return
  fi
  "$out/plain" tests/vectors >"$out/vectors" 2>&1 && return
  tail -n 3 "$out/vectors"
  # A refusal to open, or kernels withheld by the probe and right bits from the others.
  grep -q "scalar reference gives other bits" "$out/vectors" ||
    ! grep '^failed' "$out/vectors" | grep -qv 'gave other bits than the reference in probe'
}

stage_flags() {
  local compiler flag
  for compiler in gcc clang; do
    command -v $compiler >/dev/null || continue
    check "$compiler -ffast-math does not compile" sh -c "! $compiler -ffast-math -Iinclude -Isrc \
      -D_GNU_SOURCE -c src/reference.c -o /dev/null"
    for flag in -Ofast -funsafe-math-optimizations -fno-signed-zeros -ffinite-math-only \
      "-fassociative-math -fno-signed-zeros -fno-trapping-math" -freciprocal-math -frounding-math \
      -fsingle-precision-constant -mfpmath=387 -fdenormal-fp-math=preserve-sign -mdaz-ftz; do
      # shellcheck disable=SC2086
      check "$compiler -O2 $flag changes no bit in silence" unsafe_is_safe $compiler -O2 $flag
    done
  done
  # A program whose start-up code sets flush-to-zero; the library itself is compiled as it should be.
  build_only host test_vectors -DDETGEMM_CUDA=OFF -DDETGEMM_TOOL=OFF -DCMAKE_EXE_LINKER_FLAGS=-Ofast &&
    program "vectors in a program linked with -Ofast" "$out/host/tests/test_vectors" tests/vectors
}

stage_valgrind() {
  need valgrind || { skip "valgrind is missing" && return; }
  build_only valgrind "check detgemm" --preset dev -B "$out/valgrind" || return
  program "check under valgrind" valgrind -q --error-exitcode=9 --leak-check=full \
    "$out/valgrind/tests/check" --seed 3 --cases 120
  check "detgemm matmul under valgrind" valgrind -q --error-exitcode=9 --leak-check=full \
    "$out/valgrind/tools/detgemm" matmul tests/vectors/tc16-plain-31x70x65.safetensors:a \
    tests/vectors/tc16-plain-31x70x65.safetensors:b --order tc16
}

# NEON, and a big-endian processor, under an emulator.
stage_qemu() {
  local machine
  need qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross gcc-s390x-linux-gnu \
    libc6-dev-s390x-cross || { skip "qemu-user or a cross compiler is missing" && return; }
  # An x86 processor without AVX, then one without AVX-512: nothing must be an illegal instruction.
  if build_only x86 test_vectors -DDETGEMM_CUDA=OFF -DDETGEMM_TOOL=OFF; then
    for machine in Nehalem Haswell; do
      program "vectors on x86 $machine" qemu-x86_64 -cpu $machine "$out/x86/tests/test_vectors" tests/vectors
    done
  fi
  for machine in aarch64 s390x; do
    build_only $machine "test_vectors check" -DCMAKE_TOOLCHAIN_FILE="cmake/$machine-linux-gnu.cmake" -DDETGEMM_CUDA=OFF \
      -DDETGEMM_TOOL=OFF -DDETGEMM_PYTHON=OFF || continue
    program "vectors on $machine" "qemu-$machine" -L "/usr/$machine-linux-gnu" \
      "$out/$machine/tests/test_vectors" tests/vectors
    program "check on $machine" "qemu-$machine" -L "/usr/$machine-linux-gnu" \
      "$out/$machine/tests/check" --seed 5 --cases 360
  done
}

# Every target on the kept corpus and for a while on new inputs.
stage_fuzz() {
  local target
  need_clang || { skip "clang is missing" && return; }
  build_only fuzz "fuzz_safetensors fuzz_npy fuzz_gemm fuzz_grouped" -DCMAKE_C_COMPILER=clang -DDETGEMM_FUZZ=ON -DDETGEMM_CUDA=OFF \
    -DCMAKE_C_FLAGS_RELEASE=-O0 \
    -DCMAKE_C_FLAGS="-fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=all" || return
  for target in safetensors npy gemm grouped; do
    mkdir -p "$out/corpus/$target"
    check "fuzz $target" sh -c "cd '$out/corpus' && '$out/fuzz/tests/fuzz_$target' \
      -max_total_time=${FUZZ_SECONDS:-15} -rss_limit_mb=4096 $target '$PWD/tests/corpus/$target'"
  done
}

# A virtual environment with the pinned tools, and what the Python tests import.
venv() {
  need python3-venv || return 1
  [ -x "$out/venv/bin/python" ] || python3 -m venv "$out/venv" || return 1
  "$out/venv/bin/pip" -q install "$@"
}

stage_lint() {
  local files=() scripts=()
  mapfile -t files < <(git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.inc' '*.cpp' '*.mu' '*.hip' '*.cl')
  mapfile -t scripts < <(git ls-files | while read -r f; do
    head -c 64 "$f" | head -n 1 | grep -aqE '^#!.*\b(ba)?sh$|^# shellcheck shell' && echo "$f"
  done)
  if check "install the linters" venv -r scripts/requirements-lint.txt; then
    check "clang-format" "$out/venv/bin/clang-format" --dry-run -Werror "${files[@]}"
    check "ruff" "$out/venv/bin/ruff" check python tests scripts examples
    check "ruff format" "$out/venv/bin/ruff" format --check python tests scripts examples
  else
    skip "the linters of PyPI"
  fi
  if need_clang && need clang-tidy; then
    build tidy --preset dev -B "$out/tidy" -DCMAKE_C_COMPILER=clang -DBUILD_TESTING=OFF &&
      check "clang-tidy" sh -c "git ls-files 'src/*.c' 'tools/*.c' |
        grep -v -e src/cpu/arm/ -e nofeatures | xargs -P2 -n8 clang-tidy -p '$out/tidy' --quiet"
  else skip clang-tidy; fi
  if need cppcheck; then
    check "cppcheck" cppcheck --quiet --error-exitcode=1 --std=c11 --inline-suppr -j2 \
      --enable=warning,performance,portability -D_GNU_SOURCE -D__x86_64__ -D__GNUC__=12 \
      --library=scripts/cppcheck.cfg \
      -Iinclude src tools
  else skip cppcheck; fi
  if need shellcheck; then check "shellcheck" shellcheck -x "${scripts[@]}"; else skip shellcheck; fi
  check "no path of one machine" sh -c "! git grep -nIE '(/home/[a-z]|/root/)' -- . ':!scripts/stages.sh'"
  check "no blank at a line's end" sh -c "! git grep -nIE '[[:blank:]]+\$' -- . ':!*.safetensors' ':!tests/corpus'"
}

stage_python() {
  check "install the package" venv --config-settings=cmake.define.DETGEMM_CUDA=OFF . \
    -r python/requirements-test.txt || return
  check "mypy" "$out/venv/bin/mypy" python/detgemm
  "$out/venv/bin/python" -m pytest -q -rs python/tests >"$out/logs/pytest.log" 2>&1
  pytest_counts "$out/logs/pytest.log" python
}

# Adds what pytest's last line says.
pytest_counts() {
  local line passed failed skipped
  line=$(tail -n 1 "$1")
  passed=$(grep -oE '[0-9]+ passed' <<<"$line" | tr -dc 0-9)
  failed=$(grep -oE '[0-9]+ (failed|error)' <<<"$line" | awk '{ n += $1 } END { print n + 0 }')
  skipped=$(grep -oE '[0-9]+ skipped' <<<"$line" | tr -dc 0-9)
  [ -n "$passed$skipped" ] || failed=$((failed + 1))
  count "${passed:-0}" "$failed" "${skipped:-0}"
  if [ "$failed" -eq 0 ]; then
    echo "ok      $2: $line" && grep '^SKIPPED' "$1"
  else
    echo "FAILED  $2" && tail -n 60 "$1"
  fi
}

# The tests of one accelerator.
stage_device() {
  [ -x "$out/gcc/tools/detgemm" ] || stage_gcc
  check "$1 opens" "$out/gcc/tools/detgemm" info --device "$1"
  check "$1: detgemm verify" "$out/gcc/tools/detgemm" verify --device "$1"
  if [ "$1" = cuda:0 ]; then
    check "$1: capture, streams, contexts, pointers" "$out/gcc/tests/test_gpu_device"
    check "$1: every row on odd shapes" "$out/gcc/tests/test_gpu_device" --sweep
    if command -v compute-sanitizer >/dev/null; then
      check "$1: memcheck" compute-sanitizer --tool memcheck --error-exitcode 9 \
        "$out/gcc/tests/test_gpu_device" --sweep
    else
      skip "$1: memcheck" "there is no compute-sanitizer"
    fi
  fi
  if check "install the package" venv . -r python/requirements-test.txt; then
    DETGEMM_TEST_DEVICE=$1 "$out/venv/bin/python" -m pytest -q -rs python/tests >"$out/logs/pytest-$1.log" 2>&1
    pytest_counts "$out/logs/pytest-$1.log" "python on $1"
  fi
}
