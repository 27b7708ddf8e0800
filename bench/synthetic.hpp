// A benchmark's operands: random codes with ordinary magnitudes, and memory for every output.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "operators/problem.hpp"

namespace gemmule::bench {

/// Where operands live, and how values made on the host get there.
class Memory {
 public:
  Memory() = default;
  virtual ~Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Aligned to at least 64 bytes; kept until the object goes.
  virtual void* allocate(std::int64_t bytes) = 0;
  using Generate = std::function<void(void* host, std::int64_t bytes)>;
  /// Fills memory; large blocks may repeat what was generated.
  virtual void fill(void* to, std::int64_t bytes, const Generate& generate) = 0;
};

class HostMemory : public Memory {
 public:
  void* allocate(std::int64_t bytes) override;
  void fill(void* to, std::int64_t bytes, const Generate& generate) override { generate(to, bytes); }

 private:
  std::vector<std::unique_ptr<std::uint8_t[]>> blocks_;
};

class Synthetic {
 public:
  Synthetic(const Problem& problem, const std::vector<std::int64_t>& rows, std::uint64_t seed,
            Memory& memory);

  const Operands& operands() const { return operands_; }
  /// Bytes of operands plus outputs.
  double bytes() const { return bytes_; }

 private:
  template <class T = std::uint8_t>
  T* allocate(std::int64_t count);

  Memory& memory_;
  Operands operands_;
  double bytes_ = 0;
};

/// Bytes of `values` elements as stored.
std::int64_t storage_bytes(DType dtype, std::int64_t values);
/// Fills memory with random values of a type.
void fill_random(Memory& memory, DType dtype, void* to, std::int64_t values, std::uint64_t seed);

}  // namespace gemmule::bench
