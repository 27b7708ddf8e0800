// The seam between the CUDA backend and its kernels.
//
// A kernel has device code under kernels/ (compiled at run time by NVRTC, and by the host compiler for the model) and
// one host file beside this one, which defines a `const Kernel` and is listed in kernels.cpp. The host file knows which
// problems the kernel takes, writes the few lines of text that specialize it, and fills its parameters for a launch.
// Everything else (finding a device, compiling, caching, loading, contexts, errors) is done here, for all kernels.
//
//   compile(problem, device):  refuse() -> specialize() -> memory cache, disk cache, NVRTC -> load -> Plan
//   execute(plan, operands):   launch()
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backends/cuda/abi.hpp"
#include "backends/cuda/tensor_map.hpp"
#include "operators/problem.hpp"

namespace gemmule::cuda {

/// What NVRTC compiles for. sm_100f is the family of 10.0, 10.3 and later 10.x (CUDA's rule: same family, same or higher minor
/// number).
enum class Arch : std::uint8_t { sm_90a, sm_100a, sm_103a, sm_100f };
const char* name(Arch arch) noexcept;
/// Throws InvalidArgument for a name it does not know.
Arch arch_from_name(const std::string& text);

/// One __global__ function of a specialization. It takes exactly one parameter: a trivially copyable struct, declared
/// `const __grid_constant__`, at most 4 KB, that may contain EncodedTensorMaps.
struct EntryPoint {
  std::string name;           ///< declare the function extern "C", so that this is its name in the cubin
  unsigned threads = 0;       ///< of one CTA; equals the function's __launch_bounds__(threads, 1)
  unsigned shared_bytes = 0;  ///< dynamic shared memory of one CTA
  unsigned cluster = 1;       ///< CTAs of one cluster, along x
};

/// The text given to NVRTC. It includes headers by their full virtual path ("sm90/bf16_dglu.hpp", "numerics/...",
/// "layout/...", "ptx/...") and no others. It must not depend on K, the number of experts, rows or the device, and on N
/// only by choosing among a few tile shapes, so that a handful of cubins serves every model and `gemmule precompile` can
/// make them without a GPU. Every constant in it is spelled exactly (floats as hexadecimal literals or bit patterns):
/// equal texts are equal kernels and share one cache entry.
struct Specialization {
  std::string source;
  std::vector<EntryPoint> entries;
  int tolerated_spill_bytes =
      0;  ///< per thread: a few words around an epilogue cost nothing that can be measured
};

/// The limits of the device a plan was compiled for.
struct DeviceLimits {
  int sm_count = 0;
  int shared_bytes_per_block = 0;  ///< opt-in maximum of dynamic shared memory
};

/// An entry point, loaded into the device's primary context.
struct Function {
  FunctionHandle handle = nullptr;
  EntryPoint entry;
  int resident_ctas = 0;  ///< CTAs the whole device holds at once, a multiple of entry.cluster
};

/// One execute() call as launch() sees it. The right context is current. Device memory may be touched only by work
/// enqueued on the stream: no allocation, no synchronisation, no read by the host, so that the call can be captured.
struct Launch {
  const Problem& problem;
  const Operands& operands;  ///< operands.m > 0
  DeviceLimits device;
  std::span<const Function> functions;  ///< in the order of Specialization::entries
  std::byte* workspace = nullptr;       ///< 256-byte aligned, at least workspace_size() bytes, uninitialised
  StreamHandle stream = nullptr;

  /// CTAs for a persistent grid of functions[entry]: what fits the device at once, capped by Problem::sm_limit (one CTA
  /// per multiprocessor) and by `work_ctas`; a multiple of the cluster size and at least one cluster.
  unsigned persistent_ctas(std::size_t entry, std::int64_t work_ctas) const;

  /// Enqueues functions[entry] on grid_ctas CTAs (along x). `params` is the kernel's parameter struct; it is copied.
  /// `overlap` lets the grid start before the previous one in the stream has finished (programmatic dependent launch):
  /// the kernel must then execute griddepcontrol.wait before it touches memory that the previous one may write.
  void run(std::size_t entry, unsigned grid_ctas, const void* params, bool overlap = false) const;

  /// Enqueues a fill of `count` 32-bit words.
  void fill(void* destination, std::uint32_t word, std::size_t count) const;
};

/// A kernel family: plain functions, no state. Everything may be called from any thread.
struct Kernel {
  const char* name;         ///< "sm90_bf16_dglu": architecture_format_operator
  const char* description;  ///< one line for `gemmule info`: what it takes, and on which devices
  bool (*runs_on)(Arch arch);
  /// Why it cannot take the problem, as a clause that names the option and what is supported ("act_func 'dsituglu':
  /// BF16 supports dswiglu and dgeglu"); empty when it can.
  std::string (*refuse)(const Problem& problem);
  Specialization (*specialize)(const Problem& problem, Arch arch);
  std::size_t (*workspace_size)(const Problem& problem, const DeviceLimits& device, std::int64_t m);
  void (*launch)(const Launch& launch);
  /// Problems that together reach every specialization worth compiling ahead (duplicates are removed by text).
  std::vector<Problem> (*common_problems)();
};

/// Every kernel, in order of preference.
std::span<const Kernel* const> kernels();

/// The first kernel that takes the problem on `arch`. Otherwise null, and `reason` (if given) says why each one refuses.
const Kernel* find_kernel(const Problem& problem, Arch arch, std::string* reason = nullptr);

}  // namespace gemmule::cuda
