#!/usr/bin/env bash
# Packs the built tool for another machine, one without a compiler or with other libraries:
#   bench/pack.sh BUILD-DIRECTORY FOLDER
# puts into FOLDER: bin/ (the stripped tool and test programs), lib/ (the shared libraries they
# need beside the C library), and the script `detgemm`, which finds both and NVIDIA's cuBLAS where
# Python's packages have it. The other machine needs the same processor family and a C library that
# is not older.
set -eu
if [ $# -ne 2 ] || [ ! -x "$1/tools/detgemm" ]; then
  echo "usage: bench/pack.sh BUILD-DIRECTORY FOLDER (the tool must have been built)" >&2
  exit 2
fi
build=$1 folder=$2
mkdir -p "$folder/bin" "$folder/lib"
programs=("$build/tools/detgemm")
for test in test_gpu_device test_opencl call_cost; do
  [ -x "$build/tests/$test" ] && programs+=("$build/tests/$test")
done
for program in "${programs[@]}"; do
  strip -o "$folder/bin/$(basename "$program")" "$program"
  ldd "$program" | awk '$2 == "=>" { print $3 }'
done | sort -u | while read -r library; do
  case $(basename "$library") in
    libc.so.* | libm.so.* | ld-linux*) ;; # those of the other machine
    *) cp -L "$library" "$folder/lib/" && strip --strip-unneeded "$folder/lib/$(basename "$library")" ;;
  esac
done
cat >"$folder/run" <<'EOF'
#!/usr/bin/env bash
# run PROGRAM ARGUMENT...: a program of bin/ with the libraries it needs.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for folder in $(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))' 2>/dev/null)/nvidia/*/lib; do
  [ -e "$folder"/libcublas.so.1? ] && LD_LIBRARY_PATH=$folder:${LD_LIBRARY_PATH:-}
done
export LD_LIBRARY_PATH=$here/lib:${LD_LIBRARY_PATH:-}
program=$1 && shift
exec "$here/bin/$program" "$@"
EOF
cat >"$folder/detgemm" <<'EOF'
#!/usr/bin/env bash
# The packed tool.
exec "$(dirname "${BASH_SOURCE[0]}")/run" detgemm "$@"
EOF
chmod +x "$folder/run" "$folder/detgemm"
