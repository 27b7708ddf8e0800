// Every function of numerics/ over arrays, compiled once per instruction set (see batch.cpp).
#pragma once

#include <cstdint>

namespace gemmule::batch {

struct Arrays {
  std::int64_t count;
  const float* x;      ///< inputs; also r, gate, input and prob of the gradients, at different offsets
  std::uint32_t* out;  ///< `outputs` results per input, as bits, one array after the other
};

inline constexpr int outputs = 24;

void scalar(const Arrays& arrays);
void baseline(const Arrays& arrays);
#if defined(__x86_64__)
void avx2(const Arrays& arrays);
void avx512(const Arrays& arrays);
#endif

}  // namespace gemmule::batch
