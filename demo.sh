#!/usr/bin/env bash
# Installs what is needed, builds, runs both operators on captured MoE batches in every format, verifies every output
# against the float64 reference and against what PyTorch computed for the same batch, and prints one table.
set -euo pipefail
cd "$(dirname "$0")"

bash scripts/install-deps.sh build
mkdir -p build
echo "building (build/demo.log has the output)"
{ cmake --preset release -B build/demo -DGEMMULE_BUILD_TESTS=OFF && cmake --build build/demo --target gemmule_command; } \
  >build/demo.log 2>&1 || { tail -n 30 build/demo.log; exit 1; }
gemmule=build/demo/bin/gemmule

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
header=(--header)
verify() {  # verify CAPTURE FORMAT
  local problem=$work/$1-$2.safetensors
  "$gemmule" prepare "examples/data/$1.safetensors" --format "$2" -o "$problem" >>build/demo.log
  "$gemmule" run "$problem" -o "$work/result.safetensors" >>build/demo.log
  "$gemmule" verify "$problem" --result "$work/result.safetensors" --expected "examples/data/$1.safetensors" \
    --brief "${header[@]}" | sed "s/^op /batch         op /; t; s/^/$(printf '%-14s' "$1")/" || failed=1
  header=()
}

for capture in srelu srelu_clamp; do for format in mxfp8 nvfp4; do verify $capture $format; done; done
for capture in swiglu geglu; do for format in bf16 mxfp8 nvfp4; do verify $capture $format; done; done
for format in mxfp8 nvfp4; do verify situglu $format; done
[ $failed = 0 ] && echo "every output within its bound" || { echo "some output is out of bound" >&2; exit 1; }
