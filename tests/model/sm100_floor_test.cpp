// The table "Blackwell, on paper" of docs/performance.md follows from what the model counts per tile: tensor instructions,
// bytes copied to and from shared memory. Every number of every row is computed again.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "model/sm100_on_model.hpp"

namespace gemmule::test {
namespace {

// A B200 as docs/performance.md assumes it.
constexpr double multiprocessors = 148, hbm_bytes_per_second = 8e12;
constexpr double shared_bytes_per_clock = 128, schedulers = 4, issue_slots_filled = 0.7;
constexpr double bf16_multiply_adds_per_clock = 4096;
constexpr double clock_hz = 2.25e15 / (2 * bf16_multiply_adds_per_clock * multiprocessors);

struct Shape {
  double experts, rows, n, k;
};
const std::map<std::string, Shape> shapes = {
    {"deepseek-v3", {8, 4096, 2048, 7168}},     {"qwen3-235b", {16, 2048, 1536, 4096}},
    {"gpt-oss-120b", {16, 2048, 2880, 2880}},   {"mixtral-8x7b", {8, 4096, 14336, 4096}},
    {"nemotron3-nano", {16, 2048, 1856, 2688}}, {"square-4096", {8, 4096, 4096, 4096}},
};

struct Case {
  Op op;
  Format format;
  double rate;                     ///< of the tensor cores, BF16 = 1
  double instructions_per_column;  ///< of the epilogue, from the compiled code
  bool bf16_d = false;             ///< from FP8, whose usual D is quantized
};
const std::map<std::string, Case> cases = {
    {"sReLU MXFP8 -> bf16", {Op::srelu, Format::mxfp8, 2, 17, true}},
    {"sReLU MXFP8 -> row + column", {Op::srelu, Format::mxfp8, 2, 36}},
    {"sReLU NVFP4 -> bf16", {Op::srelu, Format::nvfp4, 4, 17}},
    {"dSwiGLU MXFP8 -> row + column", {Op::dglu, Format::mxfp8, 2, 68}},
    {"dSwiGLU NVFP4 -> bf16", {Op::dglu, Format::nvfp4, 4, 41}},
    {"dSwiGLU BF16", {Op::dglu, Format::bf16, 1, 37}},
};

struct Tile {
  std::uint32_t columns = 0, stage_k = 0;
  double multiply_adds_per_stage = 0;  ///< of one CTA
  double bytes_per_stage = 0;          ///< copied to shared memory
  double bytes_per_column = 0;         ///< of C and D, to and from shared memory
  double value_bytes = 0, scales_per_value = 0, scale_bytes_out = 0;
};

/// Counts on the model: one tile of a pair with one stage of k, and with two.
Tile count(const Case& c) {
  Problem p = basic_problem(c.op, c.format, 0, 0);
  if (c.bf16_d) {
    p.d = DType::bfloat16;
    p.quantize = p.has_d_col = false;
  }
  const std::uint32_t columns = cuda::sm100::tile_config(p).tile_n;
  const std::uint32_t stage_k = cuda::sm100::operand_options(p).stage_k();
  Tile tile{.columns = columns, .stage_k = stage_k};
  p.n = columns;
  double loads[2], stores[2], products[2];
  for (int i = 0; i < 2; ++i) {
    p.k = stage_k * (i + 1);
    const TestProblem t = make_problem(p, {256}, 0, 3, Data::exact);
    const model::Report report =
        run_sm100_on_model(t, t.outputs(), {.tile = {columns, 2, 2}, .multiprocessors = 2}).main;
    EXPECT_EQ(report.text(), "");
    loads[i] = static_cast<double>(report.count(model::Op::tma_load).bytes) / 2;
    stores[i] = static_cast<double>(report.count(model::Op::tma_store).bytes) / 2;
    products[i] = static_cast<double>(report.count(model::Op::tensor_mma).calls);
  }
  EXPECT_EQ(stores[0], stores[1]);
  tile.multiply_adds_per_stage = (products[1] - products[0]) * 128 * columns * stage_k / 4;
  tile.bytes_per_stage = loads[1] - loads[0];
  tile.bytes_per_column = (loads[0] - tile.bytes_per_stage + stores[0]) / columns;
  tile.value_bytes = 128.0 / stage_k;
  tile.scales_per_value = p.vec == 0 ? 0 : 1.0 / p.vec;
  // A row and a column scale per 32 values of D.
  if (p.quantize) tile.scale_bytes_out = 2 * (p.op == Op::dglu ? 2 : 1) / 32.0;
  return tile;
}

/// The columns of a row from "tensor" on, as the document writes them.
std::string row(const Case& c, const Tile& tile, const Shape& s) {
  const double m = s.experts * s.rows, clocks = multiprocessors * clock_hz;
  const double row_tiles = m / 128, stages = std::ceil(s.k / tile.stage_k);
  const double tensor = row_tiles * s.n / tile.columns * s.k / tile.stage_k * tile.multiply_adds_per_stage /
                        (bf16_multiply_adds_per_clock * c.rate * clocks);
  const double epilogue =
      m * s.n / 32 * c.instructions_per_column / (schedulers * issue_slots_filled * clocks);
  const double hbm = ((m + s.experts * s.n) * s.k * (tile.value_bytes + tile.scales_per_value) +
                      row_tiles * s.n * tile.bytes_per_column + m * s.n * tile.scale_bytes_out) /
                     hbm_bytes_per_second;
  const double shared =
      row_tiles *
      (std::ceil(s.n / tile.columns) * stages * tile.bytes_per_stage + s.n * tile.bytes_per_column) /
      (shared_bytes_per_clock * clocks);
  const double floor = std::max({tensor, epilogue, hbm});
  const auto us = [](double seconds) { return std::to_string(std::lround(seconds * 1e6)); };
  const char* binds = floor == tensor ? "tensor" : floor == epilogue ? "epilogue" : "HBM";
  return us(tensor) + " | " + us(epilogue) + " | " + us(hbm) + " | " + us(shared) + " to " + us(2 * shared) +
         " | " + binds + " | " + std::to_string(std::lround(2 * m * s.n * s.k / floor / 1e12));
}

TEST(ModelSm100Floor, TheTableFollowsFromWhatTheModelCounts) {
  std::map<std::string, Tile> tiles;
  for (const auto& [name, c] : cases) tiles[name] = count(c);
  // 16 KB of A, 64 bytes of B for each column, scale factors; the tensor cores take 384 clocks (BF16: 512).
  EXPECT_EQ(tiles["dSwiGLU MXFP8 -> row + column"].bytes_per_stage, 16384 + 64 * 192 + 1536);
  EXPECT_EQ(tiles["dSwiGLU NVFP4 -> bf16"].bytes_per_stage, 16384 + 64 * 192 + 6144);
  EXPECT_EQ(tiles["dSwiGLU BF16"].bytes_per_stage, 16384 + 64 * 256);
  EXPECT_EQ(tiles["sReLU NVFP4 -> bf16"].multiply_adds_per_stage / (4 * bf16_multiply_adds_per_clock), 384);
  EXPECT_EQ(tiles["dSwiGLU BF16"].multiply_adds_per_stage / bf16_multiply_adds_per_clock, 512);

  std::ifstream document(GEMMULE_DOCS "/performance.md");
  ASSERT_TRUE(document);
  std::size_t rows = 0;
  bool paper = false;
  for (std::string line; std::getline(document, line);) {
    if (line.starts_with("## ")) paper = line == "## Blackwell, on paper";
    const std::size_t second = line.find(" | ");
    if (!paper || !line.starts_with("| ") || second == std::string::npos) continue;
    const auto c = cases.find(line.substr(2, second - 2));
    if (c == cases.end()) continue;
    const std::size_t third = line.find(" | ", second + 3);
    const auto shape = shapes.find(line.substr(second + 3, third - second - 3));
    ASSERT_NE(shape, shapes.end()) << line;
    EXPECT_EQ(line.substr(third + 3), row(c->second, tiles[c->first], shape->second) + " |") << line;
    ++rows;
  }
  EXPECT_EQ(rows, cases.size() * shapes.size());
}

}  // namespace
}  // namespace gemmule::test
