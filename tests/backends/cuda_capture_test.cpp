// Captured MoE batches on a device: within bound of the reference, and as close to PyTorch's autograd as the formats allow.
// GEMMULE_CAPTURES=DIRECTORY reads all *.safetensors there instead of the examples.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "backends/captures.hpp"
#include "backends/cuda_support.hpp"
#include "verify/verify.hpp"

namespace gemmule::test {
namespace {

std::vector<std::string> captures() {
  const char* directory = std::getenv("GEMMULE_CAPTURES");
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory ? directory : GEMMULE_EXAMPLE_DATA))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
  return files;
}

void check(const std::string& file, const Capture& capture, Format format) {
  const Prepared prepared = prepare(capture, format);
  const TestProblem& t = prepared.t;
  ASSERT_EQ(cuda::refusal(t.problem, 0), "") << describe(t);
  const Outputs out = run_cuda(t);
  const verify::Report report =
      verify::compare(t.problem, t.inputs(), t.operands(out), {.poison = poison_byte});
  EXPECT_TRUE(report.passed()) << file << '\n' << verify::to_string(report);

  const double tolerance = operand_error(format, capture.forward());
  const double allowed = t.problem.quantize ? std::hypot(tolerance, e4m3_output_error) : tolerance;
  const double rows = error_of_d(capture, prepared, decoded_d(prepared, out, false));
  const double columns =
      t.problem.quantize ? error_of_d(capture, prepared, decoded_d(prepared, out, true)) : 0;
  EXPECT_LT(rows, allowed) << file;
  EXPECT_LT(columns, allowed) << file;
  const float* dprob = out.dprob.as<float>();
  const double dprob_error =
      t.problem.has_dprob ? error_of_dprob(capture, prepared, {dprob, dprob + out.dprob.size() / 4}) : 0;
  EXPECT_LT(dprob_error, tolerance) << file;
  std::printf("%-24s %-8s D %.4f, D_col %.4f, dprob %.4f\n",
              std::filesystem::path(file).stem().string().c_str(), name(format), rows, columns, dprob_error);
}

TEST(CudaCapture, OutputsMatchAutograd) {
  const Problem probe = basic_problem(Op::srelu, Format::mxfp8, 64, 64);
  if (const std::string why = cuda::refusal(probe, 0); !why.empty()) GTEST_SKIP() << "NOT TESTED: " << why;
  const std::vector<std::string> files = captures();
  ASSERT_FALSE(files.empty());
  for (const std::string& file : files) {
    const Capture capture(file);
    for (const Format format : {Format::bf16, Format::mxfp8, Format::mxfp4, Format::nvfp4}) {
      if (format == Format::bf16 && (capture.forward() || capture.activation() == "situglu")) continue;
      check(file, capture, format);
    }
  }
}

}  // namespace
}  // namespace gemmule::test
