#include "operators/backend.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "backends/cpu/cpu.hpp"
#include "backends/reference/reference.hpp"

namespace gemmule::operators {
namespace {

[[noreturn]] void no_cuda(Device device) {
  throw RuntimeFailure(name(device) + ": this build has no CUDA backend");
}

}  // namespace

void check_available(Backend backend, Device device) {
  if (backend == Backend::cuda) no_cuda(device);
}

Executable::Executable(const Problem& problem, Backend backend, Device device)
    : problem_(problem), backend_(backend), device_(device) {
  check_available(backend, device);
}

std::size_t Executable::workspace_size(std::int64_t m) const {
  switch (backend_) {
    case Backend::cpu:
      return m > 0 ? cpu::workspace_size(problem_, m) : 0;
    case Backend::cuda:
      no_cuda(device_);
    default:
      return 0;
  }
}

void Executable::run(const Operands& operands, void* workspace, std::size_t workspace_bytes, Stream) const {
  if (operands.m == 0) return;  // legal: no rows, nothing to write
  switch (backend_) {
    case Backend::cpu:
      cpu::run(problem_, operands, workspace, workspace_bytes);
      break;
    case Backend::cuda:
      no_cuda(device_);
    default:
      reference::run(problem_, operands);
      break;
  }
}

void initialise(const Tensor& tensor, InitialValue value, Stream) {
  if (tensor.device.type == DeviceType::cuda) no_cuda(tensor.device);
  if (value == InitialValue::zero) {
    std::memset(tensor.data, 0, tensor.bytes());
  } else {
    auto* first = static_cast<float*>(tensor.data);
    std::fill(first, first + tensor.numel(), -std::numeric_limits<float>::infinity());
  }
}

}  // namespace gemmule::operators
