#include "support/scaled_problems.hpp"

#include <cstdlib>
#include <limits>

#include "backends/reference/layout.hpp"
#include "numerics/config.hpp"

namespace gemmule::test {
namespace {

float magnitude(Random& rng) {
  const auto exponent = static_cast<numerics::u32>(rng.integer(0, 255));
  const auto sign = static_cast<numerics::u32>(rng.integer(0, 1)) << 31;
  switch (rng.integer(0, 3)) {
    case 0:  // anything, NaN and infinity included
      return numerics::float_of(sign | exponent << 23 | static_cast<numerics::u32>(rng.integer(0, 0x7FFFFF)));
    case 1:  // near 448 2^e, 6 2^e and 128 2^e, where a scale code changes
    {
      const numerics::u32 largest = rng.pick({0x43E00000u, 0x40C00000u, 0x43000000u});
      const auto shift = static_cast<numerics::u32>(rng.integer(-100, 100)) << 23;
      return numerics::float_of(sign | (largest + shift + static_cast<numerics::u32>(rng.integer(-2, 2))));
    }
    case 2:  // subnormal
      return numerics::float_of(sign | static_cast<numerics::u32>(rng.integer(0, 0x7FFFFF)));
    default:
      return rng.chance(0.5) ? 0.0f : std::numeric_limits<float>::infinity();
  }
}

std::int64_t bytes_per_row(const Problem& p) {
  return p.ab == DType::float4_e2m1fn_x2 ? p.k / 2 : p.k;
}

/// Calls visit(row of the operand's data, expert) for the coded rows.
template <class Visit>
void for_coded_rows(const TestProblem& t, bool in_b, const Visit& visit) {
  for (int expert = 0; expert < t.problem.experts; ++expert)
    for (const std::int64_t row : coded_rows) visit(expert * (in_b ? t.problem.n : 256) + row, expert);
}

/// A byte of FP8 data: of A at [row][k]; of dense B at [expert's first column + column][k], wherever it is stored.
std::uint8_t& operand_byte(const TestProblem& t, bool in_b, std::int64_t row, std::int64_t k) {
  const Problem& p = t.problem;
  if (!in_b) return t.a.data()[row * p.k + k];
  const std::int64_t slab = row / p.n * p.n * p.k, column = row % p.n;
  return t.b[0].data()[slab + (p.b_n_major ? k * p.n + column : column * p.k + k)];
}

}  // namespace

Format scaled_format(std::uint64_t seed) {
  return all_formats[1 + seed % (std::size(all_formats) - 1)];
}

void plain_bf16(Problem& p) {
  p.d = DType::bfloat16;
  p.quantize = p.has_d_col = false;
  p.has_amax = true;
}

std::uint64_t problem_count(const char* variable, std::uint64_t otherwise) {
  const char* value = std::getenv(variable);
  return value ? std::strtoull(value, nullptr, 10) : otherwise;
}

TestProblem every_magnitude(const Problem& p, std::int64_t rows, std::uint64_t seed) {
  TestProblem t = make_problem(p, {rows}, 0, seed, Data::exact);
  t.alpha.as<float>()[0] = 1;
  Random rng(seed);
  for (std::int64_t m = 0; m < t.m; ++m) t.prob.as<float>()[m] = magnitude(rng);
  return t;
}

TestProblem with_specials(TestProblem t) {
  const Problem& p = t.problem;
  const std::int64_t blocks = reference::ceil_div(p.k, p.vec);
  const auto nan_scale = static_cast<std::uint8_t>(p.scale == DType::float8_e4m3fn ? 0x7F : 0xFF);
  t.sfa.data()[reference::scale_index(3, 0, blocks)] = nan_scale;
  t.sfa.data()[reference::scale_index(200, blocks - 1, blocks)] = nan_scale;
  t.sfb[0].data()[reference::scale_index(17, 1, blocks)] = nan_scale;
  if (p.ab == DType::float4_e2m1fn_x2) return t;
  const std::int64_t pitch = bytes_per_row(p);
  t.a.data()[70 * pitch + 5] = 0x7F;
  t.a.data()[71 * pitch + p.k - 1] = 0xFF;
  if (!p.b_n_major) t.b[0].data()[40 * pitch + 33] = 0x7F;
  if (p.ab != DType::float8_e5m2) return t;
  t.a.data()[72 * pitch + 1] = 0x7C;
  t.a.data()[73 * pitch + 64] = 0xFC;
  return t;
}

TestProblem with_code(Problem p, bool in_b, std::uint8_t code, std::uint64_t seed) {
  p.n = 96;
  p.discrete = false;
  TestProblem t = make_problem(p, {256, 256}, 0, seed, Data::exact);
  const std::int64_t blocks = reference::ceil_div(p.k, p.vec);
  const std::int64_t expert_bytes = reference::scale_bytes_of(p.n, blocks);
  for (const bool of_b : {false, true}) {
    // Ordinary rows are 2^40 to 2^42, the others 2^(code - 87).
    const int ordinary = of_b == in_b ? 127 : 167;
    const std::int64_t rows = of_b ? p.n : 256;
    for (std::int64_t row = 0; row < 2 * rows; ++row) {
      std::uint8_t* scales = of_b ? t.sfb[0].data() + row / rows * expert_bytes : t.sfa.data();
      const bool far = row / rows == 1 && row % rows == 40;
      for (std::int64_t block = 0; block < blocks; ++block)
        scales[reference::scale_index(of_b ? row % rows : row, block, blocks)] =
            static_cast<std::uint8_t>(ordinary + (row + block) % 2 - (far ? 30 : 0));
    }
  }
  for_coded_rows(t, in_b, [&](std::int64_t row, int expert) {
    std::uint8_t* scales = in_b ? t.sfb[0].data() + expert * expert_bytes : t.sfa.data();
    for (std::int64_t block = 0; block < blocks; ++block)
      scales[reference::scale_index(in_b ? row % p.n : row, block, blocks)] = code;
  });
  return t;
}

TestProblem with_zeros_in_coded_rows(TestProblem t, bool in_b) {
  for_coded_rows(t, in_b, [&](std::int64_t row, int) {
    for (std::int64_t k = 0; k < t.problem.k; ++k) operand_byte(t, in_b, row, k) = 0;
  });
  return t;
}

TestProblem with_infinities_in_coded_rows(TestProblem t, bool in_b) {
  for_coded_rows(t, in_b, [&](std::int64_t row, int) { operand_byte(t, in_b, row, 33 + row % 31) = 0x7C; });
  return t;
}

TestProblem many_small_experts(Problem p, int experts, std::uint64_t seed, Data data) {
  p.m_aligned = 128;
  std::vector<std::int64_t> rows(static_cast<std::size_t>(experts), 128);
  for (std::size_t i = 0; i < rows.size(); i += 7) rows[i] = i % 2 == 0 ? 0 : 256;
  return make_problem(p, rows, 0, seed, data);
}

}  // namespace gemmule::test
