// The one place that knows which backends exist.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "operators/problem.hpp"

namespace gemmule::cuda {
class Plan;
}

namespace gemmule::operators {

/// Throws RuntimeFailure if `device` cannot be used, Unsupported if `backend` does not offer the problem on it.
void check_available(const Problem& problem, Backend backend, Device device);

/// A problem made executable. Immutable: any number of threads may run it at once.
class Executable {
 public:
  Executable(const Problem& problem, Backend backend, Device device);
  std::size_t workspace_size(std::int64_t m) const;
  void run(const Operands& operands, void* workspace, std::size_t workspace_bytes, Stream stream) const;

 private:
  Problem problem_;
  Backend backend_;
  std::shared_ptr<const cuda::Plan> cuda_plan_;  ///< null on the host
};

/// GEMMULE_CHECK=1: values in device memory are checked too, which synchronises.
bool device_checks_requested() noexcept;
/// Copies a contiguous tensor in device memory to the host. False while the stream is being captured.
bool read_device_values(const Tensor& tensor, void* host, Stream stream);

/// Sets every element of a contiguous tensor on `stream`: to zero, or (float32 only) to minus infinity.
enum class InitialValue : std::uint8_t { zero, minus_infinity };
void initialise(const Tensor& tensor, InitialValue value, Stream stream);

}  // namespace gemmule::operators
