// make, run and verify together, and what verify must not accept.
#include <cstring>
#include <nlohmann/json.hpp>

#include "command.hpp"

namespace gemmule::cli {
namespace {
using testing::HasSubstr;

std::vector<std::string> make(const std::string& op, const std::string& format, const std::string& path,
                              const std::vector<std::string>& options = {}) {
  std::vector<std::string> arguments{"make",         "--op",   op,    "--format", format,
                                     "--n",          "96",     "--k", "160",      "--rows",
                                     "70,0,300,256", "--seed", "5",   "-o",       path};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return arguments;
}

struct Mode {
  const char* op;
  const char* format;
  std::vector<std::string> options;
};

std::vector<Mode> modes() {
  std::vector<Mode> all;
  for (const char* format : {"mxfp8", "mxfp8_e5m2", "mxfp4", "nvfp4"}) {
    all.push_back({"srelu", format, {}});
    all.push_back({"srelu", format, {"tanh_clamp_scale=2", "weight_mode=discrete", "bias=bfloat16"}});
    for (const char* act : {"dswiglu", "dgeglu", "dsituglu"})
      all.push_back({"dglu", format, {std::string("act_func=") + act, "generate_dbias=true"}});
    all.push_back({"dglu", format, {"weight_mode=discrete", "alpha=-0.5", "beta=0.75"}});
  }
  const std::vector<Mode> more{
      {"dglu", "bf16", {"generate_dbias=true", "deterministic=true"}},
      {"dglu", "bf16", {"act_func=dgeglu", "d_dtype=float32", "c_dtype=float16"}},
      {"dglu", "bf16", {"act_func=dgeglu", "geglu_filter=mask", "linear_offset=0.5", "mma_tiler_mn=128,64"}},
      {"dglu", "bf16", {"weight_mode=discrete", "b_major=n"}},
      {"dglu", "mxfp8", {"b_major=n", "discrete_col_sfd=true", "norm_const=0.01"}},
      {"dglu", "mxfp8", {"b_major=n", "weight_mode=discrete", "c_dtype=float8_e4m3fn"}},
      {"dglu", "mxfp8_e5m2", {"d_dtype=float8_e5m2", "epilogue_op=relu"}},
      {"dglu", "mxfp4", {"sf_vec_size=16", "d_dtype=float32"}},
      {"dglu",
       "nvfp4",
       {"act_func=dgeglu", "geglu_alpha=1.5", "glu_clamp_max=1", "glu_clamp_min=-0.5", "geglu_filter=value"}},
      {"dglu",
       "nvfp4",
       {"act_func=dsituglu", "situ_beta1=2", "situ_beta2=10", "d_dtype=float16", "epilogue_op=srelu"}},
      {"srelu", "mxfp8", {"d_dtype=float8_e4m3fn", "discrete_col_sfd=true", "norm_const=0.1"}},
      {"srelu", "mxfp8", {"d_dtype=float4_e2m1fn_x2", "c_dtype=float4_e2m1fn_x2", "b_major=n"}},
      {"srelu", "mxfp8_e5m2", {"d_dtype=float8_e5m2", "c_dtype=float32", "m_aligned=128"}},
      {"srelu", "mxfp4", {"sf_vec_size=16", "d_dtype=float32", "c_dtype=float8_e5m2"}},
      {"srelu",
       "nvfp4",
       {"d_dtype=float16", "mma_tiler_mn=128,256", "cluster_shape_mn=1,1", "use_dynamic_sched=true"}},
  };
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(Pipeline, EveryModeRunsAndVerifies) {
  TemporaryDirectory dir;
  for (const Mode& mode : modes()) {
    SCOPED_TRACE(std::string(mode.op) + " " + mode.format + " " + testing::PrintToString(mode.options));
    succeed(make(mode.op, mode.format, dir / "p", mode.options));
    succeed({"run", dir / "p", "-o", dir / "r"});
    succeed({"verify", dir / "p", "--result", dir / "r"});
    EXPECT_EQ(files_in(dir.path()), (std::vector<std::string>{"p", "r"}));
  }
}

TEST(Pipeline, ReferenceResultVerifiesAndAgreesWithCpu) {
  TemporaryDirectory dir;
  succeed(make("dglu", "mxfp8", dir / "p"));
  succeed({"run", dir / "p", "--backend", "reference", "-o", dir / "r"});
  succeed({"verify", dir / "p", "--backend", "reference", "--result", dir / "r"});
  EXPECT_THAT(succeed({"verify", dir / "p", "--backend", "cpu"}).out, HasSubstr(", cpu"));
  const Finished refused = gemmule({"verify", dir / "p", "--backend", "reference"});
  EXPECT_EQ(refused.code, bad_input);
}

TEST(Pipeline, TheSameSeedMakesTheSameFile) {
  TemporaryDirectory dir;
  succeed(make("dglu", "nvfp4", dir / "a"));
  succeed(make("dglu", "nvfp4", dir / "b"));
  EXPECT_EQ(io::slurp(dir / "a"), io::slurp(dir / "b"));
  std::vector<std::string> other = make("dglu", "nvfp4", dir / "c");
  *std::find(other.begin(), other.end(), "5") = "6";
  succeed(other);
  EXPECT_NE(io::slurp(dir / "a"), io::slurp(dir / "c"));
}

TEST(Pipeline, OptionsMayFollowRows) {
  TemporaryDirectory dir;
  succeed({"make", "--op", "dglu", "--format", "mxfp8", "--n", "32", "--k", "32", "-o", dir / "p", "--rows",
           "1,0", "generate_dbias=true"});
  EXPECT_EQ(io::SafetensorsReader(dir / "p").metadata().at("generate_dbias"), "true");
}

TEST(Pipeline, NoTokensAreNoRows) {
  TemporaryDirectory dir;
  EXPECT_THAT(succeed({"make", "--op", "dglu", "--format", "bf16", "--experts", "3", "--n", "32", "--k", "32",
                       "--tokens", "0", "-o", dir / "p"})
                  .out,
              HasSubstr("rows 0,0,0"));
}

TEST(Pipeline, ModelShapesAndRouting) {
  TemporaryDirectory dir;
  succeed({"make", "--op", "srelu", "--model", "Qwen3-235B", "--n", "64", "--k", "128", "--format", "mxfp4",
           "-o", dir / "p"});
  const io::SafetensorsReader reader(dir / "p");
  EXPECT_EQ(reader.entry("padded_offsets").shape, (io::Shape{16}));
  EXPECT_EQ(reader.entry("b").shape, (io::Shape{16, 64, 64}));
  const io::HostTensor offsets = reader.read("padded_offsets");
  int empty = 0;
  for (std::size_t e = 0; e < 16; ++e)
    empty += offsets.as<std::int32_t>()[e] == (e ? offsets.as<std::int32_t>()[e - 1] : 0);
  EXPECT_EQ(empty, 2);
}

TEST(Pipeline, AllExpertsEmptyIsALegalProblem) {
  TemporaryDirectory dir;
  for (const char* op : {"srelu", "dglu"}) {
    succeed({"make", "--op", op, "--format", "mxfp8", "--n", "64", "--k", "64", "--rows", "0,0", "-o",
             dir / "p"});
    succeed({"run", dir / "p", "-o", dir / "r"});
    succeed({"verify", dir / "p", "--result", dir / "r"});
  }
}

TEST(Pipeline, RowsPastTheLastOffsetAreZero) {
  TemporaryDirectory dir;
  for (const char* op : {"srelu", "dglu"}) {
    succeed(make(op, "mxfp8", dir / "p", {"d_dtype=float8_e4m3fn"}));
    Contents problem(dir / "p");
    auto offsets = problem.tensors.at("padded_offsets").as<std::int32_t>();
    ASSERT_EQ(offsets[3], 1024);
    offsets[3] -= 256;  // the last expert loses its rows, which still hold data
    problem.write(dir / "p");
    succeed({"run", dir / "p", "-o", dir / "r"});
    succeed({"verify", dir / "p", "--result", dir / "r"});
    Contents result(dir / "r");
    for (const char* name : {"c", "d", "d_row", "d_col", "dprob"}) {
      const auto found = result.tensors.find(name);
      if (found == result.tensors.end()) continue;
      const auto bytes = found->second.as<std::byte>();
      const auto tail = bytes.subspan(bytes.size() / 1024 * 768);
      EXPECT_TRUE(std::all_of(tail.begin(), tail.end(), [](std::byte b) { return b == std::byte{0}; }))
          << name;
      // And verify notices a byte that changes there.
      Contents tampered(dir / "r");
      auto changed = tampered.tensors.at(name).as<std::uint8_t>();
      changed[changed.size() - 4] = 0x38;
      tampered.write(dir / "bad");
      EXPECT_EQ(gemmule({"verify", dir / "p", "--result", dir / "bad"}).code, verification_failed) << name;
    }
  }
}

/// The largest BF16 magnitude grows by about 1.7.
void enlarge(io::HostTensor& tensor) {
  auto codes = tensor.as<std::uint16_t>();
  auto* largest = &codes[0];
  for (std::uint16_t& code : codes)
    if ((code & 0x7fff) > (*largest & 0x7fff)) largest = &code;
  *largest = static_cast<std::uint16_t>(*largest + 0x60);
}

TEST(Pipeline, VerifyNoticesATamperedResult) {
  TemporaryDirectory dir;
  succeed(make("dglu", "nvfp4", dir / "p", {"generate_dbias=true"}));
  succeed({"run", dir / "p", "-o", dir / "r"});
  for (const char* name : {"d_row", "dbias", "dprob", "amax"}) {
    Contents result(dir / "r");
    io::HostTensor& tensor = result.tensors.at(name);
    if (tensor.dtype == DType::bfloat16)
      enlarge(tensor);
    else
      tensor.as<float>()[0] = tensor.as<float>()[0] * 1.01f + 1;
    result.write(dir / "bad");
    const Finished finished = gemmule({"verify", dir / "p", "--result", dir / "bad"});
    EXPECT_EQ(finished.code, verification_failed) << name;
    EXPECT_THAT(finished.out, HasSubstr("FAIL")) << name;
    EXPECT_THAT(finished.out, HasSubstr(std::string(name) + ": first at row")) << name;
    EXPECT_THAT(finished.err, HasSubstr("gemmule: verification failed: ")) << name;
  }
  Contents other(dir / "p");  // the result of a problem with one input scale changed
  other.tensors.at("sfa").as<std::uint8_t>()[0] += 8;
  other.write(dir / "q");
  succeed({"run", dir / "q", "-o", dir / "rq"});
  EXPECT_EQ(gemmule({"verify", dir / "p", "--result", dir / "rq"}).code, verification_failed);
}

TEST(Pipeline, ResultsMustHaveTheRightTensors) {
  TemporaryDirectory dir;
  succeed(make("dglu", "mxfp8", dir / "p", {"generate_dbias=true"}));
  succeed({"run", dir / "p", "-o", dir / "r"});
  const Contents good(dir / "r");
  for (const auto& [name, tensor] : good.tensors) {
    Contents missing(dir / "r");
    missing.tensors.erase(name);
    missing.write(dir / "bad");
    const Finished finished = gemmule({"verify", dir / "p", "--result", dir / "bad"});
    EXPECT_EQ(finished.code, bad_input) << name;
    EXPECT_THAT(finished.err, HasSubstr("no tensor '" + name + "'"));

    Contents reshaped(dir / "r");
    reshaped.tensors.at(name).shape.push_back(1);
    reshaped.write(dir / "bad");
    EXPECT_THAT(gemmule({"verify", dir / "p", "--result", dir / "bad"}).err, HasSubstr("expected [")) << name;
  }
  Contents extra(dir / "r");
  extra.tensors.emplace("more", io::HostTensor(DType::float32, {1}));
  extra.write(dir / "bad");
  EXPECT_THAT(gemmule({"verify", dir / "p", "--result", dir / "bad"}).err,
              HasSubstr("unknown tensor 'more'"));
}

TEST(Pipeline, ResultsMustBeThoseOfTheProblem) {
  TemporaryDirectory dir;
  succeed(make("dglu", "mxfp8", dir / "p", {"generate_dbias=true", "norm_const=1"}));
  succeed({"run", dir / "p", "-o", dir / "r"});
  const auto verified = [&](const char* key, const char* value) {
    Contents result(dir / "r");
    if (value)
      result.metadata[key] = value;
    else
      result.metadata.erase(key);
    result.write(dir / "other");
    return gemmule({"verify", dir / "p", "--result", dir / "other"});
  };
  const std::pair<const char*, const char*> wrong[] = {{"op", "srelu"},
                                                       {"ab_dtype", "float8_e5m2"},
                                                       {"weight_mode", "discrete"},
                                                       {"act_func", "dgeglu"},
                                                       {"c_dtype", "float16"},
                                                       {"d_dtype", "float8_e5m2"},
                                                       {"sf_vec_size", "16"},
                                                       {"b_major", "n"},
                                                       {"epilogue_op", "srelu"},
                                                       {"act_func", "junk"}};
  for (const auto& [key, value] : wrong) {
    const Finished finished = verified(key, value);
    EXPECT_EQ(finished.code, bad_input) << key;
    EXPECT_THAT(finished.err, HasSubstr("other: " + std::string(key) + "=" + value + " in the result"))
        << key;
  }
  const std::pair<const char*, const char*> right[] = {
      {"op", nullptr},        {"act_func", "dswiglu"}, {"weight_mode", "dense"}, {"b_major", "k"},
      {"situ_beta1", "4.00"}, {"comment", "another"},  {"producer", "a test"}};
  for (const auto& [key, value] : right) EXPECT_EQ(verified(key, value).code, success) << key;
}

TEST(Pipeline, ProblemsMustHaveTheRightTensors) {
  TemporaryDirectory dir;
  succeed(make("dglu", "mxfp8", dir / "dglu"));
  succeed(make("srelu", "nvfp4", dir / "srelu", {"bias=float32"}));
  for (const char* op : {"dglu", "srelu"}) {
    const Contents good(dir / op);
    const auto refused = [&](const Contents& problem, const std::string& message) {
      problem.write(dir / "bad");
      const Finished finished = gemmule({"run", dir / "bad", "-o", dir / "out"});
      EXPECT_EQ(finished.code, bad_input) << op << ": " << message;
      EXPECT_THAT(finished.err, HasSubstr(message)) << op;
      expect_one_line(finished, message);
      EXPECT_FALSE(std::filesystem::exists(dir / "out"));
    };
    for (const auto& [name, tensor] : good.tensors) {
      const bool optional = name == "bias" || (name == "prob" && std::string(op) == "dglu");
      if (!optional) {
        Contents missing(dir / op);
        missing.tensors.erase(name);
        refused(missing, name == "norm_const" ? "norm_const" : "no tensor '" + name + "'");
      }
      Contents reshaped(dir / op);
      io::HostTensor& changed = reshaped.tensors.at(name);
      changed = io::HostTensor(changed.dtype, [&] {
        io::Shape shape = changed.shape;
        shape.back() += 4;
        return shape;
      }());
      refused(reshaped, "expected");

      Contents flat(dir / op);
      flat.tensors.at(name).shape.insert(flat.tensors.at(name).shape.begin(), 1);
      refused(flat, "tensor '" + name + "': shape");

      Contents retyped(dir / op);
      io::HostTensor& other = retyped.tensors.at(name);
      other = io::HostTensor(DType::int64, other.shape);
      refused(retyped, "tensor '" + name + "': dtype int64, expected");
    }
    const auto changed = [&](const char* key, const char* value, const std::string& message) {
      Contents problem(dir / op);
      problem.metadata[key] = value;
      refused(problem, message);
    };
    changed("op", "gelu", "op=gelu: expected srelu or dglu");
    changed("ab_dtype", "float32", "ab_dtype=float32: expected bfloat16");
    changed("ab_dtype", "junk", "ab_dtype=junk");
    changed("weight_mode", "x", "weight_mode=x");
    changed("b_major", "x", "b_major=x");
    changed("sf_vec_size", "64", "sf_vec_size=64");
    changed("sf_vec_size", "", "sf_vec_size=: expected an integer");
    changed("sf_vec_size", "99999999999", "expected an integer");
    changed("d_dtype", "int32", "d_dtype");
    changed("frobnicate", "1", "unknown option 'frobnicate'");
    for (const char* key : {"op", "ab_dtype"}) {
      Contents problem(dir / op);
      problem.metadata.erase(key);
      refused(problem, std::string("no metadata '") + key + "'");
    }
    Contents extra(dir / op);
    extra.tensors.emplace("more", io::HostTensor(DType::float32, {1}));
    refused(extra, "unknown tensor 'more'");
    Contents offsets(dir / op);
    offsets.tensors.at("padded_offsets").as<std::int32_t>()[3] = 1 << 30;
    refused(offsets, "padded_offsets");
    offsets.tensors.at("padded_offsets").as<std::int32_t>()[3] = 100;
    refused(offsets, "padded_offsets");
  }
}

TEST(Pipeline, OptionalParts) {
  TemporaryDirectory dir;
  succeed(make("dglu", "mxfp8", dir / "p"));
  Contents problem(dir / "p");
  problem.tensors.erase("prob");  // block-scaled dglu: no multiply
  for (const char* name : {"sfa", "sfb"}) problem.tensors.at(name).dtype = DType::uint8;  // the same as e8m0
  io::HostTensor dprob(DType::float32, {1024});
  for (float& value : dprob.as<float>()) value = 0.5f;
  problem.tensors.emplace("dprob", std::move(dprob));
  problem.metadata["format"] = "pt";
  problem.write(dir / "p");
  succeed({"run", dir / "p", "-o", dir / "r"});
  succeed({"verify", dir / "p", "--result", dir / "r"});
  const float padding = io::SafetensorsReader(dir / "r").read("dprob").as<float>()[100];
  EXPECT_EQ(padding, 0.5f) << "a padding row adds nothing to the initial value";
}

TEST(Pipeline, FailedRunsLeaveTheOldResult) {
  TemporaryDirectory dir;
  io::write_safetensors(dir / "r", {{"format", "old"}}, {});
  const std::string before = io::slurp(dir / "r");
  EXPECT_EQ(gemmule({"run", example("srelu"), "-o", dir / "r"}).code, bad_input);
  EXPECT_EQ(io::slurp(dir / "r"), before);
  EXPECT_EQ(files_in(dir.path()), std::vector<std::string>{"r"});
}

TEST(Pipeline, OutputsReplaceNoInput) {
  TemporaryDirectory dir;
  succeed(make("srelu", "mxfp8", dir / "p"));
  const std::string before = io::slurp(dir / "p");
  std::filesystem::create_symlink(dir / "p", dir / "link");
  EXPECT_EQ(gemmule({"run", dir / "p", "-o", dir / "p"}).code, bad_input);
  EXPECT_EQ(gemmule({"run", dir / "p", "-o", dir / "link"}).code, bad_input);
  EXPECT_THAT(gemmule({"verify", dir / "p", "--json", dir / "p"}).err, HasSubstr("also names"));
  EXPECT_EQ(io::slurp(dir / "p"), before);
}

TEST(Pipeline, VerifySaysOnATerminalWhatItDoes) {
  TemporaryDirectory dir;
  succeed(make("srelu", "mxfp8", dir / "p"));
  std::ostringstream out, err;
  EXPECT_EQ(run({"verify", dir / "p", "--brief"}, {out, err, false, true}), success);
  EXPECT_THAT(err.str(), HasSubstr("running on"));
  EXPECT_THAT(err.str(), HasSubstr("comparing with the float64 reference ..."));
  EXPECT_TRUE(err.str().ends_with("\r\x1b[K")) << "the line is cleared";
  EXPECT_EQ(succeed({"verify", dir / "p", "--brief"}).err, "");
}

TEST(Pipeline, ResultsDoNotGoToStandardOutput) {
  TemporaryDirectory dir;
  succeed(make("srelu", "mxfp8", dir / "p"));
  const Finished finished = gemmule({"run", dir / "p", "-o", "-"});
  EXPECT_EQ(finished.code, bad_input);
  expect_one_line(finished, "run -o -");
  EXPECT_THAT(finished.err, HasSubstr("cannot write '-': standard output"));
}

TEST(Pipeline, JsonAndBrief) {
  TemporaryDirectory dir;
  succeed(make("srelu", "mxfp8", dir / "p", {"d_dtype=float8_e4m3fn"}));
  const Finished to_stdout = succeed({"verify", dir / "p", "--json", "-"});
  const auto json = nlohmann::json::parse(to_stdout.out);
  EXPECT_EQ(json.at("passed"), true);
  EXPECT_EQ(json.at("op"), "srelu");
  EXPECT_EQ(json.at("outputs").size(), 5u);
  succeed({"verify", dir / "p", "--json", dir / "v.json"});
  EXPECT_EQ(nlohmann::json::parse(io::slurp(dir / "v.json")).at("outputs").size(), 5u);
  const Finished brief = succeed({"verify", dir / "p", "--brief", "--header"});
  EXPECT_EQ(std::count(brief.out.begin(), brief.out.end(), '\n'), 2);
  EXPECT_THAT(brief.out, HasSubstr("verified"));
}

TEST(Pipeline, DevicesThatAreNotThereExitThree) {
  TemporaryDirectory dir;
  succeed(make("dglu", "bf16", dir / "p"));
  succeed(make("srelu", "nvfp4", dir / "scaled"));
  const std::vector<std::vector<std::string>> table{
      {"run", dir / "p", "--backend", "cuda", "--device", "1000", "-o", dir / "r"},
      {"verify", dir / "p", "--backend", "cuda", "--device", "1000"},
      {"run", dir / "p", "--device", "1000", "-o", dir / "r"},
      {"verify", dir / "p", "--device", "1000"},
      {"run", dir / "scaled", "--backend", "cuda", "--device", "1000", "-o", dir / "r"},
      {"verify", dir / "scaled", "--device", "1000"},
      {"bench", "--formats", "bf16", "--device", "1000"},
      {"bench", "--formats", "mxfp8,nvfp4", "--device", "1000"}};
  for (const auto& arguments : table) {
    const Finished finished = gemmule(arguments);
    EXPECT_EQ(finished.code, device_trouble) << arguments[0];
    expect_one_line(finished, arguments[0]);
  }
  EXPECT_FALSE(std::filesystem::exists(dir / "r"));
  const std::vector<std::vector<std::string>> ignored{
      {"run", dir / "p", "--backend", "cpu", "--device", "0", "-o", dir / "r"},
      {"verify", dir / "p", "--backend", "cpu", "--device", "0"},
      {"verify", dir / "p", "--result", dir / "p", "--device", "0"},
      {"bench", "--backend", "cpu", "--device", "0"},
      {"bench", "--threads", "1", "--device", "0"}};
  for (const auto& arguments : ignored) {
    const Finished finished = gemmule(arguments);
    EXPECT_EQ(finished.code, bad_input) << arguments[0];
    EXPECT_THAT(finished.err, HasSubstr("--device")) << arguments[0];
  }
}

}  // namespace
}  // namespace gemmule::cli
