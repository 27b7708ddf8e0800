// Problems whose product is known without computing it, for tests of epilogues alone.
#pragma once

#include <cstring>
#include <vector>

#include "layout/scale_factors.hpp"
#include "numerics/formats.hpp"
#include "sm90/format.hpp"
#include "support/problems.hpp"

namespace gemmule::test {

using KernelFormat = kernels::Format;

inline KernelFormat kernel_format(DType type) {
  switch (type) {
    case DType::bfloat16:
      return KernelFormat::bf16;
    case DType::float16:
      return KernelFormat::fp16;
    case DType::float32:
      return KernelFormat::f32;
    case DType::float8_e4m3fn:
      return KernelFormat::e4m3;
    case DType::float8_e5m2:
      return KernelFormat::e5m2;
    default:
      return KernelFormat::e2m1;
  }
}

/// Sets A, B and their scales so that every row of A has a single one; returns the product [m][columns], zero past n: a
/// column of B, exactly, with values of many magnitudes. For dense MXFP8 problems.
inline std::vector<float> one_hot(TestProblem& t, numerics::i64 columns) {
  using numerics::i64;
  using numerics::u8;
  const Problem& p = t.problem;
  Random random(t.seed);
  std::vector<float> sum(static_cast<std::size_t>(t.m * columns), 0.0f);
  std::memset(t.a.data(), 0, static_cast<std::size_t>(t.a.size()));
  std::memset(t.sfa.data(), 127, static_cast<std::size_t>(t.sfa.size()));
  for (i64 m = 0; m < t.m; ++m) t.a.data()[m * p.k + m % p.k] = numerics::encode_e4m3(1.0f);
  u8* b = t.b[0].data();
  for (i64 i = 0; i < t.b[0].size(); ++i) {
    b[i] = static_cast<u8>(random.integer(0, 255));
    if ((b[i] & 0x7F) == 0x7F || random.chance(0.1)) b[i] = 0;
  }
  for (i64 i = 0; i < t.sfb[0].size(); ++i) t.sfb[0].data()[i] = static_cast<u8>(random.integer(116, 134));
  const i64 atoms = layout::block_atoms(p.k, 32);
  const i64 slab = layout::scale_buffer_bytes(p.n, p.k, 32);
  for (i64 m = 0; m < t.rows_written(); ++m) {
    const i64 g = layout::group_of_row(t.padded_offsets.data(), p.experts, m);
    const i64 k = m % p.k;
    for (i64 n = 0; n < p.n; ++n) {
      const u8 scale = t.sfb[0].data()[g * slab + layout::scale_offset(n, k / 32, atoms)];
      // The other terms are +0.
      sum[static_cast<std::size_t>(m * columns + n)] =
          0.0f + numerics::decode_e4m3(b[(g * p.n + n) * p.k + k]) * numerics::decode_e8m0(scale);
    }
  }
  return sum;
}

}  // namespace gemmule::test
