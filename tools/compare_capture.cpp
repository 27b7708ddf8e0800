#include "compare_capture.hpp"

#include <algorithm>
#include <cmath>

#include "gemmule/error.hpp"
#include "gemmule/layout.hpp"
#include "text.hpp"

namespace gemmule::cli {
namespace {

/// Relative Frobenius errors that the captures in examples/data are known to give: the rounding of A and B to the
/// format, and that of PyTorch's own BF16 result, in Z and dprob, in dZ and in H. sReLU squares its argument, which
/// doubles the error. D's own rounding comes on top.
struct Known {
  const char* format;
  double z, dz, h;
};
constexpr Known known[] = {
    {"bf16", 6e-3, 6e-3, 6e-3},  {"mxfp8", 0.035, 0.0223, 0.048}, {"mxfp8_e5m2", 0.07, 0.0646, 0.107},
    {"nvfp4", 0.12, 0.12, 0.19}, {"mxfp4", 0.15, 0.15, 0.26},     {"mxfp4/16", 0.15, 0.15, 0.26},
};
/// Other batches scatter around these values.
constexpr double slack = 1.25;

/// The relative error of rounding to an output type with scale factors; wide types add nothing that counts.
double rounding(DType type) {
  return type == DType::float8_e4m3fn      ? 0.027
         : type == DType::float8_e5m2      ? 0.055
         : type == DType::float4_e2m1fn_x2 ? 0.13
                                           : 0;
}

struct Compared {
  const char* output;
  const char* expected;
};

DType dtype_of(const io::LoadedProblem& problem, const std::string& output) {
  if (output == "dprob") return DType::float32;
  if (output == "c") return std::get<io::SreluArguments>(problem.arguments).call.c_dtype;
  return std::visit([](const auto& arguments) { return arguments.call.d_dtype; }, problem.arguments);
}

/// An output matrix as floats; a D with scale factors is dequantized.
std::vector<float> values_of(const io::LoadedProblem& problem, const io::TensorMap& result,
                             const std::string& output, std::int64_t width) {
  const io::HostTensor& stored = result.find(output)->second;
  std::vector<float> values(static_cast<std::size_t>(problem.m * width));
  const auto scales = result.find("sfd_row");
  const bool is_d = output == "d" || output == "d_row";
  if (!is_d || scales == result.end()) {
    convert(stored.bytes.data(), dtype_of(problem, output), values);
    return values;
  }
  const QuantFormat format{dtype_of(problem, output), DType::float8_e8m0fnu, 32};
  dequantize_rows(stored.as<std::uint8_t>().data(), scales->second.as<std::uint8_t>().data(), problem.m,
                  width, format, values);
  const float norm_const = problem.tensors.find("norm_const")->second.as<float>()[0];
  for (float& value : values) value /= norm_const;
  return values;
}

/// Rows of real tokens, in the capture's order.
std::vector<float> unpadded(const io::LoadedProblem& problem, const Capture& capture,
                            const std::vector<float>& values, std::int64_t width) {
  const auto offsets = problem.tensors.find("padded_offsets")->second.as<std::int32_t>();
  std::vector<float> out;
  out.reserve(static_cast<std::size_t>(capture.tokens() * width));
  std::int64_t start = 0;
  for (std::size_t e = 0; e < offsets.size(); ++e) {
    const auto first = values.begin() + start * width;
    out.insert(out.end(), first, first + capture.rows()[e] * width);
    start = offsets[e];
  }
  return out;
}

void check_same_batch(const io::LoadedProblem& problem, const Capture& capture) {
  const auto offsets = problem.tensors.find("padded_offsets")->second.as<std::int32_t>();
  bool same = problem.op == capture.op() && problem.n == capture.n() && problem.k == capture.k() &&
              offsets.size() == capture.rows().size();
  std::int64_t start = 0;
  for (std::size_t e = 0; same && e < offsets.size(); ++e) {
    same = offsets[e] - start >= capture.rows()[e] && offsets[e] <= problem.m;
    start = offsets[e];
  }
  if (!same)
    throw InvalidArgument("the capture has " + std::to_string(capture.rows().size()) + " experts with " +
                          joined(capture.rows()) + " rows, N " + std::to_string(capture.n()) + ", K " +
                          std::to_string(capture.k()) + ", activation " + capture.activation() +
                          "; the problem was not prepared from it");
}

double relative_error(const std::vector<float>& got, const std::vector<float>& expected) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double delta = double{got[i]} - double{expected[i]};
    difference += delta * delta;
    norm += double{expected[i]} * double{expected[i]};
  }
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

}  // namespace

double capture_limit(const std::string& format, const std::string& output, DType type) {
  for (const Known& row : known)
    if (format == row.format)
      return slack * std::hypot(output == "d" ? row.h : output == "d_row" ? row.dz : row.z, rounding(type));
  throw InvalidArgument("format " + io::quote(format) + " has no known error against a capture");
}

std::vector<CaptureCheck> compare_capture(const io::LoadedProblem& problem, const io::TensorMap& result,
                                          const Capture& capture) {
  check_same_batch(problem, capture);
  const bool forward = problem.op == Op::srelu;
  const std::vector<Compared> all =
      forward ? std::vector<Compared>{{"c", "expected_z"}, {"d", "expected_h"}}
              : std::vector<Compared>{{"d_row", "expected_dz"}, {"dprob", "expected_dprob"}};
  std::vector<CaptureCheck> checks;
  for (const auto& [output, expected_name] : all) {
    const std::vector<float> expected = capture.expected(expected_name);
    if (expected.empty() || result.find(output) == result.end()) continue;
    const std::int64_t width =
        static_cast<std::int64_t>(expected.size()) / std::max<std::int64_t>(1, capture.tokens());
    std::vector<float> got = unpadded(problem, capture, values_of(problem, result, output, width), width);
    if (std::string_view(expected_name) == "expected_dz") {
      std::vector<float> halves(got.size());
      deinterleave_gate_input(got.data(), halves.data(), capture.tokens(), problem.n, sizeof(float));
      got = std::move(halves);
    }
    checks.push_back({output, expected_name, static_cast<std::int64_t>(got.size()),
                      relative_error(got, expected),
                      capture_limit(format_label(problem), output, dtype_of(problem, output))});
  }
  return checks;
}

}  // namespace gemmule::cli
