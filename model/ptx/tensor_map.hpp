// The descriptor of a tensor in global memory. On the device it is what the driver encodes; here its bytes hold the
// plain description (model::place_tensor_map).
#pragma once

#include "numerics/config.hpp"

namespace gemmule::ptx {

struct alignas(64) TensorMap {
  numerics::u64 words[16];
};

}  // namespace gemmule::ptx
