// The epilogue of the block-scaled dGLU kernel on the model: loads of C, gradients, quantization, stores, sums, with
// accumulators filled in directly. D, D_col, scales and amax must be the bytes of the cpu backend.
#include <gtest/gtest.h>

#include "backends/cpu/cpu.hpp"
#include "backends/cuda/sm90_scaled.hpp"
#include "engine/tma.hpp"
#include "model/kernel_run.hpp"
#include "model/one_hot.hpp"
#include "scheduler/tile_scheduler.hpp"
#include "sm90/scaled_dglu_epilogue.hpp"
#include "support/problems.hpp"
#include "verify/verify.hpp"

namespace gemmule::test {
namespace {

using kernels::ScaledDgluEpilogue;
using kernels::ScaledDgluOptions;
using kernels::ScaledDgluParams;
using kernels::ScaledDgluStaging;
using kernels::Tile;
using numerics::i64;
using numerics::u32;
namespace fragment = kernels::fragment;

constexpr int ctas = 2;
constexpr i64 half = 128;  ///< rows of a warpgroup's tile

/// What every thread sees.
struct Call {
  ScaledDgluOptions options;
  ScaledDgluParams params{};
  ScaledDgluStaging staging;
  std::vector<Tile> tiles;  ///< 256 rows each, or 128
  const float* sum = nullptr;
  i64 sum_columns = 0;
};

/// The last tile of an expert may have rows for the first warpgroup only.
bool takes(const Call& call, const Tile& tile, u32 group) {
  return tile.row + group * half < call.params.common.offsets[tile.expert];
}

/// Warps 0 and 1 load C for the two warpgroups of 128 threads that follow.
void run_cta(const Call& call) {
  const u32 warp = ptx::warp_index();
  const u32 group = warp < 4 ? warp % 2 : warp / 4 - 1;
  const ptx::Shared<numerics::u8> base = ptx::dynamic_shared();
  const ptx::Barrier barriers = base.bytes(2 * call.staging.bytes).as<ptx::Mbarrier>();
  if (ptx::thread_index() == 0) {
    ScaledDgluEpilogue::init_barriers(call.staging.c_buffers, barriers);
    ptx::fence_barrier_init();
  }
  ptx::sync_cta();
  const ScaledDgluEpilogue epilogue{call.options, call.params, call.staging, base, barriers, 128};
  if (warp < 4) {
    if (warp > 1 || ptx::lane_index() != 0) return;
    u32 number = 0;
    for (std::size_t i = ptx::cta_index(); i < call.tiles.size(); i += ctas) {
      const Tile& tile = call.tiles[i];
      if (!takes(call, tile, group)) continue;
      for (u32 n = 0; n < tile.columns; n += fragment::chunk_columns)
        epilogue.feed_chunk(group, tile.row + group * static_cast<u32>(half), tile.column + n, number++);
    }
    return;
  }
  epilogue.start();
  for (std::size_t i = ptx::cta_index(); i < call.tiles.size(); i += ctas) {
    if (!takes(call, call.tiles[i], group)) continue;
    Tile tile = call.tiles[i];
    tile.row += group * static_cast<u32>(half);
    ptx::sync_warp();  // in place of reading the tile's record
    epilogue.begin(tile.row, tile.column, tile.columns, tile.expert, 1.0f);
    const u32 thread = ptx::thread_index() % ptx::warpgroup_size;
    ScaledDgluEpilogue::Accumulators accumulators;
    for (u32 r = 0; r < fragment::rows; ++r) {
      accumulators[r / 2].state().initialised = true;
      accumulators[r / 2].state().width = 128;
      const float* row = call.sum + (tile.row + fragment::row(thread, r)) * call.sum_columns;
      for (u32 n = 0; n < 4; ++n)
        for (u32 j = 0; j < fragment::columns; ++j)
          accumulators[r / 2].values()[n * 16 + fragment::element(r, j)] =
              row[tile.column + n * 32 + fragment::column(thread % 32) + j];
    }
    epilogue.run(accumulators);
  }
  epilogue.finish();
}

struct Case {
  std::int64_t n;
  DType c, d;
  ActFunc act = ActFunc::dswiglu;
  bool quantize = false, discrete_col_sfd = false;
  EpilogueOp post = EpilogueOp::none;
  bool dbias = false, deterministic = false, d_col = false;
  bool value_filter = false;
  float beta1 = 4.0f;
  std::uint32_t bytes = kernels::scaled::dglu_staging_limit;  ///< of a warpgroup's epilogue
  float special_prob = -0.5f;
};

TestProblem problem_of(const Case& test, std::uint64_t seed) {
  Problem p = basic_problem(Op::dglu, Format::mxfp8, test.n, 128, test.act);
  p.c = test.c;
  p.d = test.d;
  p.quantize = test.quantize;
  p.has_d_col = test.quantize || test.d_col;
  p.discrete_col_sfd = test.discrete_col_sfd;
  p.epilogue_op = test.post;
  p.has_amax = p.has_dprob = p.has_prob = true;
  p.has_dbias = test.dbias;
  p.deterministic = test.deterministic;
  p.geglu_value_filter = test.value_filter;
  p.situ_beta1 = test.beta1;
  p.discrete = p.b_n_major = false;
  p.m_aligned = 128;
  TestProblem t = make_problem(p, {128, 0, 256, 384}, 128, seed);
  t.prob.as<float>()[77] = test.special_prob;
  return t;
}

/// The kernel's tiles, in any order, over all columns.
std::vector<Tile> tiles_of(const TestProblem& t) {
  std::vector<Tile> tiles;
  for (i64 column = 0; column < t.problem.n; column += 128) {
    for (std::size_t g = 0; g < t.padded_offsets.size(); ++g) {
      const i64 begin = layout::group_start(t.padded_offsets.data(), static_cast<i64>(g));
      for (i64 row = begin; row < t.padded_offsets[g]; row += 2 * half)
        tiles.push_back({static_cast<u32>(row), static_cast<u32>(column), static_cast<u32>(g),
                         static_cast<u32>(std::min<i64>(128, t.problem.n - column))});
    }
  }
  return tiles;
}

model::Report run_epilogue(TestProblem& t, const std::vector<float>& sum, i64 columns, const Outputs& out,
                           const Case& test, std::uint64_t seed) {
  const Problem& p = t.problem;
  const Operands o = t.operands(out);
  Call call;
  call.options = cuda::host::scaled_dglu_options(p);
  call.staging = kernels::scaled_dglu_staging(call.options, test.bytes);
  EXPECT_GT(call.staging.c_buffers, 0u);
  call.tiles = tiles_of(t);
  call.sum = sum.data();
  call.sum_columns = columns;
  const cuda::host::Scratch places = cuda::sm90::scaled_scratch(p, t.m);
  Buffer scratch(static_cast<i64>(places.bytes));
  std::byte* workspace = reinterpret_cast<std::byte*>(scratch.data());
  call.params = cuda::sm90::scaled_dglu_params(p, o, workspace);
  const cuda::sm90::ScaledMaps maps = cuda::sm90::scaled_maps(p, o);
  model::place_tensor_map(maps.c, &call.params.common.c);
  model::place_tensor_map(maps.d, &call.params.common.d);
  model::place_tensor_map(maps.d_col, &call.params.common.d_col);

  model::GlobalMemory memory;
  register_memory(memory, t, out, scratch);
  model::LaunchOptions launch;
  launch.seed = seed;
  launch.granule = 1;
  launch.grid = ctas;
  launch.threads = 384;
  launch.shared_bytes = 2 * call.staging.bytes + 4 * call.staging.c_buffers * 8;
  model::Report report = model::launch(launch, memory, [&] { run_cta(call); });

  if (!cuda::host::needs_finish(p)) return report;
  const kernels::DgluFinishParams finish =
      cuda::host::finish_params(p, o, workspace, places, cuda::sm90::scaled_column_tiles(p));
  const model::Report sums = run_finish(launch, memory, finish);
  EXPECT_EQ(sums.text(), "");
  return report;
}

/// A run on random data.
struct Trial {
  Trial(const Case& test, std::uint64_t seed)
      : t(problem_of(test, seed)), expected(t.outputs()), got(t.outputs()) {
    const i64 columns = layout::round_up(t.problem.n, 128);
    const std::vector<float> sum = one_hot(t, columns);
    Buffer workspace(static_cast<i64>(cpu::workspace_size(t.problem, t.m)));
    cpu::run(t.problem, t.operands(expected), workspace.data(), static_cast<std::size_t>(workspace.size()));
    report = run_epilogue(t, sum, columns, got, test, seed);
  }
  /// Sums depend on the order of additions; everything else must be the same bytes, padding scales included.
  std::string difference() const {
    Outputs same_sums = got;
    same_sums.dprob = expected.dprob;
    same_sums.dbias = expected.dbias;
    if (!(got.sfd_row == expected.sfd_row)) return "sfd_row";
    if (!(got.sfd_col == expected.sfd_col)) return "sfd_col";
    return first_difference(t, same_sums, expected);
  }

  TestProblem t;
  Outputs expected, got;
  model::Report report;
};

void expect_equal(const Case& test, std::uint64_t seed) {
  const Trial run(test, seed);
  EXPECT_EQ(run.report.text(), "");
  EXPECT_EQ(run.difference(), "") << describe(run.t);
  const TestProblem& t = run.t;
  const verify::Report report =
      verify::compare(t.problem, t.inputs(), t.operands(run.got), {.poison = poison_byte});
  for (const verify::Check& check : report.checks)
    EXPECT_TRUE(check.passed()) << describe(t) << "\n" << verify::to_string(report);
}

constexpr DType bf16 = DType::bfloat16, f16 = DType::float16, f32 = DType::float32,
                e4m3 = DType::float8_e4m3fn, e5m2 = DType::float8_e5m2;

TEST(ScaledDgluEpilogue, WideOutputs) {
  expect_equal({.n = 160, .c = bf16, .d = bf16}, 1);
  expect_equal({.n = 96, .c = bf16, .d = f32, .act = ActFunc::dgeglu, .dbias = true, .d_col = true}, 2);
  expect_equal({.n = 64, .c = f32, .d = f32, .post = EpilogueOp::srelu, .dbias = true, .deterministic = true},
               3);
  expect_equal({.n = 32, .c = e4m3, .d = f16, .act = ActFunc::dsituglu, .post = EpilogueOp::relu}, 4);
  expect_equal({.n = 128, .c = f16, .d = bf16, .act = ActFunc::dsituglu, .beta1 = 2.5f, .bytes = 38 * 1024},
               5);
}

TEST(ScaledDgluEpilogue, OneBufferOfCInPlace) {
  expect_equal({.n = 160, .c = bf16, .d = bf16, .dbias = true, .bytes = 24 * 1024}, 12);
}

TEST(ScaledDgluEpilogue, QuantizedOutputs) {
  expect_equal({.n = 160, .c = bf16, .d = e4m3, .quantize = true, .deterministic = true}, 6);
  expect_equal({.n = 96,
                .c = e5m2,
                .d = e5m2,
                .act = ActFunc::dgeglu,
                .quantize = true,
                .discrete_col_sfd = true,
                .dbias = true,
                .value_filter = true},
               7);
  expect_equal({.n = 64,
                .c = f32,
                .d = e4m3,
                .act = ActFunc::dsituglu,
                .quantize = true,
                .discrete_col_sfd = true,
                .post = EpilogueOp::relu,
                .dbias = true},
               8);
  expect_equal({.n = 32, .c = e4m3, .d = e4m3, .quantize = true, .post = EpilogueOp::srelu}, 9);
}

TEST(ScaledDgluEpilogue, RowsThatAreNotFinite) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float prob : {inf, std::numeric_limits<float>::quiet_NaN(), 3e38f}) {
    const Trial run({.n = 32, .c = bf16, .d = e4m3, .quantize = true, .special_prob = prob}, 10);
    EXPECT_EQ(run.report.text(), "");
    EXPECT_EQ(run.difference(), "") << prob;
  }
}

TEST(ScaledDgluEpilogue, TheComparisonSeesASingleCode) {
  Trial run({.n = 32, .c = bf16, .d = e4m3, .quantize = true}, 11);
  ASSERT_EQ(run.difference(), "");
  run.got.d_col.data()[100] ^= 1;
  EXPECT_NE(run.difference(), "");
}

}  // namespace
}  // namespace gemmule::test
