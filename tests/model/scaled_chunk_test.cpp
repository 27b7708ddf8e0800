// The epilogue of the block-scaled sReLU kernel, chunk by chunk on the model, against the bytes of the cpu backend.
//
// Every row of A has a single one, so that the product is a column of B, exactly, whatever computes it: the accumulators
// are filled in directly, with values of many magnitudes.
#include <gtest/gtest.h>

#include "backends/cpu/cpu.hpp"
#include "engine/machine.hpp"
#include "epilogue/srelu_chunk.hpp"
#include "model/one_hot.hpp"
#include "ptx/fence.hpp"
#include "sm90/scaled_layout.hpp"
#include "support/problems.hpp"

namespace gemmule::test {
namespace {

using kernels::ScaledSreluOptions;
using kernels::ScaledSreluParams;
using kernels::Shared;
using numerics::i64;
using numerics::u32;
using numerics::u8;
constexpr u32 chunks = 4;
constexpr i64 tile = 128;  ///< rows and columns
namespace fragment = kernels::fragment;
namespace box = kernels::box;

/// 128 accumulators of a thread.
struct Accumulators {
  float value[2][64];
  u32 first = 0;
  float get(u32 half, u32 element) const { return value[half][first + element]; }
};

/// Staged boxes of one tile in shared memory, and behind them atoms and scratch.
struct Staging {
  explicit Staging(const ScaledSreluOptions& o)
      : c(kernels::scaled::box_bytes(o.common.c)),
        d(kernels::scaled::box_bytes(o.common.d)),
        chunk(c + 2 * d) {}
  u32 c, d, chunk;
  u32 atoms() const { return chunks * chunk; }
  u32 scratch() const { return atoms() + 1024; }
  u32 bytes() const { return scratch() + 4 * kernels::scaled::quantize_scratch * 4; }
};

/// One CTA is one row tile.
void run_tile(const ScaledSreluOptions& o, const ScaledSreluParams& p, const float* sum, u8* staged) {
  const u32 thread = ptx::thread_index();
  const u32 row = ptx::cta_index() * 128;
  const Staging staging(o);
  const Shared<u8> base = ptx::dynamic_shared();
  u32 expert = 0;
  while (row >= static_cast<u32>(ptx::load(p.common.offsets + expert))) ++expert;
  Accumulators accumulators;
  kernels::SreluFactors factors{ptx::load(p.common.alpha + expert), {}, 0};
  if (o.common.quantize) factors.norm_const = ptx::load(p.common.norm_const);
  for (u32 r = 0; r < fragment::rows; ++r) {
    const u32 m = row + fragment::row(thread, r);
    factors.prob[r] = p.common.prob ? ptx::load(p.common.prob + m * p.common.prob_stride) : 1.0f;
    for (u32 chunk = 0; chunk < chunks; ++chunk)
      for (u32 i = 0; i < fragment::columns; ++i)
        accumulators.value[r / 2][chunk * 16 + fragment::element(r, i)] =
            ptx::load(sum + m * tile + chunk * 32 + fragment::column(thread % 32) + i);
  }
  const kernels::ScaleAtoms atoms{base.bytes(staging.atoms()), base.bytes(staging.atoms() + 512)};
  const Shared<float> scratch =
      base.bytes(staging.scratch()).as<float>() + thread / 32 * kernels::scaled::quantize_scratch;
  float amax = 0;
  for (u32 chunk = 0; chunk < chunks; ++chunk) {
    if (chunk * 32 >= p.common.n) {
      if (o.common.quantize) kernels::clear_scales(atoms, chunk, thread);
      continue;
    }
    accumulators.first = chunk * fragment::chunk_elements;
    const Shared<u8> at = base.bytes(chunk * staging.chunk);
    const u32 in_d = staging.c + box::thread_offset(o.common.d, thread);
    const kernels::SreluBoxes boxes{at.bytes(box::thread_offset(o.common.c, thread)), at.bytes(in_d),
                                    at.bytes(in_d + staging.d)};
    const void* bias = nullptr;
    if (o.has_bias)
      bias = static_cast<const u8*>(p.bias) +
             (i64{expert} * p.common.n + chunk * 32) * kernels::bytes_of(o.bias);
    kernels::srelu_chunk(o, accumulators, factors, bias, p.common.n - chunk * 32, boxes, atoms, chunk, thread,
                         scratch, amax);
    ptx::sync_warp();
  }
  if (o.common.has_amax) kernels::merge_maximum(p.common.amax + expert, amax);
  ptx::sync_cta();
  if (o.common.quantize && thread < 64)
    kernels::store_scales(o.common, p.common, atoms, expert, row, 0, p.common.n, thread);
  u8* to = staged + i64{ptx::cta_index()} * staging.atoms();
  const u32 existing = (p.common.n + 31) / 32 * staging.chunk;
  for (u32 at = thread * 16; at < existing; at += 128 * 16) {
    if (at % staging.chunk >= staging.c + staging.d && !o.common.quantize) continue;
    ptx::store(reinterpret_cast<ptx::U32x4*>(to + at), ptx::load(base.bytes(at).as<ptx::U32x4>()));
  }
}

/// Copies the existing columns of a box to a matrix.
void unpack(const u8* from, KernelFormat format, u8* matrix, i64 width, i64 row, i64 column) {
  const i64 bits = kernels::bits_of(format);
  const i64 pitch = kernels::scaled::box_row_bytes(format);
  const i64 bytes = std::min<i64>(32, width - column) * bits / 8;
  for (i64 r = 0; r < tile; ++r)
    for (i64 b = 0; b < bytes; ++b) {
      const i64 swizzled = format == KernelFormat::f32 ? b ^ ((r % 8) << 4) : b;
      matrix[((row + r) * width + column) * bits / 8 + b] = from[r * pitch + swizzled];
    }
}

struct Case {
  std::int64_t n;
  DType c, d;
  bool quantize = false, discrete_col_sfd = false;
  DType bias = DType::none;
  float clamp = 0;
  bool has_prob = true;
  float special_prob = 0.25f;  ///< of one row
  float norm_const = 1.0f;
};

TestProblem problem_of(const Case& c, std::uint64_t seed) {
  Problem p = basic_problem(Op::srelu, Format::mxfp8, c.n, 128);
  p.c = c.c;
  p.d = c.d;
  p.quantize = p.has_d_col = c.quantize;
  p.discrete_col_sfd = c.discrete_col_sfd;
  p.has_amax = true;
  p.bias = c.bias;
  p.tanh_clamp_scale = c.clamp;
  p.has_prob = c.has_prob;
  p.discrete = p.b_n_major = false;
  p.m_aligned = 128;
  TestProblem t = make_problem(p, {128, 0, 256}, 128, seed);
  if (c.quantize) t.norm_const.as<float>()[0] = c.norm_const;
  if (c.has_prob) t.prob.as<float>()[77] = c.special_prob;
  return t;
}

void expect_equal(const Case& test, std::uint64_t seed) {
  TestProblem t = problem_of(test, seed);
  const std::vector<float> sum = one_hot(t, tile);
  const Problem& p = t.problem;
  Outputs expected = t.outputs(), got = t.outputs();
  Buffer workspace(static_cast<i64>(cpu::workspace_size(p, t.m)));
  cpu::run(p, t.operands(expected), workspace.data(), static_cast<std::size_t>(workspace.size()));

  ScaledSreluOptions o;
  o.common.c = kernel_format(p.c);
  o.common.d = kernel_format(p.d);
  o.common.quantize = p.quantize;
  o.common.discrete_col_sfd = p.discrete_col_sfd;
  o.common.has_amax = true;
  o.has_bias = p.bias != DType::none;
  if (o.has_bias) o.bias = kernel_format(p.bias);
  o.clamp = p.tanh_clamp_scale != 0;
  o.clamp_scale = p.tanh_clamp_scale;
  if (o.clamp) o.clamp_scale_rcp = numerics::finite_reciprocal(o.clamp_scale);
  const Operands operands = t.operands(got);
  ScaledSreluParams params{};
  params.common.offsets = operands.padded_offsets;
  params.common.alpha = operands.alpha;
  params.common.prob = operands.prob;
  params.common.prob_stride = operands.prob_stride;
  params.common.norm_const = operands.norm_const;
  params.common.sfd_row = operands.sfd_row;
  params.common.sfd_col = operands.sfd_col;
  params.common.amax = operands.amax;
  params.common.m = t.m;
  params.common.n = static_cast<u32>(p.n);
  params.bias = operands.bias;

  const Staging staging(o);
  model::GlobalMemory memory;
  const auto add = [&](const Buffer& b, const char* name, model::Access access) {
    if (b.size() > 0) memory.add(b.data(), static_cast<std::size_t>(b.size()), name, access);
  };
  std::vector<float> sums = sum;
  Buffer staged(t.rows_written() / tile * staging.atoms());
  memory.add(sums, "sums", model::Access::read_only);
  memory.add(t.padded_offsets, "offsets", model::Access::read_only);
  add(t.alpha, "alpha", model::Access::read_only);
  add(t.prob, "prob", model::Access::read_only);
  add(t.norm_const, "norm_const", model::Access::read_only);
  add(t.bias, "bias", model::Access::read_only);
  add(staged, "staged", model::Access::write_once);
  add(got.sfd_row, "sfd_row", model::Access::write_once);
  add(got.sfd_col, "sfd_col", model::Access::write_once);
  add(got.amax, "amax", model::Access::read_write);
  model::LaunchOptions launch;
  launch.seed = seed;
  launch.granule = 1;
  launch.grid = static_cast<int>(t.rows_written() / tile);
  launch.shared_bytes = staging.bytes();
  const model::Report report =
      model::launch(launch, memory, [&] { run_tile(o, params, sums.data(), staged.data()); });
  EXPECT_EQ(report.text(), "");

  for (i64 row = 0; row < t.rows_written(); row += tile) {
    for (i64 column = 0; column < p.n; column += 32) {
      const u8* from = staged.data() + row / tile * staging.atoms() + column / 32 * staging.chunk;
      unpack(from, o.common.c, got.c.data(), p.n, row, column);
      unpack(from + staging.c, o.common.d, got.d.data(), p.n, row, column);
      if (p.quantize) unpack(from + staging.c + staging.d, o.common.d, got.d_col.data(), p.n, row, column);
    }
  }
  EXPECT_EQ(first_difference(t, got, expected), "") << describe(t);
}

constexpr DType bf16 = DType::bfloat16, f16 = DType::float16, f32 = DType::float32,
                e4m3 = DType::float8_e4m3fn, e5m2 = DType::float8_e5m2, e2m1 = DType::float4_e2m1fn_x2;

TEST(ScaledChunk, PlainOutputs) {
  expect_equal({.n = 128, .c = bf16, .d = bf16}, 1);
  expect_equal({.n = 104, .c = f16, .d = f16, .has_prob = false}, 2);
  expect_equal({.n = 44, .c = f32, .d = f32, .bias = f32}, 3);
  expect_equal({.n = 112, .c = e4m3, .d = bf16, .bias = bf16}, 4);
  expect_equal({.n = 48, .c = e5m2, .d = f16, .bias = f16, .clamp = 16.0f}, 5);
  expect_equal({.n = 96, .c = e2m1, .d = f32, .clamp = 0.5f}, 6);
}

TEST(ScaledChunk, QuantizedOutputs) {
  expect_equal({.n = 128, .c = bf16, .d = e4m3, .quantize = true, .norm_const = 0.01f}, 7);
  expect_equal({.n = 112, .c = f16, .d = e5m2, .quantize = true, .discrete_col_sfd = true}, 8);
  expect_equal({.n = 48, .c = f32, .d = e4m3, .quantize = true, .bias = bf16, .norm_const = 0.1f}, 9);
  expect_equal({.n = 96, .c = e4m3, .d = e2m1, .quantize = true, .discrete_col_sfd = true, .clamp = 32.0f},
               10);
}

TEST(ScaledChunk, RowsThatAreNotFinite) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float prob : {inf, -inf, std::numeric_limits<float>::quiet_NaN(), 3e38f, 0.0f, -0.0f}) {
    expect_equal({.n = 112, .c = bf16, .d = e4m3, .quantize = true, .special_prob = prob}, 11);
    expect_equal({.n = 32, .c = bf16, .d = e2m1, .quantize = true, .special_prob = prob}, 12);
  }
  expect_equal({.n = 80, .c = bf16, .d = bf16, .special_prob = inf}, 13);
}

}  // namespace
}  // namespace gemmule::test
