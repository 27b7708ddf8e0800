// The sm_100 kernels on the model, for one CTA and for pairs: right results, and no hazard, whatever the timing.
// GEMMULE_MODEL_PROBLEMS=N runs N random configurations, and N problems of each tile shape, instead of a few.
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "model/sm100_on_model.hpp"
#include "support/scaled_problems.hpp"
#include "verify/verify.hpp"

namespace gemmule::test {
namespace {

using cuda::sm100::TileConfig;

constexpr TileConfig single{128, 2, 1}, wide_single{192, 3, 1}, pair{192, 2, 2}, bf16_pair{256, 2, 2};

TileConfig pair_for(const Problem& p) {
  return p.block_scaled() ? pair : bf16_pair;
}

/// Of the shapes with as many CTAs and columns as the host's that have the fewest stages or, with even seeds, the most that
/// it could have; a narrower one if there is none.
TileConfig tile_for(const Problem& p, std::uint64_t seed) {
  const TileConfig host = cuda::sm100::tile_config(p);
  std::optional<TileConfig> chosen;
  for (const TileConfig& tile : sm100_tiles(p.op)) {
    if (tile.tile_n != host.tile_n || tile.ctas != host.ctas || tile.stages > host.stages) continue;
    if (!chosen || (seed % 2 == 0 ? tile.stages > chosen->stages : tile.stages < chosen->stages))
      chosen = tile;
  }
  return chosen.value_or(host.ctas == 2 ? pair : single);
}

Sm100Settings settings_for(const Problem& p, std::uint64_t seed) {
  const TileConfig tile = tile_for(p, seed);
  return {.tile = tile, .multiprocessors = tile.ctas == 2 ? 4 : 3, .seed = seed};
}

void expect_within_bound(const TestProblem& t, const Sm100Settings& settings) {
  const Outputs got = t.outputs();
  EXPECT_EQ(run_sm100_on_model(t, got, settings).text(), "") << describe(t);
  const verify::Report report =
      verify::compare(t.problem, t.inputs(), t.operands(got), {.poison = poison_byte});
  EXPECT_TRUE(report.passed()) << describe(t) << '\n' << verify::to_string(report);
}

TEST(ModelSm100, EveryFormatInOneCtaAndInPairs) {
  for (const Format format : all_formats) {
    for (const Op op : {Op::srelu, Op::dglu}) {
      if (format == Format::bf16 && op == Op::srelu) continue;
      // K ends in the middle of an instruction on e2m1, N in the middle of a tile.
      const TestProblem one =
          make_problem(basic_problem(op, format, 160, 288), {128, 0, 256}, 128, 7, Data::exact);
      EXPECT_EQ(difference_from_cpu(one, {.tile = single}), "") << describe(one);
      if (format != Format::bf16) {
        EXPECT_EQ(
            difference_from_cpu(make_problem(basic_problem(op, format, 288, 160), {128}, 0, 7, Data::exact),
                                {.tile = wide_single}),
            "");
      }
      const Problem p = basic_problem(op, format, 288, 352);
      const TestProblem two = make_problem(p, {256, 0, 256}, 256, 7, Data::exact);
      EXPECT_EQ(difference_from_cpu(two, {.tile = pair_for(p), .multiprocessors = 4}), "") << describe(two);
    }
  }
}

/// A problem for which the host would choose the tile's columns and CTAs. Seeds up to 143 choose as many different extents:
/// N up to 416 and K up to 352, in the middle of tiles, chunks, stages and instructions.
TestProblem problem_for(Op op, const TileConfig& tile, std::uint64_t seed) {
  const Format format = tile.tile_n == 256 ? Format::bf16 : Format::mxfp8;
  const auto round = static_cast<std::int64_t>(seed);
  // dGLU wants multiples of 32 columns.
  const std::int64_t n = 32 * (1 + round * 7 % 13) - (op == Op::srelu ? 16 * (round % 2) : 0);
  const std::int64_t k = 32 * (1 + round * 5 % 11) - (format == Format::bf16 ? 8 * (round % 3) : 0);
  Problem p = basic_problem(op, format, n, k);
  if (op == Op::dglu && tile.tile_n == 128 && tile.ctas == 2) {
    p = basic_problem(op, Format::nvfp4, n, k);
    p.c = p.d = DType::float32;
  }
  if (op == Op::dglu && tile.tile_n == 128 && tile.ctas == 1) {
    p.b_n_major = true;
    p.c = DType::float8_e4m3fn;
  }
  const std::int64_t unit = 128 * tile.ctas;
  p.m_aligned = static_cast<int>(unit);
  return make_problem(p, {unit, 0, 2 * unit}, unit, seed, Data::exact);
}

TEST(ModelSm100, EveryTileShape) {
  for (const Op op : {Op::dglu, Op::srelu}) {
    for (const TileConfig& tile : sm100_tiles(op)) {
      for (std::uint64_t seed = 1; seed <= problem_count("GEMMULE_MODEL_PROBLEMS", 2); ++seed) {
        const TestProblem t = problem_for(op, tile, seed);
        if (op == Op::dglu || tile.ctas == 2) {
          const TileConfig host = cuda::sm100::tile_config(t.problem);
          EXPECT_EQ(host.tile_n, tile.tile_n);
          EXPECT_EQ(host.ctas, tile.ctas);
          EXPECT_GE(host.stages, tile.stages);
        }
        const int ctas = tile.ctas == 2 ? 4 : 3;
        EXPECT_EQ(difference_from_cpu(t, {.tile = tile, .multiprocessors = ctas, .seed = seed}), "")
            << tile.tile_n << " columns, " << tile.stages << " stages, " << describe(t);
      }
    }
  }
}

struct Variant {
  const char* what;
  Op op;
  Format format;
  ActFunc act;
  std::function<void(Problem&)> change;
};

TEST(ModelSm100, OptionsGiveTheBytesOfTheCpuBackend) {
  using enum DType;
  using enum ActFunc;
  const Variant variants[] = {
      {"e5m2 to e5m2, bias, columns per expert", Op::srelu, Format::mxfp8_e5m2, dswiglu,
       [](Problem& p) { p.c = p.d = float8_e5m2, p.bias = float32, p.discrete_col_sfd = true; }},
      {"mxfp8 to e2m1, amax, f32 C", Op::srelu, Format::mxfp8, dswiglu,
       [](Problem& p) { p.c = float32, p.d = float4_e2m1fn_x2, p.has_amax = true; }},
      {"mxfp8, n-major, discrete, clamp", Op::srelu, Format::mxfp8, dswiglu,
       [](Problem& p) {
         p.discrete = p.b_n_major = true;
         p.tanh_clamp_scale = 0x1p-6f;
         p.c = float8_e4m3fn;
       }},
      {"mxfp4 to f32, e2m1 C, discrete", Op::srelu, Format::mxfp4, dswiglu,
       [](Problem& p) { p.c = float4_e2m1fn_x2, p.d = float32, p.discrete = true; }},
      {"nvfp4 to bf16 with a copy in D_col, f32 C", Op::srelu, Format::nvfp4, dswiglu,
       [](Problem& p) { p.has_d_col = true, p.c = float32, p.bias = bfloat16; }},
      {"mxfp8 to e4m3, rows and columns, dbias", Op::dglu, Format::mxfp8, dswiglu,
       [](Problem& p) { p.has_dbias = true; }},
      {"e5m2 to e5m2, f32 C, deterministic, columns per expert", Op::dglu, Format::mxfp8_e5m2, dgeglu,
       [](Problem& p) { p.c = float32, p.d = float8_e5m2, p.deterministic = p.discrete_col_sfd = true; }},
      {"mxfp8, e4m3 C, n-major, discrete, amax", Op::dglu, Format::mxfp8, dsituglu,
       [](Problem& p) {
         p.c = float8_e4m3fn;
         p.situ_beta2 = 4;  // C holds 64 times it
         p.discrete = p.b_n_major = p.has_amax = true;
       }},
      {"mxfp4 to f32, f16 C, no prob, relu", Op::dglu, Format::mxfp4, dswiglu,
       [](Problem& p) {
         p.c = float16, p.d = float32;
         p.has_prob = p.has_dprob = false;
         p.epilogue_op = EpilogueOp::relu;
       }},
      {"mxfp4 per 16 to f16, e5m2 C, discrete, srelu", Op::dglu, Format::mxfp4_16, dgeglu,
       [](Problem& p) {
         p.c = float8_e5m2, p.d = float16;
         p.discrete = p.has_dbias = p.deterministic = true;
         p.epilogue_op = EpilogueOp::srelu;
       }},
      {"nvfp4 to bf16, dSiTU with beta1 = 4", Op::dglu, Format::nvfp4, dsituglu,
       [](Problem& p) { p.situ_beta2 = 16; }},
      {"bf16, f32 C and D, deterministic", Op::dglu, Format::bf16, dgeglu,
       [](Problem& p) { p.c = p.d = float32, p.has_dbias = p.deterministic = true; }},
      {"bf16, discrete, n-major", Op::dglu, Format::bf16, dswiglu,
       [](Problem& p) { p.c = float16, p.discrete = p.b_n_major = true; }},
      {"bf16, f32 C and D, discrete, n-major", Op::dglu, Format::bf16, dswiglu,
       [](Problem& p) { p.c = p.d = float32, p.discrete = p.b_n_major = true; }},
  };
  std::uint64_t seed = 0;
  for (const Variant& variant : variants) {
    SCOPED_TRACE(variant.what);
    Problem p = basic_problem(variant.op, variant.format, 160, 224, variant.act);
    variant.change(p);
    p.use_dynamic_sched = ++seed % 2 == 0;
    p.m_aligned = seed % 3 == 0 ? 128 : 256;
    const std::int64_t unit = p.m_aligned;
    const TestProblem t = make_problem(p, {unit, 0, 2 * unit}, 128, seed, Data::exact);
    EXPECT_EQ(difference_from_cpu(t, settings_for(p, seed)), "") << describe(t);
  }
}

TEST(ModelSm100, ASingleGroupEndsWithTheRows) {
  Problem p = basic_problem(Op::dglu, Format::nvfp4, 64, 96);
  p.single_group_runtime_offsets = p.has_dbias = true;
  const TestProblem t = make_problem(p, {512}, 0, 3, Data::exact);
  EXPECT_EQ(difference_from_cpu(t, settings_for(p, 1)), "") << describe(t);
}

Format format_of(std::uint64_t seed) {
  return all_formats[seed % std::size(all_formats)];
}

TEST(ModelSm100, RandomConfigurationsGiveTheBytesOfTheCpuBackend) {
  for (std::uint64_t seed = 1; seed <= problem_count("GEMMULE_MODEL_PROBLEMS", 6); ++seed) {
    const TestProblem t =
        random_problem(seed, {.format = format_of(seed), .data = Data::exact, .max_n = 320, .max_tiles = 2});
    ASSERT_EQ(difference_from_cpu(t, settings_for(t.problem, seed)), "") << describe(t);
  }
}

TEST(ModelSm100, RandomDataIsWithinTheBoundOfTheReference) {
  for (std::uint64_t seed = 101; seed <= 100 + problem_count("GEMMULE_MODEL_PROBLEMS", 5); ++seed) {
    const TestProblem t = random_problem(seed, {.format = format_of(seed), .max_tiles = 2});
    expect_within_bound(t, settings_for(t.problem, seed));
  }
}

TEST(ModelSm100, EveryTimingGivesTheSameBytes) {
  Problem p = basic_problem(Op::dglu, Format::mxfp8, 96, 320);
  p.has_dbias = p.deterministic = true;
  const TestProblem d = make_problem(p, {0, 256, 0, 512}, 0, 21, Data::exact);
  const TestProblem s =
      make_problem(basic_problem(Op::srelu, Format::nvfp4, 224, 544), {0, 256, 256}, 0, 22, Data::exact);
  for (const model::Timing timing : {model::Timing::early, model::Timing::late, model::Timing::random}) {
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      for (const TestProblem* t : {&d, &s}) {
        const TileConfig tile = seed == 1 ? pair : single;
        EXPECT_EQ(
            difference_from_cpu(*t, {.tile = tile, .dependent = seed == 1, .seed = seed, .timing = timing}),
            "")
            << describe(*t) << ", seed " << seed;
      }
    }
  }
}

TEST(ModelSm100, EveryMagnitudeQuantizesToTheBytesOfTheCpuBackend) {
  for (const DType d : {DType::float8_e4m3fn, DType::float8_e5m2, DType::float4_e2m1fn_x2}) {
    for (const Op op : {Op::srelu, Op::dglu}) {
      if (op == Op::dglu && d == DType::float4_e2m1fn_x2) continue;
      Problem p = basic_problem(op, Format::mxfp8, 64, 32);
      p.d = d;
      const TestProblem t = every_magnitude(p, 256, 3);
      EXPECT_EQ(difference_from_cpu(t, settings_for(p, 1)), "") << describe(t);
    }
  }
}

TEST(ModelSm100, NanAndInfinityReachTheOutputsTheyBelongTo) {
  for (const Format format : {Format::mxfp8, Format::mxfp8_e5m2, Format::mxfp4, Format::nvfp4}) {
    for (const Op op : {Op::srelu, Op::dglu}) {
      Problem p = basic_problem(op, format, 64, 160);
      p.has_amax = true;
      p.has_dbias = op == Op::dglu;
      expect_within_bound(with_specials(make_problem(p, {256, 256}, 0, 5, Data::exact)), settings_for(p, 1));
    }
  }
}

/// The instructions and bytes that a derivation of the kernels' speed counts on.
TEST(ModelSm100, InstructionsAndBytesPerTile) {
  const std::int64_t n = 384, k = 256;
  const TestProblem t = make_problem(basic_problem(Op::dglu, Format::mxfp8, n, k), {512}, 0, 5, Data::exact);
  const Outputs out = t.outputs();
  const model::Report report = run_sm100_on_model(t, out, {.tile = pair, .multiprocessors = 4}).main;
  EXPECT_EQ(report.text(), "");
  using model::Op;
  const std::int64_t cta_tiles = 4 * 2, stages = k / 128;
  // One instruction multiplies 32 k for a pair; each stage copies one atom of A and two of B in every CTA.
  EXPECT_EQ(report.count(Op::tensor_mma).calls, cta_tiles / 2 * stages * 4);
  EXPECT_EQ(report.count(Op::tensor_copy).calls, cta_tiles / 2 * stages * 3);
  // A whole, half of B, scales; C: 64 columns of two bytes per 32 columns of the product.
  EXPECT_EQ(report.count(Op::tma_load).bytes,
            cta_tiles * (stages * (128 * 128 + 96 * 128 + 3 * 512) + 128 * 384 * 2));
  EXPECT_EQ(report.count(Op::tma_store).bytes, cta_tiles * 2 * 128 * 384);
}

}  // namespace
}  // namespace gemmule::test
