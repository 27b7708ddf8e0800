// The fast host backend. Results do not depend on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "operators/problem.hpp"

namespace gemmule::cpu {

/// Scratch bytes run() needs for `m` rows with the current num_threads(); below 64 MiB for every problem.
std::size_t workspace_size(const Problem& problem, std::int64_t m);

/// Runs the call; blocks until done. `workspace` is 256-byte aligned.
void run(const Problem& problem, const Operands& operands, void* workspace, std::size_t workspace_bytes);

/// "avx512", "avx2" or "generic": the code path run() takes on this machine. GEMMULE_CPU_TARGET=avx2|generic lowers it.
const char* target() noexcept;

}  // namespace gemmule::cpu
