// A benchmark's operands: random codes with ordinary magnitudes, and memory for every output.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "operators/problem.hpp"

namespace gemmule::bench {

class Synthetic {
 public:
  Synthetic(const Problem& problem, const std::vector<std::int64_t>& rows, std::uint64_t seed);

  const Operands& operands() const { return operands_; }
  /// Bytes of operands plus outputs.
  double bytes() const { return bytes_; }

 private:
  template <class T = std::uint8_t>
  T* allocate(std::int64_t count);

  Operands operands_;
  std::vector<std::unique_ptr<std::uint8_t[]>> memory_;
  double bytes_ = 0;
};

/// Bytes of `values` elements as stored.
std::int64_t storage_bytes(DType dtype, std::int64_t values);

}  // namespace gemmule::bench
