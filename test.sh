#!/usr/bin/env bash
# Installs what the tests need, builds, and runs all tests. Stages can be named to run only those:
#   ./test.sh [format] [release] [package] [asan] [tsan] [fuzz] [tidy] [python]
set -euo pipefail
cd "$(dirname "$0")"

stages=("$@")
[ ${#stages[@]} -gt 0 ] || stages=(format release package python asan tsan fuzz tidy)
jobs=$(nproc)
launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)

say() { printf '\n== %s (%ss)\n' "$*" "$SECONDS"; }

configure() {  # configure PRESET [options]
  cmake --preset "$1" "${launcher[@]}" "${@:2}" >"build/$1-configure.log" ||
    { cat "build/$1-configure.log"; return 1; }
}
build() { cmake --build --preset "$1" -- -j"$jobs" "${@:2}"; }  # build PRESET [target...]

sources() { git ls-files '*.cpp' '*.hpp' '*.cuh' '*.cu'; }

format() { sources | xargs clang-format-14 --dry-run -Werror; }

release() {
  configure release
  build release
  ctest --preset release -j"$jobs"
}

package() { ctest --preset release -L package --no-tests=error; }

# Compiling kernels by the dozen is the compiler's time; the release stage does it.
compilations=CompileWithoutFaults

asan() {
  configure asan '-DGEMMULE_TESTS_WITHOUT=gpu;mutants'
  build asan
  # Mutants of the kernels, many timings of the model and its counts are for the release stage, too: their code runs here
  # in others.
  ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 ctest --preset asan -j"$jobs" -LE package \
    -E "$compilations|EveryTimingGivesTheSameBytes|FollowsFromWhatTheModelCounts"
}

tsan() {
  configure tsan
  build tsan threads_tests
  TSAN_OPTIONS=halt_on_error=1 ctest --preset tsan -j"$jobs" -L threads -E "$compilations" --no-tests=error
}

fuzz() {
  configure fuzz -DCMAKE_C_COMPILER=clang-14 -DCMAKE_CXX_COMPILER=clang++-14
  build fuzz
  export -f fuzz_one
  find build/fuzz/fuzz -maxdepth 1 -name 'fuzz_*' -type f -executable | sort |
    xargs -P "$jobs" -I{} bash -euo pipefail -c 'fuzz_one {}'
}

fuzz_one() {  # fuzz_one PROGRAM
  local name log; name=$(basename "$1"); log=build/fuzz/$name.log; mkdir -p "build/fuzz/$name-found"
  "$1" -max_total_time="${GEMMULE_FUZZ_SECONDS:-20}" -rss_limit_mb=2048 -timeout=10 -verbosity=0 -print_final_stats=1 \
    -artifact_prefix=build/fuzz/ "build/fuzz/$name-found" "fuzz/corpus/${name#fuzz_}" >"$log" 2>&1 ||
    { tail -n 40 "$log"; return 1; }
  tail -n 8 "$log"
}

tidy() { sources | grep -E '^(src|tools|bench)/.*\.cpp$' | xargs -P "$jobs" -n 1 clang-tidy-14 --quiet --extra-arg=-Wno-unknown-warning-option -p build/release; }

python() { [ ! -f python/test.sh ] || bash python/test.sh; }

bash scripts/install-deps.sh test
mkdir -p build
for stage in "${stages[@]}"; do
  case "$stage" in
    format|release|package|asan|tsan|fuzz|tidy|python) say "$stage"; "$stage" ;;
    *) echo "unknown stage: $stage" >&2; exit 2 ;;
  esac
done
say "all stages passed: ${stages[*]}"
