// Captured batches: what prepare makes of them, and how far the operators are from PyTorch.
#include <cmath>

#include "command.hpp"
#include "compare_capture.hpp"
#include "gemmule/gemmule.hpp"

namespace gemmule::cli {
namespace {
using testing::HasSubstr;

const std::vector<std::string> activations{"srelu", "srelu_clamp", "swiglu", "geglu", "situglu"};

std::vector<float> floats(const io::HostTensor& tensor) {
  std::vector<float> out(static_cast<std::size_t>(tensor.numel()));
  convert(tensor.bytes.data(), tensor.dtype, out);
  return out;
}

TEST(Prepare, PadsInterleavesAndTransposes) {
  TemporaryDirectory dir;
  succeed({"prepare", example("swiglu"), "--format", "bf16", "-o", dir / "p"});
  const io::SafetensorsReader capture(example("swiglu")), problem(dir / "p");
  EXPECT_EQ(problem.metadata().at("op"), "dglu");
  EXPECT_EQ(problem.metadata().at("ab_dtype"), "bfloat16");
  EXPECT_EQ(problem.metadata().at("act_func"), "dswiglu");
  EXPECT_EQ(problem.metadata().at("d_dtype"), "bfloat16");
  EXPECT_FALSE(problem.has("sfa"));
  EXPECT_FALSE(problem.has("norm_const"));
  EXPECT_FALSE(problem.has("dprob"));

  const auto counts = capture.read("tokens_per_expert");
  const auto offsets = problem.read("padded_offsets");
  const auto a = floats(problem.read("a")), c = floats(problem.read("c")),
             prob = floats(problem.read("prob"));
  const auto dy = floats(capture.read("dy")), z = floats(capture.read("z")), p = floats(capture.read("prob"));
  const std::size_t k = 256, n = 256;
  std::size_t start = 0, token = 0;
  for (std::size_t e = 0; e < 4; ++e) {
    const auto rows = static_cast<std::size_t>(counts.as<std::int32_t>()[e]);
    const auto end = static_cast<std::size_t>(offsets.as<std::int32_t>()[e]);
    EXPECT_EQ(end, start + (rows + 255) / 256 * 256);
    for (std::size_t m = start; m < end; ++m) {
      const bool real = m - start < rows;
      EXPECT_EQ(prob[m], real ? p[token] : 0.0f);
      for (std::size_t i = 0; i < k; ++i) ASSERT_EQ(a[m * k + i], real ? dy[token * k + i] : 0.0f);
      for (std::size_t i = 0; i < n; ++i) {
        const std::size_t gate = 64 * (i / 32) + i % 32;
        ASSERT_EQ(c[m * 2 * n + gate], real ? z[token * 2 * n + i] : 0.0f);
        ASSERT_EQ(c[m * 2 * n + gate + 32], real ? z[token * 2 * n + n + i] : 0.0f);
      }
      token += real;
    }
    start = end;
  }
  EXPECT_EQ(token, 520u);

  const auto b = floats(problem.read("b")), w2 = floats(capture.read("w2"));
  for (std::size_t e = 0; e < 4; ++e)
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < k; ++j) ASSERT_EQ(b[(e * n + i) * k + j], w2[(e * k + j) * n + i]);
}

TEST(Prepare, QuantizesWithThePublicQuantizers) {
  TemporaryDirectory dir;
  succeed({"prepare", example("srelu"), "--format", "nvfp4", "-o", dir / "p"});
  const io::SafetensorsReader capture(example("srelu")), problem(dir / "p");
  EXPECT_EQ(problem.metadata().at("ab_dtype"), "float4_e2m1fn_x2");
  EXPECT_EQ(problem.metadata().at("sf_vec_size"), "16");
  const io::HostTensor a = problem.read("a"), sfa = problem.read("sfa"), sfb = problem.read("sfb");
  EXPECT_EQ(a.dtype, DType::uint8);
  EXPECT_EQ(a.shape, (io::Shape{1280, 128}));
  EXPECT_EQ(sfa.dtype, DType::float8_e4m3fn);
  EXPECT_EQ(sfa.shape, (io::Shape{1, 10, 4, 32, 4, 4}));
  EXPECT_EQ(sfb.shape, (io::Shape{4, 2, 4, 32, 4, 4}));

  // A has one tensor scale, B one for each expert; their product is in alpha.
  const auto x = floats(capture.read("x")), w1 = floats(capture.read("w1"));
  const float ga = nvfp4_tensor_scale(x);
  const auto alpha = floats(problem.read("alpha"));
  for (std::size_t e = 0; e < 4; ++e)
    EXPECT_FLOAT_EQ(alpha[e], ga * nvfp4_tensor_scale(std::span(w1).subspan(e * 256 * 256, 256 * 256)));

  std::vector<float> values(1280 * 256);
  dequantize_rows(a.as<std::uint8_t>().data(), sfa.as<std::uint8_t>().data(), 1280, 256, QuantFormat::nvfp4(),
                  values, ga);
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < 180 * 256; ++i) {  // the first expert's rows
    difference += std::pow(double{values[i]} - double{x[i]}, 2);
    norm += std::pow(double{x[i]}, 2);
  }
  EXPECT_LT(std::sqrt(difference / norm), 0.12);
  EXPECT_GT(std::sqrt(difference / norm), 0.02);
  for (std::size_t i = 180 * 256; i < 256 * 256; ++i) ASSERT_EQ(values[i], 0.0f);
}

TEST(Prepare, WritesTheOptionsOfTheActivation) {
  TemporaryDirectory dir;
  const std::map<std::string, std::map<std::string, std::string>> expected{
      {"srelu", {}},
      {"srelu_clamp", {{"tanh_clamp_scale", "8"}}},
      {"swiglu", {{"act_func", "dswiglu"}}},
      {"geglu",
       {{"act_func", "dgeglu"},
        {"geglu_alpha", "1.702"},
        {"glu_clamp_max", "7"},
        {"glu_clamp_min", "-7"},
        {"linear_offset", "1"},
        {"geglu_filter", "mask"}}},
      {"situglu", {{"act_func", "dsituglu"}, {"situ_beta1", "4"}, {"situ_beta2", "25"}}},
  };
  for (const auto& [activation, options] : expected) {
    succeed({"prepare", example(activation), "--format", "mxfp8", "-o", dir / "p"});
    const io::SafetensorsReader problem(dir / "p");
    for (const auto& [key, value] : options)
      EXPECT_EQ(problem.metadata().at(key), value) << activation << " " << key;
    EXPECT_EQ(problem.metadata().at("sf_vec_size"), "32");
    EXPECT_EQ(problem.metadata().at("d_dtype"),
              activation.starts_with("srelu") ? "bfloat16" : "float8_e4m3fn");
    EXPECT_EQ(problem.has("norm_const"), !activation.starts_with("srelu"));
    EXPECT_EQ(problem.has("beta"), !activation.starts_with("srelu"));
    for (const float alpha : floats(problem.read("alpha"))) EXPECT_EQ(alpha, 1.0f);
  }
  succeed({"prepare", example("geglu"), "--format", "mxfp4", "geglu_filter=value", "sf_vec_size=16", "-o",
           dir / "p"});
  EXPECT_EQ(io::SafetensorsReader(dir / "p").metadata().at("geglu_filter"), "value");
  EXPECT_EQ(io::SafetensorsReader(dir / "p").entry("sfa").dtype, DType::float8_e8m0fnu);
}

TEST(Prepare, EveryFormatAgreesWithPyTorch) {
  TemporaryDirectory dir;
  for (const std::string& activation : activations)
    for (const char* format : {"bf16", "mxfp8", "mxfp8_e5m2", "mxfp4", "nvfp4"}) {
      const bool forward = activation.starts_with("srelu");
      if (std::string(format) == "bf16" && (forward || activation == "situglu"))
        continue;  // no such operator
      succeed({"prepare", example(activation), "--format", format, "-o", dir / "p"});
      const Finished finished = succeed({"verify", dir / "p", "--expected", example(activation)});
      EXPECT_THAT(finished.out, HasSubstr(forward ? "PyTorch expected_h" : "PyTorch expected_dz"))
          << activation << format;
      EXPECT_THAT(finished.out, HasSubstr(forward ? "PyTorch expected_z" : "PyTorch expected_dprob"));
    }
}

TEST(Prepare, EveryOutputTypeAgreesWithPyTorch) {
  TemporaryDirectory dir;
  for (const char* type : {"float8_e5m2", "float4_e2m1fn_x2", "float16"}) {
    const std::string d = std::string("d_dtype=") + type, c = std::string("c_dtype=") + type;
    succeed({"prepare", example("srelu"), "--format", "mxfp8", "-o", dir / "p", d, c});
    succeed({"verify", dir / "p", "--expected", example("srelu")});
  }
  succeed({"prepare", example("swiglu"), "--format", "mxfp8", "-o", dir / "p", "d_dtype=float8_e5m2"});
  succeed({"verify", dir / "p", "--expected", example("swiglu")});
}

TEST(Prepare, ComparisonWithPyTorchCanFail) {
  TemporaryDirectory dir;
  // The right result of the wrong function: the float64 reference agrees with it, PyTorch does not.
  succeed({"prepare", example("geglu"), "--format", "mxfp8", "act_func=dswiglu", "-o", dir / "p"});
  succeed({"verify", dir / "p"});
  const Finished finished = gemmule({"verify", dir / "p", "--expected", example("geglu")});
  EXPECT_EQ(finished.code, verification_failed);
  EXPECT_THAT(finished.out, HasSubstr("FAIL"));
  // A capture of another batch.
  const Finished other = gemmule({"verify", dir / "p", "--expected", example("situglu")});
  EXPECT_EQ(other.code, bad_input);
  EXPECT_THAT(other.err, HasSubstr("was not prepared from it"));
  EXPECT_GT(capture_limit("nvfp4", "d", DType::bfloat16), capture_limit("mxfp8", "d", DType::bfloat16));
  EXPECT_GT(capture_limit("mxfp8", "d", DType::float8_e5m2),
            capture_limit("mxfp8", "d", DType::float8_e4m3fn));
}

TEST(Prepare, RefusesBadCaptures) {
  TemporaryDirectory dir;
  const auto refused = [&](const Contents& capture, const std::string& message) {
    capture.write(dir / "c");
    const Finished finished = gemmule({"prepare", dir / "c", "--format", "mxfp8", "-o", dir / "out"});
    EXPECT_EQ(finished.code, bad_input) << message;
    EXPECT_THAT(finished.err, HasSubstr(message));
    expect_one_line(finished, message);
    EXPECT_FALSE(std::filesystem::exists(dir / "out"));
  };
  for (const char* activation : {"srelu", "swiglu"}) {
    const Contents good(example(activation));
    for (const auto& [name, tensor] : good.tensors) {
      if (name.starts_with("expected_")) continue;
      Contents missing(example(activation));
      missing.tensors.erase(name);
      refused(missing, "no tensor '" + name + "'");
      Contents retyped(example(activation));
      retyped.tensors.at(name) = io::HostTensor(DType::uint8, good.tensors.at(name).shape);
      refused(retyped, "tensor '" + name + "': ");
      Contents reshaped(example(activation));
      reshaped.tensors.at(name).shape.push_back(1);
      refused(reshaped, "tensor '" + name + "': ");
    }
    Contents unknown(example(activation));
    unknown.metadata["activation"] = "relu6";
    refused(unknown, "activation=relu6: expected one of srelu");
    Contents counts(example(activation));
    counts.tensors.at("tokens_per_expert").as<std::int32_t>()[0] = -1;
    refused(counts, "count -1");
    counts.tensors.at("tokens_per_expert").as<std::int32_t>()[0] = 17;
    refused(counts, "expected [tokens, K]");
  }
}

}  // namespace
}  // namespace gemmule::cli
