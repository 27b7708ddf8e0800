// The cases of the litmus kernels: inputs, tensor maps, and the words that must come out, worked out from the rules as
// documented (rows and chunks), not from the model's address arithmetic.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/cuda/tensor_map.hpp"

namespace gemmule::litmus {

enum class Kernel : std::uint8_t { load, store, multiply, multiply_registers, load_bytes, phases, cluster };

struct Case {
  std::string name;
  Kernel kernel = Kernel::load;
  int grid = 1, cluster = 1;
  // Tensors in memory and how maps describe them (the base address is filled in by the runner).
  std::vector<std::uint16_t> a, b;
  cuda::TensorMap a_map, b_map;
  std::int32_t x = 0, y = 0;
  std::uint32_t bytes = 0, n_major = 0;
  std::vector<std::uint32_t> out;      ///< words the kernel must write
  std::vector<std::uint16_t> a_after;  ///< store: the tensor afterwards
  bool illegal = false;                ///< the device stops with an illegal instruction
};

/// Those that stop the device come last.
std::vector<Case> all_cases();

}  // namespace gemmule::litmus
