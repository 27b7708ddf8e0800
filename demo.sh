#!/usr/bin/env bash
# Installs what is needed, builds, runs both operators on captured MoE batches in every format, verifies every output
# against the float64 reference and against what PyTorch computed for the same batch, and prints one table.
set -euo pipefail
cd "$(dirname "$0")"

bash scripts/install-deps.sh build
mkdir -p build
cmake --preset release -DGEMMULE_BUILD_TESTS=OFF -B build/demo >build/demo-configure.log || { cat build/demo-configure.log; exit 1; }
cmake --build build/demo --target gemmule_command
