#!/usr/bin/env bash
# Makes .venv, installs the package into it as a user would, and runs its tests, mypy and ruff.
#   GEMMULE_PYTHON_TORCH=0   leaves PyTorch out (it is most of the download) and skips the tests that need it
set -euo pipefail
cd "$(dirname "$0")/.."

[ -x .venv/bin/python ] || python3 -m venv .venv
python=.venv/bin/python
packages=(scikit-build-core==0.11.6 nanobind==2.9.2 numpy==2.3.5 ml_dtypes==0.5.4 pytest==8.4.2 mypy==1.18.2
          ruff==0.14.1 jax==0.7.1 jaxlib==0.7.1 matplotlib==3.10.7)
if [ "${GEMMULE_PYTHON_TORCH:-1}" != 0 ]; then
  packages+=(torch==2.11.0)
else
  echo "!! GEMMULE_PYTHON_TORCH=0: the PyTorch tests are skipped" >&2
fi
$python -m pip install --quiet --disable-pip-version-check "${packages[@]}"

# The build directory stays for the next run.
export CC=${CC:-cc} CXX=${CXX:-c++}  # as CMake would choose, which lets ccache share objects with the other builds
command -v ccache >/dev/null && export CMAKE_CXX_COMPILER_LAUNCHER=ccache
CMAKE_BUILD_PARALLEL_LEVEL=${GEMMULE_BUILD_JOBS:-2} $python -m pip install --quiet --disable-pip-version-check \
  --no-build-isolation --no-deps --force-reinstall --config-settings=cmake.define.GEMMULE_WERROR=ON .

$python -m ruff check python examples bench/host_overhead.py
$python -m mypy
$python -m pytest -q python/tests
