#include "backends/cuda/checks.hpp"

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "backends/cuda/driver.hpp"
#include "gemmule/error.hpp"

namespace gemmule::cuda {
namespace {

template <class T>
std::vector<T> download(const T* device, std::size_t count, StreamHandle stream) {
  std::vector<T> host(count);
  check(driver().cuMemcpyDtoHAsync(host.data(), reinterpret_cast<DeviceAddress>(device), count * sizeof(T),
                                   stream),
        "cuMemcpyDtoHAsync");
  check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
  return host;
}

bool capturing(StreamHandle stream) {
  int status = capture_status_none;
  check(driver().cuStreamIsCapturing(stream, &status), "cuStreamIsCapturing");
  return status != capture_status_none;
}

}  // namespace

bool checks_requested() noexcept {
  static const bool requested = [] {
    const char* value = std::getenv("GEMMULE_CHECK");
    return value && *value && std::string(value) != "0";
  }();
  return requested;
}

void check_offsets(const std::int32_t* offsets, int experts, int m_aligned, std::int64_t m) {
  std::int64_t previous = 0;
  for (int e = 0; e < experts; ++e) {
    const std::int64_t end = offsets[e];
    const std::string what =
        "padded_offsets[" + std::to_string(e) + "] is " + std::to_string(end) + ", must be ";
    if (end < previous) throw InvalidArgument(what + "at least its predecessor, " + std::to_string(previous));
    if (end % m_aligned != 0) throw InvalidArgument(what + "a multiple of " + std::to_string(m_aligned));
    if (end > m) throw InvalidArgument(what + "at most the number of rows of A, " + std::to_string(m));
    previous = end;
  }
}

void check_pointers(const char* argument, const std::int64_t* pointers, int experts) {
  for (int e = 0; e < experts; ++e)
    if (pointers[e] == 0 || pointers[e] % 16 != 0)
      throw InvalidArgument(std::string(argument) + "[" + std::to_string(e) + "] is " +
                            std::to_string(pointers[e]) +
                            ", must be a device address that is a multiple of 16");
}

void check_device_values(const Problem& problem, const Operands& operands, StreamHandle stream) {
  if (capturing(stream)) {
    static std::atomic_flag said;
    if (!said.test_and_set())
      std::fprintf(stderr,
                   "gemmule: GEMMULE_CHECK cannot read device memory while the stream is being captured\n");
    return;
  }
  const auto experts = static_cast<std::size_t>(problem.experts);
  if (operands.padded_offsets && !problem.single_group_runtime_offsets)
    check_offsets(download(operands.padded_offsets, experts, stream).data(), problem.experts,
                  problem.m_aligned, operands.m);
  if (operands.b_ptrs)
    check_pointers("b_ptrs", download(operands.b_ptrs, experts, stream).data(), problem.experts);
  if (operands.sfb_ptrs)
    check_pointers("sfb_ptrs", download(operands.sfb_ptrs, experts, stream).data(), problem.experts);
  if (operands.norm_const) {
    const float value = download(operands.norm_const, 1, stream)[0];
    if (!(value > 0) || !std::isfinite(value))
      throw InvalidArgument("norm_const is " + std::to_string(value) + ", must be positive and finite");
  }
}

}  // namespace gemmule::cuda
