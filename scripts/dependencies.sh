# shellcheck shell=bash
# Sourced by quickstart and run-tests: finds out what is missing and installs it from Debian.

# Whether what a Debian package brings is there, whoever installed it.
have() {
  case $1 in
    libjansson-dev) pkg-config --exists jansson ;;
    libssl-dev) pkg-config --exists libcrypto ;;
    libcmocka-dev) pkg-config --exists cmocka ;;
    ninja-build) command -v ninja ;;
    pkg-config) command -v pkg-config ;;
    gcc-aarch64-linux-gnu | gcc-s390x-linux-gnu) command -v "${1#gcc-}-gcc" ;;
    qemu-user) command -v qemu-aarch64 && command -v qemu-s390x ;;
    python3-venv) python3 -c 'import ensurepip' ;;
    gcc | g++ | clang | clang-tidy | cmake | cppcheck | git | python3 | shellcheck | valgrind) command -v "$1" ;;
    *) dpkg-query -W -f '${db:Status-Status}\n' "$1" | grep -qx installed ;;
  esac >/dev/null 2>&1
}

# need PACKAGE...: installs what is missing, as root on Debian; elsewhere says what to install.
# Returns 1 where something stays missing.
need() {
  local package missing=()
  for package in "$@"; do have "$package" || missing+=("$package"); done
  [ ${#missing[@]} -eq 0 ] && return 0
  if ! command -v apt-get >/dev/null; then
    echo "Missing. Install what these Debian packages hold, then run this again:" >&2
  elif [ "$(id -u)" -ne 0 ]; then
    echo "Missing, and only root can install it. Run this, then this script again:" >&2
    echo "  sudo apt-get install --no-install-recommends ${missing[*]}" >&2
    return 1
  else
    echo "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    [ -n "${package_lists_updated:-}" ] || { apt-get -qq update && package_lists_updated=1; }
    apt-get -qq -y install --no-install-recommends "${missing[@]}" >/dev/null && return 0
    echo "apt-get could not install:" >&2
  fi
  echo "  ${missing[*]}" >&2
  return 1
}

# What the library and the tool are built with.
# shellcheck disable=SC2034 # used by those who source this
build_packages=(gcc libc6-dev cmake ninja-build pkg-config libjansson-dev libssl-dev)
