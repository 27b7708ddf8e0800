// The numbers in the operands of a test problem.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backends/reference/formats.hpp"
#include "backends/reference/layout.hpp"
#include "support/problems.hpp"

namespace gemmule::test {
namespace {

using reference::bits_of;
using reference::ceil_div;
using reference::scale_bytes_of;
using reference::scale_index;

constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

std::int64_t bytes_of(DType type, std::int64_t values) {
  return values * bits_of(type) / 8;
}

class Filler {
 public:
  Filler(Problem problem, const std::vector<std::int64_t>& group_rows, std::int64_t tail_rows,
         std::uint64_t seed, Data data)
      : rng_(seed * 0x9E3779B97F4A7C15u + 1), groups_(group_rows) {
    problem.experts = static_cast<int>(group_rows.size());
    t.problem = problem;
    t.data = data;
    t.seed = seed;
    std::int32_t end = 0;
    for (const std::int64_t rows : group_rows)
      t.padded_offsets.push_back(end += static_cast<std::int32_t>(rows));
    t.m = end + tail_rows;
    valid_ = end;
    if (problem.single_group_runtime_offsets) t.padded_offsets = {0};  // must not be looked at
  }

  TestProblem fill() {
    draw_scale_exponents();
    fill_a();
    fill_b();
    fill_vectors();
    if (p().op == Op::dglu) fill_c();
    prepare_outputs();
    return std::move(t);
  }

 private:
  const Problem& p() const { return t.problem; }
  bool exact() const { return t.data == Data::exact; }
  std::int64_t blocks() const { return ceil_div(p().k, p().vec); }

  Buffer random_bytes(std::int64_t bytes) {
    Buffer buffer(bytes);
    for (std::int64_t i = 0; i < bytes; ++i) {
      // A third of the bytes is NaN in e8m0 (0xFF) or e4m3 (0x7F, 0xFF).
      const std::uint64_t r = rng_.bits();
      buffer.data()[i] = r % 3 == 0 ? (r & 8 ? 0xFF : 0x7F) : static_cast<std::uint8_t>(r >> 8);
    }
    return buffer;
  }

  /// A and B of one expert and k-block get scales 2^e and 2^-e times a small factor: extreme codes, ordinary products.
  void draw_scale_exponents() {
    if (!p().block_scaled()) return;
    int reach =
        0;  // the largest exponent for which every code times its scale is exact in BF16, less the jitter
    if (p().scale == DType::float8_e4m3fn)
      reach = 5;
    else if (p().ab == DType::float8_e4m3fn)
      reach = 117;
    else
      reach = p().ab == DType::float8_e5m2 ? 110 : 123;
    exponents_.resize(groups_.size() * blocks());
    for (int& e : exponents_) e = rng_.chance(0.2) ? static_cast<int>(rng_.integer(-reach, reach)) : 0;
  }

  std::uint8_t scale_code(int exponent) {
    if (p().scale == DType::float8_e8m0fnu) {
      const int jitter = static_cast<int>(exact() ? rng_.integer(0, 1) : rng_.integer(-1, 1));
      return static_cast<std::uint8_t>(127 + exponent + jitter);
    }
    if (!exact() && rng_.chance(0.02)) return 0;  // a zero scale
    const double fraction = exact() ? 1 : 1 + static_cast<double>(rng_.integer(0, 7)) / 8;
    return static_cast<std::uint8_t>(
        reference::encode(p().scale, static_cast<float>(std::ldexp(fraction, exponent))));
  }

  float operand() {
    if (exact()) return static_cast<float>(rng_.integer(-1, 1));
    if (rng_.chance(0.05)) return 0;
    if (p().ab == DType::float4_e2m1fn_x2)
      return static_cast<float>(reference::decode(p().ab, static_cast<std::uint32_t>(rng_.integer(0, 15))));
    const double magnitude = std::exp2(rng_.real(-4, rng_.chance(0.01) ? 5 : 1));
    return static_cast<float>(rng_.chance(0.5) ? magnitude : -magnitude);
  }

  void fill_a() {
    t.a = random_bytes(bytes_of(p().ab, t.m * p().k));
    for (std::int64_t m = 0; m < valid_; ++m) {
      const bool zero_row = rng_.chance(0.02);
      for (std::int64_t begin = 0; begin < p().k; begin += 32) {
        const bool zero_block = zero_row || rng_.chance(0.03);
        for (std::int64_t k = begin; k < std::min(begin + 32, p().k); ++k)
          reference::store(t.a.data(), p().ab, m * p().k + k, zero_block ? 0.0f : operand());
      }
    }
    if (!p().block_scaled()) return;
    t.sfa = random_bytes(scale_bytes_of(t.m, blocks()));
    std::int64_t m = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g)
      for (const std::int64_t end = m + groups_[g]; m < end; ++m)
        for (std::int64_t block = 0; block < blocks(); ++block)
          t.sfa.data()[scale_index(m, block, blocks())] = scale_code(exponents_[g * blocks() + block]);
  }

  void fill_b() {
    const std::int64_t experts = p().experts, values = p().n * p().k;
    const std::int64_t scale_bytes = p().block_scaled() ? scale_bytes_of(p().n, blocks()) : 0;
    const std::int64_t buffers = p().discrete ? experts : 1, per_buffer = p().discrete ? 1 : experts;
    for (std::int64_t i = 0; i < buffers; ++i) {
      t.b.push_back(Buffer(bytes_of(p().ab, per_buffer * values)));
      if (p().block_scaled()) t.sfb.push_back(random_bytes(per_buffer * scale_bytes));
    }
    for (std::int64_t g = 0; g < experts; ++g) {
      const std::int64_t buffer = p().discrete ? g : 0, slot = p().discrete ? 0 : g;
      for (std::int64_t i = 0; i < values; ++i)
        reference::store(t.b[buffer].data(), p().ab, slot * values + i, operand());
      if (!p().block_scaled()) continue;
      for (std::int64_t n = 0; n < p().n; ++n)
        for (std::int64_t block = 0; block < blocks(); ++block)
          t.sfb[buffer].data()[slot * scale_bytes + scale_index(n, block, blocks())] =
              scale_code(-exponents_[g * blocks() + block]);
    }
    if (!p().discrete) return;
    for (const Buffer& b : t.b) t.b_ptrs.push_back(reinterpret_cast<std::int64_t>(b.data()));
    for (const Buffer& s : t.sfb) t.sfb_ptrs.push_back(reinterpret_cast<std::int64_t>(s.data()));
  }

  void fill_vectors() {
    const std::int64_t experts = p().experts;
    t.alpha = Buffer(experts * 4);
    t.beta = Buffer(p().op == Op::dglu ? experts * 4 : 0);
    for (std::int64_t g = 0; g < experts; ++g) {
      float& alpha = t.alpha.as<float>()[g];
      alpha = exact() ? rng_.pick({1.0f, -1.0f, 0.5f, 2.0f})
                      : static_cast<float>(rng_.real(0.05, 0.4) * (rng_.chance(0.3) ? -1 : 1));
      if (rng_.chance(0.05)) alpha = 0;
      if (p().op == Op::dglu) t.beta.as<float>()[g] = beta();
    }
    t.prob = Buffer(p().has_prob ? t.m * 4 : 0);
    for (std::int64_t m = 0; p().has_prob && m < t.m; ++m)
      t.prob.as<float>()[m] = m < valid_ ? prob() : nan_value;
    t.norm_const = Buffer(p().quantize ? 4 : 0);
    if (p().quantize) *t.norm_const.as<float>() = rng_.pick({1.0f, 0.01f, 0.25f, 0.1f, 30.0f});
    if (p().bias == DType::none) return;
    t.bias = Buffer(bytes_of(p().bias, experts * p().n));
    for (std::int64_t i = 0; i < experts * p().n; ++i)
      reference::store(
          t.bias.data(), p().bias, i,
          exact() ? static_cast<float>(rng_.integer(-3, 3)) : static_cast<float>(rng_.real(-2, 2)));
  }

  float beta() {
    if (exact()) return rng_.pick({1.0f, 0.5f, 2.0f, -1.0f});
    return rng_.chance(0.4) ? 1.0f : static_cast<float>(rng_.real(-1.5, 1.5));
  }

  float prob() {
    if (rng_.chance(0.05)) return 0;
    if (exact()) return rng_.pick({1.0f, 0.5f, -1.0f, 2.0f, 0.25f});
    return static_cast<float>(rng_.real(-1, 1));
  }

  /// Gate and input after beta, as C holds them.
  void fill_c() {
    t.c_in = random_bytes(bytes_of(p().c, t.m * p().width()));
    std::int64_t m = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const float scale = t.beta.as<float>()[g];
      for (const std::int64_t end = m + groups_[g]; m < end; ++m)
        for (std::int64_t column = 0; column < p().width(); ++column) {
          const bool gate = column / 32 % 2 == 0;
          const float value = exact() ? (gate ? exact_gate() : exact_input()) / scale : pre_activation();
          reference::store(t.c_in.data(), p().c, m * p().width() + column, value);
        }
    }
  }

  float pre_activation() {
    if (rng_.chance(0.1))
      return rng_.pick({7.0f, -7.0f, 8.5f, -8.5f, 0.0f, -0.0f, 20.0f, -20.0f, 60.0f, -60.0f});
    return static_cast<float>(rng_.real(-3, 3) + rng_.real(-3, 3));
  }

  float exact_gate() {
    return p().act == ActFunc::dgeglu ? rng_.pick({0.0f, -128.0f}) : rng_.pick({0.0f, 128.0f, -128.0f});
  }

  float exact_input() {
    if (p().act != ActFunc::dsituglu) return static_cast<float>(rng_.integer(-2, 2));
    const float far = 32 * p().situ_beta2;
    return rng_.pick({0.0f, far, -far});
  }

  void prepare_outputs() {
    const std::int64_t values = t.m * p().width(), experts = p().experts;
    Outputs& out = t.initial;
    if (p().op == Op::srelu) out.c = Buffer(bytes_of(p().c, values));
    out.d = Buffer(bytes_of(p().d, values));
    if (p().has_d_col) out.d_col = Buffer(bytes_of(p().d, values));
    if (p().quantize) {
      out.sfd_row = Buffer(scale_bytes_of(t.m, ceil_div(p().width(), 32)));
      out.sfd_col = Buffer(scale_bytes_of(p().width(), ceil_div(t.m, 32)));
    }
    if (p().has_amax) {
      out.amax = Buffer(experts * (p().op == Op::srelu ? 1 : 2) * 4);
      for (std::int64_t i = 0; i < out.amax.size() / 4; ++i)
        out.amax.as<float>()[i] = rng_.chance(0.8) ? -std::numeric_limits<float>::infinity() : 1.5f;
    }
    if (p().has_dprob) {
      out.dprob = Buffer(t.m * 4);
      for (std::int64_t m = 0; m < t.m; ++m)
        out.dprob.as<float>()[m] = static_cast<float>(rng_.integer(-2, 2));
    }
    if (p().has_dbias) {
      out.dbias = Buffer(experts * p().width() * 2);
      for (std::int64_t i = 0; i < experts * p().width(); ++i)
        reference::store(out.dbias.data(), DType::bfloat16, i, static_cast<float>(rng_.integer(-2, 2)));
    }
  }

  TestProblem t;
  Random rng_;
  std::vector<std::int64_t> groups_;
  std::int64_t valid_ = 0;
  std::vector<int> exponents_;  // per expert and k-block
};

/// Rows per expert: an empty one, one tile, several tiles and a hot one in random order, sometimes with more empty ones.
std::vector<std::int64_t> random_rows(Random& rng, std::int64_t tile, int max_tiles) {
  std::vector<std::int64_t> rows = {0, tile, tile * rng.integer(2, std::max(2, max_tiles / 2)),
                                    tile * max_tiles};
  while (rng.chance(0.3)) rows.push_back(rng.pick({std::int64_t{0}, tile}));
  for (std::size_t i = rows.size() - 1; i > 0; --i)
    std::swap(rows[i], rows[rng.integer(0, static_cast<std::int64_t>(i))]);
  return rows;
}

void draw_knobs(Random& rng, Problem& p) {
  p.m_aligned = rng.chance(0.5) ? 128 : 256;
  p.deterministic = rng.chance(0.5);
  p.vector_f32 = rng.chance(0.5);
  p.use_dynamic_sched = rng.chance(0.5);
  if (rng.chance(0.5) || p.m_aligned == 128) {
    p.tile.m = 128;
    p.cluster = {1, 1};
  }
}

void draw_srelu(Random& rng, Problem& p, Data data) {
  const bool fp4 = p.ab == DType::float4_e2m1fn_x2;
  p.c = rng.pick({DType::float32, DType::float16, DType::bfloat16, DType::float8_e4m3fn, DType::float8_e5m2,
                  DType::float4_e2m1fn_x2});
  p.d = fp4 ? rng.pick({DType::float32, DType::float16, DType::bfloat16})
            : rng.pick({DType::float16, DType::bfloat16, DType::float8_e4m3fn, DType::float8_e4m3fn,
                        DType::float8_e5m2, DType::float4_e2m1fn_x2});
  p.bias = rng.chance(0.6) ? DType::none : rng.pick({DType::bfloat16, DType::float16, DType::float32});
  if (rng.chance(0.3)) p.tanh_clamp_scale = data == Data::exact ? 0x1p-6f : rng.pick({0.5f, 8.0f, 16.0f});
}

void draw_dglu(Random& rng, Problem& p, Data data, const Wanted& wanted) {
  const bool scaled = p.block_scaled(), fp8 = scaled && p.ab != DType::float4_e2m1fn_x2;
  p.act = wanted.act ? *wanted.act : rng.pick({ActFunc::dswiglu, ActFunc::dgeglu, ActFunc::dsituglu});
  if (!scaled && p.act == ActFunc::dsituglu) p.act = ActFunc::dgeglu;
  p.linear_offset = p.act == ActFunc::dgeglu ? rng.pick({1.0f, 0.0f, 0.5f}) : 0.0f;
  p.geglu_value_filter = p.act == ActFunc::dgeglu && rng.chance(0.5);
  p.c = rng.pick({DType::float32, DType::float16, DType::bfloat16});
  if (scaled && rng.chance(0.3)) p.c = rng.pick({DType::float8_e4m3fn, DType::float8_e5m2});
  p.d = fp8 ? rng.pick({DType::float8_e4m3fn, DType::float8_e5m2})
            : rng.pick({DType::float32, DType::float16, DType::bfloat16});
  p.has_dbias = rng.chance(0.5);
  if (scaled) {
    p.has_prob = rng.chance(0.8);
    p.has_dprob = rng.chance(0.8);
    p.epilogue_op = rng.chance(0.6) ? EpilogueOp::none : rng.pick({EpilogueOp::relu, EpilogueOp::srelu});
    if (p.act == ActFunc::dgeglu && rng.chance(0.3)) {
      p.geglu_alpha = rng.pick({1.0f, 2.0f});
      p.glu_clamp_max = 3.5f;
      p.glu_clamp_min = -2.0f;
    }
  }
  if (p.act == ActFunc::dsituglu) {
    p.situ_beta1 = rng.pick({4.0f, 2.0f});
    p.situ_beta2 = rng.pick({25.0f, 10.0f});
    if (data == Data::exact) p.situ_beta2 = p.c == DType::float8_e4m3fn ? 4.0f : 16.0f;  // C holds 64 * beta2
  }
}

}  // namespace

TestProblem make_problem(Problem problem, const std::vector<std::int64_t>& group_rows, std::int64_t tail_rows,
                         std::uint64_t seed, Data data) {
  return Filler(problem, group_rows, tail_rows, seed, data).fill();
}

TestProblem random_problem(std::uint64_t seed, const Wanted& wanted) {
  Random rng(seed);
  const Op op = wanted.op ? *wanted.op : rng.pick({Op::srelu, Op::dglu});
  Format format = wanted.format ? *wanted.format : all_formats[rng.integer(0, 5)];
  if (op == Op::srelu && format == Format::bf16) format = Format::mxfp8;
  Problem p = basic_problem(op, format, 0, 0);
  if (op == Op::srelu)
    draw_srelu(rng, p, wanted.data);
  else
    draw_dglu(rng, p, wanted.data, wanted);

  const bool fp4 = p.ab == DType::float4_e2m1fn_x2, fp8 = p.block_scaled() && !fp4;
  p.quantize = fp8 && bits_of(p.d) <= 8;
  p.has_d_col = p.quantize || (p.block_scaled() && rng.chance(0.2));
  p.discrete_col_sfd = p.quantize && rng.chance(0.5);
  p.has_amax = p.block_scaled() && rng.chance(p.d == DType::bfloat16 || p.d == DType::float16 ? 0.9 : 0.2);
  p.discrete = rng.chance(0.4);
  p.b_n_major = (fp8 || (!p.block_scaled() && p.discrete)) && rng.chance(0.4);
  draw_knobs(rng, p);

  // Rows of every operand are multiples of 16 bytes; dGLU needs whole blocks of 32.
  const std::int64_t n_step =
      op == Op::dglu || p.c == DType::float4_e2m1fn_x2 || p.d == DType::float4_e2m1fn_x2 ? 32 : 16;
  const std::int64_t k_step = fp4 ? 32 : fp8 ? 16 : 8;
  p.n = n_step * rng.integer(1, wanted.max_n / n_step);
  p.k = k_step * rng.integer(1, wanted.max_k / k_step);

  std::vector<std::int64_t> rows = random_rows(rng, p.m_aligned, wanted.max_tiles);
  std::int64_t tail = rng.chance(0.6) ? p.m_aligned * rng.integer(1, 2) : 0;
  if (op == Op::dglu && p.block_scaled() && rng.chance(0.05)) {
    p.single_group_runtime_offsets = true;
    rows = {rows[0] + p.m_aligned};
    tail = 0;
  }
  return make_problem(p, rows, tail, seed, wanted.data);
}

}  // namespace gemmule::test
