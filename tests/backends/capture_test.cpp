// Captured MoE batches, quantized and run, against what PyTorch's autograd computed for the same batches in BF16.
#include <gtest/gtest.h>

#include <cmath>

#include "backends/captures.hpp"
#include "backends/cpu_support.hpp"

namespace gemmule::test {
namespace {

struct Case {
  const char* file;
  Format format;
};

constexpr Case cases[] = {
    {"swiglu", Format::bf16},       {"swiglu", Format::mxfp8},      {"swiglu", Format::nvfp4},
    {"swiglu", Format::mxfp4},      {"geglu", Format::bf16},        {"geglu", Format::mxfp8},
    {"geglu", Format::nvfp4},       {"geglu", Format::mxfp4},       {"situglu", Format::mxfp8},
    {"situglu", Format::nvfp4},     {"situglu", Format::mxfp4},     {"srelu", Format::mxfp8},
    {"srelu", Format::nvfp4},       {"srelu", Format::mxfp4},       {"srelu_clamp", Format::mxfp8},
    {"srelu_clamp", Format::nvfp4}, {"srelu_clamp", Format::mxfp4},
};

class CaptureTest : public testing::TestWithParam<Case> {
 protected:
  CaptureTest()
      : capture(std::string(GEMMULE_EXAMPLE_DATA) + "/" + GetParam().file + ".safetensors"),
        prepared(prepare(capture, GetParam().format)),
        tolerance(operand_error(GetParam().format, capture.forward())) {}

  const Problem& problem() const { return prepared.t.problem; }
  double d_error(const std::vector<float>& d) const { return error_of_d(capture, prepared, d); }
  void check_dprob(const std::vector<double>& dprob) const {
    if (problem().op == Op::srelu) return;
    EXPECT_LT(error_of_dprob(capture, prepared, dprob), tolerance);
  }

  Capture capture;
  Prepared prepared;
  double tolerance;  ///< relative Frobenius error of D
};

TEST_P(CaptureTest, ReferenceBeforeRoundingMatchesAutograd) {
  const reference::Result r = reference::evaluate(problem(), prepared.t.inputs());
  const std::vector<float> d(r.d.value.begin(), r.d.value.end());
  EXPECT_LT(d_error(d), tolerance);
  check_dprob(r.dprob.value);
  // Control: gate and input exchanged, or an expert's rows moved on by one, are far away.
  std::vector<float> wrong(d.size());
  for (std::size_t i = 0; i < d.size(); ++i)
    wrong[i] = problem().op == Op::dglu ? d[i ^ 32] : d[(i + problem().n) % d.size()];
  EXPECT_GT(d_error(wrong), 0.5);
}

TEST_P(CaptureTest, CpuOutputsMatchAutograd) {
  const Outputs out = run_cpu(prepared.t);
  const double allowed = problem().quantize ? std::hypot(tolerance, e4m3_output_error) : tolerance;
  EXPECT_LT(d_error(decoded_d(prepared, out, false)), allowed);
  if (problem().quantize) {
    EXPECT_LT(d_error(decoded_d(prepared, out, true)), allowed);
  }
  const float* dprob = out.dprob.as<float>();
  check_dprob({dprob, dprob + out.dprob.size() / 4});
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  return std::string(info.param.file) + "_" + name(info.param.format);
}

INSTANTIATE_TEST_SUITE_P(Captures, CaptureTest, testing::ValuesIn(cases), case_name);

}  // namespace
}  // namespace gemmule::test
