// Source text to cubin, by NVRTC, with the embedded headers and nothing else on the include path.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backends/cuda/kernel.hpp"

namespace gemmule::cuda {

/// ptxas's report on one function.
struct ResourceUsage {
  std::string function;
  int registers = 0;
  int stack_bytes = 0, spill_store_bytes = 0, spill_load_bytes = 0;
};

struct Compiled {
  std::string cubin;
  std::string ptx;
  std::string log;  ///< compiler warnings and the resource report
  std::vector<ResourceUsage> usage;
};

/// NVRTC's options: rounding as pinned for numerics/ (no contraction, no flush to zero), and the resource report.
std::vector<std::string> compile_options(Arch arch);

/// Everything besides the compiler's version that the cubin depends on: architecture, options, source and a digest of
/// the embedded headers.
std::string identity(std::string_view source, Arch arch);

/// Throws RuntimeFailure with the log when the source does not compile, or when there is no compiler.
Compiled compile_source(const std::string& source, Arch arch);

/// The resource report in a log.
std::vector<ResourceUsage> parse_usage(std::string_view log);

/// What no kernel may do: local memory, spills, a setmaxnreg that ptxas ignored, serialized wgmma. Names the function
/// and the amount; empty when there is nothing. Up to `tolerated_spill_bytes` of stack, spill stores and spill loads each
/// are no fault.
std::string resource_fault(const Compiled& compiled, int tolerated_spill_bytes = 0);

}  // namespace gemmule::cuda
