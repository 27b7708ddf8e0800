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
      for (std::uint64_t seed = 1; seed <= 3; ++seed) {
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
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      for (const DgluTile tile : {DgluTile::n128_cluster2, DgluTile::n192_cluster2}) {
        expect_same_as_cpu(t, {.tile = tile, .multiprocessors = 4, .dynamic = seed % 2 == 0, .seed = seed});
      }
    }
  }
}

}  // namespace
}  // namespace gemmule::test
