# shellcheck shell=bash
# Sourced by quickstart and run-tests: installs Debian packages that are missing.

# need PACKAGE...: installs the packages that dpkg does not list, as root; otherwise says what to
# install. Returns 1 where some stay missing.
need() {
  local package missing=()
  for package in "$@"; do
    dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed ||
      missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  if ! command -v apt-get >/dev/null; then
    echo "This is not Debian. Install what these Debian packages hold, then run this again:" >&2
  elif [ "$(id -u)" -ne 0 ]; then
    echo "Not root, so nothing is installed. Run this first:" >&2
    echo "  sudo apt-get install --no-install-recommends ${missing[*]}" >&2
    return 1
  else
    echo "Installing: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    [ -n "${updated:-}" ] || { apt-get -qq update && updated=1; }
    apt-get -qq -y install --no-install-recommends "${missing[@]}" >/dev/null && return 0
  fi
  echo "  ${missing[*]}" >&2
  return 1
}

# What the library and the tool are built with.
build_packages=(gcc libc6-dev cmake ninja-build pkg-config libjansson-dev libssl-dev)
