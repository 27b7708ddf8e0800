#!/usr/bin/env bash
# Installs the Debian / Ubuntu packages that a build needs, skipping those already there.
#   scripts/install-deps.sh build   compiler, CMake and libraries (demo.sh)
#   scripts/install-deps.sh test    the above and what the tests use (test.sh)
set -euo pipefail

build=(g++ cmake ninja-build nlohmann-json3-dev libcli11-dev libopenblas-dev)
test=(git ccache libgtest-dev libgmock-dev libboost-context-dev clang-14 clang-format-14 clang-tidy-14 libclang-rt-14-dev
      python3-venv python3-dev)

case "${1:-}" in
  build) wanted=("${build[@]}") ;;
  test) wanted=("${build[@]}" "${test[@]}") ;;
  *) echo "usage: $0 build|test" >&2; exit 2 ;;
esac

missing=()
for package in "${wanted[@]}"; do
  dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -q '^installed$' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

echo "installing: ${missing[*]}"
sudo=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "need root (or sudo) to install: ${missing[*]}" >&2; exit 1; }
  sudo=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
"${sudo[@]}" apt-get update -qq
"${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
