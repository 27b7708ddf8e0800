// The sm_100 kernels on the model in clusters wider than a pair: the bytes of the CPU backend whatever the width, and A
// fetched once per cluster.
// GEMMULE_MODEL_PROBLEMS=N runs N random configurations, and the widest clusters (16 CTAs) with them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "model/sm100_on_model.hpp"
#include "support/scaled_problems.hpp"

namespace gemmule::test {
namespace {

using cuda::sm100::TileConfig;

/// Tiles of the model with two stages, so that rings wrap.
TileConfig tile_for(const Problem& p, std::uint32_t ctas, std::uint32_t width) {
  if (ctas == 1) return {128, 2, 1, width};
  return {p.block_scaled() ? 192u : 256u, 2, 2, width};
}

Sm100Settings settings_for(const TileConfig& tile, std::uint64_t seed, int clusters = 1) {
  return {.tile = tile,
          .multiprocessors = clusters * static_cast<int>(tile.ctas * tile.width),
          .dependent = seed % 2 == 0,
          .seed = seed};
}

std::string text(const TileConfig& tile) {
  return std::to_string(tile.ctas) + " x " + std::to_string(tile.width);
}

TEST(ModelSm100Clusters, EveryFormatGivesTheBytesOfTheCpuBackend) {
  std::uint64_t seed = 0;
  for (const Format format : all_formats) {
    for (const Op op : {Op::srelu, Op::dglu}) {
      if (format == Format::bf16 && op == Op::srelu) continue;
      // Three column tiles: the last is narrow, and of two or four side by side one has no columns. K ends inside an
      // instruction on e2m1.
      const std::uint32_t ctas = ++seed % 2 == 0 ? 1 : 2, width = seed % 3 == 0 ? 4 : 2;
      const TileConfig tile = tile_for(basic_problem(op, format, 32, 32), ctas, width);
      Problem p = basic_problem(op, format, 2 * tile.tile_n + 32, 352);
      p.use_dynamic_sched = seed % 4 == 0;
      const std::int64_t unit = 128 * ctas;
      const TestProblem t = make_problem(p, {unit, 0, unit}, 128, seed, Data::exact);
      EXPECT_EQ(difference_from_cpu(t, settings_for(tile, seed)), "") << text(tile) << ", " << describe(t);
    }
  }
}

TEST(ModelSm100Clusters, EveryWidthGivesTheSameBytes) {
  Problem scaled =
      basic_problem(Op::dglu, Format::nvfp4, 416, 320);  // one of the last stage's four atoms exists
  scaled.has_dbias = scaled.deterministic = scaled.discrete = true;
  Problem n_major = basic_problem(Op::srelu, Format::mxfp8, 416, 160);
  n_major.b_n_major = n_major.discrete = n_major.use_dynamic_sched = true;
  Problem bf16 = basic_problem(Op::dglu, Format::bf16, 416, 136);
  bf16.deterministic = bf16.b_n_major = true;
  const auto expect_same = [](const Problem& p, std::uint32_t ctas, std::uint32_t width, int clusters) {
    const std::int64_t unit = 128 * ctas;
    const TestProblem t = make_problem(p, {0, unit, unit}, 0, 5, Data::exact);
    const TileConfig tile = tile_for(p, ctas, width);
    EXPECT_EQ(difference_from_cpu(t, settings_for(tile, width, clusters)), "")
        << text(tile) << ", " << describe(t);
  };
  expect_same(scaled, 1, 2, 2);
  expect_same(scaled, 1, 4, 1);
  expect_same(scaled, 2, 2, 2);
  expect_same(scaled, 2, 4, 1);
  expect_same(n_major, 1, 4, 1);
  expect_same(bf16, 2, 2, 1);
  expect_same(bf16, 1, 8, 1);
  if (!std::getenv("GEMMULE_MODEL_PROBLEMS")) return;
  expect_same(bf16, 2, 8, 1);
  expect_same(bf16, 1, 16, 1);
}

TEST(ModelSm100Clusters, EveryTimingGivesTheSameBytes) {
  Problem d = basic_problem(Op::dglu, Format::mxfp4, 224, 288);
  d.has_dbias = d.deterministic = true;
  const TestProblem pairs = make_problem(d, {0, 256, 512}, 0, 21, Data::exact);
  const TestProblem singles =
      make_problem(basic_problem(Op::srelu, Format::mxfp8, 416, 544), {128, 0, 256}, 0, 22, Data::exact);
  for (const model::Timing timing : {model::Timing::early, model::Timing::late, model::Timing::random}) {
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      Sm100Settings two = settings_for({192, 2, 2, 2}, seed), four = settings_for({128, 2, 1, 4}, seed);
      two.timing = four.timing = timing;
      EXPECT_EQ(difference_from_cpu(pairs, two), "") << "seed " << seed;
      EXPECT_EQ(difference_from_cpu(singles, four), "") << "seed " << seed;
    }
  }
}

TEST(ModelSm100Clusters, RandomConfigurationsGiveTheBytesOfTheCpuBackend) {
  for (std::uint64_t seed = 1; seed <= problem_count("GEMMULE_MODEL_PROBLEMS", 4); ++seed) {
    const Format format = all_formats[seed % std::size(all_formats)];
    const TestProblem t =
        random_problem(seed, {.format = format, .data = Data::exact, .max_n = 512, .max_tiles = 2});
    const std::uint32_t ctas = cuda::sm100::tile_config(t.problem).ctas;
    const TileConfig tile = tile_for(t.problem, ctas, 2u << seed % 2);
    ASSERT_EQ(difference_from_cpu(t, settings_for(tile, seed)), "") << text(tile) << ", " << describe(t);
  }
}

/// What a cluster reads of A, its scales, B and its scales; C comes on top.
TEST(ModelSm100Clusters, AIsFetchedOnce) {
  const std::int64_t k = 256, stages = 2, c_bytes = 128 * 2 * 2;  // of a CTA's rows, per column
  for (const auto& [ctas, width] : {std::pair{1u, 4u}, {2u, 2u}}) {
    const Problem p = basic_problem(Op::dglu, Format::mxfp8, 3 * 128, k);
    const TestProblem t = make_problem(p, {256}, 0, 5, Data::exact);
    const TileConfig tile{ctas == 1 ? 128u : 192u, 2, ctas, width};
    const Outputs out = t.outputs();
    const model::Report report = run_sm100_on_model(t, out, settings_for(tile, 1)).main;
    EXPECT_EQ(report.text(), "");
    const std::int64_t tiles = p.n / tile.tile_n, groups = (tiles + width - 1) / width;
    const std::int64_t a = 128 * 128 + 512, sfb = tile.tile_n == 128 ? 512 : 1024;
    const std::int64_t b = tile.tile_n / ctas * 128 + sfb;
    const model::OpCount& loads = report.count(model::Op::tma_load);
    // Every CTA has a whole tile of A in its shared memory, also beyond N; each cluster reads it once.
    EXPECT_EQ(loads.fetched, 2 * (stages * (groups * a + tiles * b) + p.n * c_bytes)) << text(tile);
    EXPECT_EQ(loads.bytes, 2 * (stages * (groups * width * a + tiles * b) + p.n * c_bytes)) << text(tile);
  }
}

/// Bytes that a CTA of a pair fetches per stage.
double fetched_per_stage(Format format, std::uint32_t width) {
  Problem p = basic_problem(Op::dglu, format, 0, 0);
  const TileConfig tile = tile_for(p, 2, width);
  p.n = tile.tile_n * width;
  double fetched[2];
  for (int i = 0; i < 2; ++i) {
    p.k = cuda::sm100::operand_options(p).stage_k() * (i + 1);
    const TestProblem t = make_problem(p, {256}, 0, 5, Data::exact);
    const Outputs out = t.outputs();
    fetched[i] = static_cast<double>(
        run_sm100_on_model(t, out, settings_for(tile, 1)).main.count(model::Op::tma_load).fetched);
  }
  return (fetched[1] - fetched[0]) / (2 * width);
}

TEST(ModelSm100Clusters, TheTableOfTheDocumentationFollowsFromWhatTheModelCounts) {
  std::ifstream document(GEMMULE_DOCS "/blackwell.md");
  ASSERT_TRUE(document);
  const std::string text{std::istreambuf_iterator<char>(document), {}};
  // Per clock of the tensor cores, whose rate is as in the table of performance.md.
  const auto expect_row = [&](const char* name, Format format, double clocks, int widest) {
    const double one = fetched_per_stage(format, 1), two = fetched_per_stage(format, 2);
    const double a = 2 * (one - two), others = one - a;  // A's part is 1 / width
    std::string row = std::string("| ") + name + " |";
    for (int width = 1; width <= 8; width *= 2)
      row += width > widest ? " |" : " " + std::to_string(std::lround((a / width + others) / clocks)) + " |";
    EXPECT_NE(text.find("\n" + row + "\n"), std::string::npos) << row;
  };
  expect_row("MXFP8", Format::mxfp8, 384, 4);
  expect_row("NVFP4", Format::nvfp4, 384, 4);
  expect_row("BF16", Format::bf16, 512, 8);
}

}  // namespace
}  // namespace gemmule::test
