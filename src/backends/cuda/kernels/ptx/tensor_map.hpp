// The descriptor of a tensor in global memory that TMA instructions read: opaque here, encoded by the driver.
// Plain C++, so that the host can declare the kernel's parameters.
#pragma once

#include "numerics/config.hpp"

namespace gemmule::ptx {

struct alignas(64) TensorMap {
  numerics::u64 words[16];
};

}  // namespace gemmule::ptx
