// The CUDA backend. libcuda and libnvrtc are loaded when first needed; nothing here needs them at link time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/kernel.hpp"
#include "gemmule/tensor.hpp"
#include "operators/problem.hpp"

namespace gemmule::cuda {

/// A compiled problem on one device. Immutable: any number of threads and streams may execute it at once.
class Plan;

/// Chooses a kernel and gets it from the memory cache, the disk cache or the compiler. Throws Unsupported when no kernel
/// takes the problem (the message says what is supported), RuntimeFailure when there is no driver, no such device, a
/// device of another compute capability than 9.0, 10.0, 10.3 and later 10.x, no compiler, or when a CUDA call fails.
std::shared_ptr<const Plan> compile(const Problem& problem, int device_index);

/// Scratch bytes execute() needs for m rows.
std::size_t workspace_size(const Plan& plan, std::int64_t m);

/// Enqueues the call on `stream` (null: the legacy default stream) of the plan's device, in its primary context. No
/// allocation, no synchronisation, no read of device memory by the host; can be captured into a graph. The caller's
/// current context is left as found. `workspace` is device memory, 256-byte aligned.
void execute(const Plan& plan, const Operands& operands, void* workspace, std::size_t workspace_bytes,
             Stream stream);

/// Throws what compile() would throw for want of a driver, a device or a kernel. Compiles nothing.
void check_available(const Problem& problem, int device_index);
/// Why execute() could not run the problem on this device: no driver, no such device, no kernel. Empty when it can.
/// Compiles nothing.
std::string refusal(const Problem& problem, int device_index);

/// Enqueues a fill of device memory with 32-bit words (zeros or -inf of outputs that are accumulated into).
void fill(int device_index, void* destination, std::uint32_t word, std::size_t words, Stream stream);

/// GEMMULE_CHECK is set to something else than "" and "0": the caller of execute() wants the values of offsets, pointer
/// arrays and norm_const checked, although that synchronises. Read once.
bool checks_requested() noexcept;
/// Copies device memory to the host after the work on `stream`. While the stream is being captured that is impossible:
/// says so once on stderr and returns false.
bool read_values(int device_index, const void* device, void* host, std::size_t bytes, Stream stream);

/// What precompile() reports after each kernel.
struct PrecompileStep {
  std::string kernel;
  std::size_t done = 0, total = 0;  ///< specializations
  bool was_cached = false;
  double seconds = 0;
};

/// Compiles into the disk cache, without a device and on every core, each specialization that the kernels of `ops` name as
/// common; `report` (may be empty) is called after each, by one thread at a time, and must not throw. Throws
/// RuntimeFailure when there is no compiler or the cache cannot be written, Unsupported when no kernel runs on `arch`.
void precompile(Arch arch, const std::vector<Op>& ops,
                const std::function<void(const PrecompileStep&)>& report);
/// The same for the one specialization that `problem` needs.
void precompile(Arch arch, const Problem& problem);

/// What a device must have.
inline constexpr const char* supported_capabilities = "compute capability 9.0, 10.0, 10.3 or a later 10.x";

/// What is there, what is missing and where it was looked for. Throws nothing.
struct DeviceReport {
  int index = 0;
  std::string name;  ///< as the driver has it
  int capability_major = 0, capability_minor = 0, sm_count = 0;
  std::uint64_t memory_bytes = 0;
  bool supported = false;            ///< has one of supported_capabilities
  std::vector<std::string> kernels;  ///< "name: description" of those that run on it
};
struct Report {
  std::string
      driver;  ///< "CUDA 13.0 driver, libcuda.so.1 from <path>", or what is missing and where it was looked for
  std::string compiler;  ///< the same for NVRTC
  std::string cache;     ///< directory, entries and bytes, or why there is none
  std::vector<DeviceReport> devices;
};
Report report();

}  // namespace gemmule::cuda
