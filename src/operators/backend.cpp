#include "operators/backend.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "backends/cpu/cpu.hpp"
#include "backends/cuda/cuda.hpp"
#include "backends/reference/reference.hpp"

namespace gemmule::operators {

void check_available(const Problem& problem, Backend backend, Device device) {
  if (backend != Backend::cuda) return;
  try {
    cuda::check_available(problem, device.index);
  } catch (const RuntimeFailure& e) {
    throw RuntimeFailure(name(device) + " cannot be used: " + e.what());
  }
}

Executable::Executable(const Problem& problem, Backend backend, Device device)
    : problem_(problem),
      backend_(backend),
      cuda_plan_(backend == Backend::cuda ? cuda::compile(problem, device.index) : nullptr) {}

std::size_t Executable::workspace_size(std::int64_t m) const {
  if (m == 0) return 0;
  switch (backend_) {
    case Backend::cpu:
      return cpu::workspace_size(problem_, m);
    case Backend::cuda:
      return cuda::workspace_size(*cuda_plan_, m);
    default:
      return 0;
  }
}

void Executable::run(const Operands& operands, void* workspace, std::size_t workspace_bytes,
                     Stream stream) const {
  if (operands.m == 0) return;  // legal: no rows, nothing to write
  switch (backend_) {
    case Backend::cpu:
      return cpu::run(problem_, operands, workspace, workspace_bytes);
    case Backend::cuda:
      return cuda::execute(*cuda_plan_, operands, workspace, workspace_bytes, stream);
    default:
      return reference::run(problem_, operands);
  }
}

bool device_checks_requested() noexcept {
  return cuda::checks_requested();
}

bool read_device_values(const Tensor& tensor, void* host, Stream stream) {
  return cuda::read_values(tensor.device.index, tensor.data, host, tensor.bytes(), stream);
}

void initialise(const Tensor& tensor, InitialValue value, Stream stream) {
  constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
  if (tensor.device.type == DeviceType::cuda) {
    // dbias holds 2N bf16 values per expert and amax float32: whole 32-bit words.
    const auto word = value == InitialValue::zero ? 0u : std::bit_cast<std::uint32_t>(minus_infinity);
    cuda::fill(tensor.device.index, tensor.data, word, tensor.bytes() / 4, stream);
  } else if (value == InitialValue::zero) {
    std::memset(tensor.data, 0, tensor.bytes());
  } else {
    std::fill_n(static_cast<float*>(tensor.data), tensor.numel(), minus_infinity);
  }
}

}  // namespace gemmule::operators
