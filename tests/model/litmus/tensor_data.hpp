// Inputs of the tcgen05 litmus kernel and what must come out, worked out from the layouts as documented.
#pragma once

#include <string>
#include <vector>

#include "model/litmus/tensor_case.hpp"

namespace gemmule::litmus {

struct TensorData {
  TensorData(const TensorCase& c, u32 seed);
  TensorCase test;
  std::vector<numerics::u8> a, b;                ///< [cta][a_bytes], [cta][b_bytes]: swizzled tiles
  std::vector<numerics::u8> a_scales, b_scales;  ///< [tile % 2][cta][word][512 bytes per 128 rows]
  std::vector<float> expected;                   ///< [tile][m][n]
};

std::vector<TensorCase> tensor_cases();
std::string name_of(const TensorCase& c);

}  // namespace gemmule::litmus
