// The sm_90a BF16 dGLU kernel on the model: right results, and no hazard, whatever the timing.
#include <gtest/gtest.h>

#include "backends/cpu/cpu.hpp"
#include "model/dglu_on_model.hpp"
#include "verify/verify.hpp"

namespace gemmule::test {
namespace {

/// Runs on the model and on the CPU backend: no hazard, the same bytes.
void expect_same_as_cpu(const TestProblem& t, const ModelSettings& settings) {
  const Outputs got = t.outputs();
  const DgluReports reports = run_dglu_on_model(t, got, settings);
  EXPECT_EQ(reports.text(), "") << describe(t) << ", seed " << settings.seed;
  const Outputs expected = t.outputs();
  Buffer workspace(static_cast<std::int64_t>(cpu::workspace_size(t.problem, t.m)));
  cpu::run(t.problem, t.operands(expected), workspace.data(), static_cast<std::size_t>(workspace.size()));
  EXPECT_EQ(first_difference(t, got, expected), "") << describe(t) << ", seed " << settings.seed;
}

TEST(ModelDglu, ExactProblemGivesTheBytesOfTheCpuBackend) {
  struct Variant {
    const char* what;
    void (*change)(Problem&);
  };
  const Variant variants[] = {
      {"plain", [](Problem&) {}},
      {"dbias", [](Problem& p) { p.has_dbias = true; }},
      {"deterministic", [](Problem& p) { p.has_dbias = p.deterministic = true; }},
      {"f32 c and d", [](Problem& p) { p.c = p.d = DType::float32; }},
      {"c f32, d fp16", [](Problem& p) { p.c = DType::float32, p.d = DType::float16; }},
      {"c fp16, d f32", [](Problem& p) { p.c = DType::float16, p.d = DType::float32, p.has_dbias = true; }},
      {"no dprob", [](Problem& p) { p.has_dprob = p.has_prob = false; }},
      {"discrete", [](Problem& p) { p.discrete = true; }},
      {"discrete, n-major", [](Problem& p) { p.discrete = p.b_n_major = true; }},
  };
  for (const Variant& variant : variants) {
    for (const ActFunc act : {ActFunc::dswiglu, ActFunc::dgeglu}) {
      Problem p = basic_problem(Op::dglu, Format::bf16, 320, 200, act);
      variant.change(p);
      const TestProblem t = make_problem(p, {128, 0, 384, 256}, 128, 7, Data::exact);
      for (std::uint64_t seed = 1; seed <= 2; ++seed) {
        SCOPED_TRACE(variant.what);
        expect_same_as_cpu(t, {.dynamic = seed % 2 == 0, .seed = seed});
      }
    }
  }
}

TEST(ModelDglu, ClusterAndWideTiles) {
  for (const bool n_major : {false, true}) {
    Problem p = basic_problem(Op::dglu, Format::bf16, 416, 136);
    p.has_dbias = true;
    p.discrete = p.b_n_major = n_major;
    const TestProblem t = make_problem(p, {256, 0, 768, 512}, 256, 9, Data::exact);
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      for (const DgluTile tile : {DgluTile::n128_cluster2, DgluTile::n192_cluster2}) {
        expect_same_as_cpu(t, {.tile = tile, .multiprocessors = 4, .dynamic = seed % 2 == 0, .seed = seed});
      }
    }
  }
}

TEST(ModelDglu, EveryTimingGivesTheSameBytes) {
  Problem p = basic_problem(Op::dglu, Format::bf16, 288, 264, ActFunc::dgeglu);
  p.has_dbias = p.deterministic = true;
  const TestProblem t = make_problem(p, {0, 256, 0, 512}, 256, 21, Data::exact);
  for (const model::Timing timing : {model::Timing::early, model::Timing::late, model::Timing::random}) {
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      expect_same_as_cpu(t, {.tile = seed % 2 == 0 ? DgluTile::n64_cluster1 : DgluTile::n128_cluster2,
                             .dynamic = seed % 3 == 0,
                             .dependent = seed % 3 == 1,
                             .seed = seed,
                             .timing = timing});
    }
  }
}

TEST(ModelDglu, RandomDataIsWithinTheBoundOfTheReference) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const ActFunc act = seed % 2 == 0 ? ActFunc::dswiglu : ActFunc::dgeglu;
    Problem p = basic_problem(Op::dglu, Format::bf16, 160 + 32 * static_cast<std::int64_t>(seed),
                              72 + 40 * static_cast<std::int64_t>(seed), act);
    p.has_dbias = seed % 3 != 0;
    p.deterministic = seed % 3 == 1;
    p.geglu_value_filter = seed % 4 < 2;
    if (seed % 3 == 2) p.c = DType::float16, p.d = DType::float32;
    const TestProblem t = make_problem(p, {384, 128, 0, 256}, 128, seed, Data::random);
    const Outputs got = t.outputs();
    const DgluReports reports = run_dglu_on_model(t, got, {.multiprocessors = 3, .seed = seed});
    EXPECT_EQ(reports.text(), "") << describe(t);
    const verify::Report report =
        verify::compare(t.problem, t.inputs(), t.operands(got), {.poison = poison_byte});
    EXPECT_TRUE(report.passed()) << describe(t) << '\n' << verify::to_string(report);
  }
}

/// The instructions and bytes that a derivation of the kernel's speed counts on.
TEST(ModelDglu, InstructionsAndBytesPerTile) {
  const std::int64_t n = 256, k = 320, row_tiles = 6, column_tiles = n / 128, k_blocks = k / 64;
  const TestProblem t =
      make_problem(basic_problem(Op::dglu, Format::bf16, n, k), {128 * row_tiles}, 0, 5, Data::exact);
  const Outputs out = t.outputs();
  const model::Report report = run_dglu_on_model(t, out, {}).main;
  EXPECT_EQ(report.text(), "");
  const std::int64_t tiles = row_tiles * column_tiles;
  using model::Op;
  // Two rows of accumulators, four slices of 16 k in a block; a slice reads 64 rows of A and 128 of B, 32 bytes each.
  EXPECT_EQ(report.count(Op::wgmma).calls, tiles * k_blocks * 4 * 2);
  EXPECT_EQ(report.count(Op::wgmma).bytes, tiles * k_blocks * 4 * 2 * (64 + 128) * 32);
  // A and B of every block, and C of every tile (gate and input), 2 bytes each.
  EXPECT_EQ(report.count(Op::tma_load).bytes, tiles * (k_blocks * (128 + 128) * 64 * 2 + 128 * 256 * 2));
  EXPECT_EQ(report.count(Op::tma_store).bytes, tiles * 128 * 256 * 2);
  // The epilogue stores D in shared memory once; everything else there are 16-byte tile records, one more per CTA.
  EXPECT_EQ(report.count(Op::shared_store).bytes, tiles * 128 * 256 * 2 + (tiles + 2) * 16);
}

}  // namespace
}  // namespace gemmule::test
