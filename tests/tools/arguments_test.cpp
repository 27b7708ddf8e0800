// What the command says to help requests and to bad input.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "command.hpp"
#include "gemmule/error.hpp"
#include "models.hpp"
#include "random.hpp"

namespace gemmule::cli {
namespace {
using testing::HasSubstr;

const std::vector<std::string> subcommands{"info",   "make",  "prepare",    "run",
                                           "verify", "bench", "precompile", "selfcheck"};

TEST(Arguments, EverySubcommandHasHelp) {
  const Finished all = gemmule({"--help"});
  EXPECT_EQ(all.code, success);
  for (const std::string& name : subcommands) {
    EXPECT_THAT(all.out, HasSubstr("\n  " + name));
    const Finished one = gemmule({name, "--help"});
    EXPECT_EQ(one.code, success) << name;
    EXPECT_THAT(one.out, HasSubstr("Usage: gemmule " + name)) << name;
    EXPECT_EQ(one.err, "") << name;
  }
  EXPECT_THAT(gemmule({"make", "--help"}).out, HasSubstr("tanh_clamp_scale=number|none"));
  EXPECT_THAT(gemmule({"--version"}).out, HasSubstr("0."));
}

TEST(Arguments, InfoListsBackends) {
  const Finished info = succeed({"info"});
  for (const char* text : {"cpu", "reference", "cuda", "deepseek-v3", "nvfp4"})
    EXPECT_THAT(info.out, HasSubstr(text));
  EXPECT_EQ(info.out.find('\x1b'), std::string::npos);
  EXPECT_THAT(gemmule({"info"}, true).out, HasSubstr("\x1b[1m"));
}

TEST(Arguments, BadOnesAreOneLineAndExitTwo) {
  TemporaryDirectory dir;
  const std::string out = dir / "out.safetensors";
  const std::vector<std::string> make{"make", "--op", "dglu", "--format", "mxfp8", "-o", out};
  const auto with = [](std::vector<std::string> base, const std::vector<std::string>& more) {
    base.insert(base.end(), more.begin(), more.end());
    return base;
  };
  const std::vector<std::string> small{"--experts", "2", "--n", "64", "--k", "64"};
  const auto dglu = [&](const std::vector<std::string>& more) { return with(with(make, small), more); };
  const auto srelu = [&](const std::string& format, const std::vector<std::string>& more) {
    return with(with({"make", "--op", "srelu", "--format", format, "-o", out}, small), more);
  };
  struct Row {
    std::vector<std::string> arguments;
    const char* message;
  };
  const Row table[] = {
      {{}, "subcommand is required"},
      {{"--nope"}, "unknown option '--nope'"},
      {{"nonsense"}, "unknown subcommand 'nonsense', expected one of info, make"},
      {{"info", "extra"}, "extra"},
      {{"make"}, "required"},
      {make, "make needs --model, or --experts (or --rows), --n and --k"},
      {with(make, {"--model", "gpt-5"}), "expected one of deepseek-v3"},
      {dglu({"--rows", "1,2,3"}), "--rows has 3 counts"},
      {dglu({"--rows", "-1,3"}), "--rows"},
      {dglu({"--rows", "1,"}), "--rows=: expected an integer"},
      {dglu({"--rows", "1,x"}), "--rows=x: expected an integer"},
      {dglu({"--format", "fp3"}), "--format"},
      {dglu({"act_func"}), "expected option=value"},
      {dglu({"=x"}), "expected option=value"},
      {dglu({"act_func=dswiglu", "act_func=dgeglu"}), "given twice"},
      {dglu({"act_func=gelu"}), "gelu"},
      {dglu({"tanh_clamp_scale=8"}), "unknown option 'tanh_clamp_scale' for op=dglu"},
      {dglu({"colour=red"}), "unknown option 'colour'"},
      {dglu({"op=srelu"}), "unknown option 'op'"},
      {dglu({"ab_dtype=bfloat16"}), "unknown option 'ab_dtype'"},
      {dglu({"vector_f32=yes"}), "vector_f32=yes: expected true or false"},
      {dglu({"m_aligned=many"}), "m_aligned=many: expected an integer"},
      {dglu({"m_aligned=64"}), "m_aligned"},
      {dglu({"m_aligned=0"}), "m_aligned=0: expected 256 or 128"},
      {dglu({"mma_tiler_mn=256"}), "mma_tiler_mn=256: expected two integers"},
      {dglu({"mma_tiler_mn=256,256,1"}), "mma_tiler_mn=256,256,1: expected two integers"},
      {dglu({"mma_tiler_mn=256,100"}), "mma_tiler_mn"},
      {dglu({"cluster_shape_mn=3,1"}), "cluster_shape_mn"},
      {dglu({"--rows", "1,2", "--tokens", "9"}), "--rows excludes --tokens"},
      {dglu({"--seed=-1"}), "--seed: -1: expected a whole number"},
      {dglu({"--seed", "0x10"}), "--seed: 0x10: expected a whole number"},
      {dglu({"--seed", "18446744073709551616"}), "--seed: 18446744073709551616: expected a whole number"},
      {dglu({"alpha=1e39"}), "alpha=1e39: expected a number that is finite in float32"},
      {dglu({"beta=nan"}), "beta=nan: expected a number that is finite in float32"},
      {dglu({"norm_const=inf"}), "norm_const=inf: expected a number that is finite in float32"},
      {dglu({"geglu_alpha=nan"}), "geglu_alpha=nan: expected a number that is finite"},
      {dglu({"glu_clamp_max=nan"}), "glu_clamp_max=nan: expected a number"},
      {dglu({"situ_beta1=0"}), "situ_beta1=0: expected a number above 0"},
      {dglu({"situ_beta2=1e-40"}), "situ_beta2=1e-40: expected a number above 0"},
      {dglu({"geglu_alpha=big"}), "geglu_alpha=big: expected a number"},
      {dglu({"geglu_filter=both"}), "geglu_filter=both: expected automatic, mask or value"},
      {dglu({"epilogue_op=gelu"}), "gelu"},
      {dglu({"d_dtype=float12"}), "d_dtype=float12: expected one of float32"},
      {dglu({"d_dtype=bfloat16"}), "d_dtype"},
      {dglu({"c_dtype=int32"}), "c_dtype"},
      {dglu({"sf_vec_size=16"}), "sf_vec_size=16"},
      {dglu({"weight_mode=sparse"}), "weight_mode=sparse: expected dense or discrete"},
      {dglu({"b_major=m"}), "b_major=m: expected k or n"},
      {dglu({"cd_major=m"}), "cd_major"},
      {dglu({"norm_const=0"}), "norm_const"},
      {dglu({"norm_const=-1"}), "norm_const"},
      {dglu({"acc_dtype=float16"}), "acc_dtype"},
      {srelu("bf16", {}), "--format bf16: srelu is block-scaled"},
      {srelu("nvfp4", {"sf_vec_size=32"}), "sf_vec_size"},
      {srelu("nvfp4", {"b_major=n"}), "b_major"},
      {srelu("mxfp8", {"d_dtype=float32"}), "d_dtype"},
      {srelu("mxfp8", {"tanh_clamp_scale=-1"}), "tanh_clamp_scale"},
      {srelu("mxfp8", {"act_func=dswiglu"}), "unknown option 'act_func' for op=srelu"},
      {{"make", "--op", "dglu", "--format", "bf16", "--experts", "1", "--n", "40", "--k", "64", "-o", out},
       "n=40"},
      {{"make", "--op", "srelu", "--format", "nvfp4", "--experts", "1", "--n", "32", "--k", "33", "-o", out},
       "k=33"},
      {{"make", "--op", "srelu", "--format", "nvfp4", "--experts", "1", "--n", "-4", "--k", "32", "-o", out},
       "--n: -4: expected a whole number"},
      {{"make", "--op", "srelu", "--format", "nvfp4", "--experts", "1025", "--n", "32", "--k", "32", "-o",
        out},
       "--experts"},
      {srelu("mxfp8", {"tanh_clamp_scale=1e-45"}), "tanh_clamp_scale: 1e-45, expected"},
      // 2^50 values: refused before any is made.
      {{"make", "--op", "srelu", "--format", "mxfp8", "--experts", "4", "--n", "16777208", "--k", "16777208",
        "-o", out},
       "a_tensor: 16777208 contiguous values"},
      {{"make", "--op", "dglu", "--format", "bf16", "--rows", "1", "--n", "32", "--k", "32", "-o", "-"},
       "standard output"},
      {{"prepare", example("srelu"), "--format", "mxfp8", "-o", "-"}, "standard output"},
      {{"bench", "--csv", "-"}, "standard output"},
      {{"bench", "--html", "-"}, "standard output"},
      {{"bench", "--bf16-d", "--op", "dglu"}, "--bf16-d: of no effect"},
      {{"bench", "--bf16-d", "--op", "srelu", "--formats", "nvfp4"}, "--bf16-d: of no effect"},
      {{"prepare", dir / "missing", "--format", "mxfp8", "-o", out}, "cannot read"},
      {{"prepare", example("srelu"), "--format", "mxfp8", "bias=float32", "-o", out},
       "a capture has no bias"},
      {{"prepare", example("srelu"), "--format", "bf16", "-o", out}, "--format bf16: srelu is block-scaled"},
      {{"prepare", example("situglu"), "--format", "bf16", "-o", out}, "dsituglu"},
      {{"prepare", example("srelu"), "--format", "mxfp8"}, "--output is required"},
      {{"prepare", example("srelu"), "--format", "mxfp8", "-o", dir / "no/dir/out"}, "cannot write"},
      {{"prepare", example("srelu"), "--format", "mxfp8", "-o", dir.path()}, "not a regular file"},
      {{"run", example("srelu"), "-o", out}, "unknown tensor 'expected_h'"},
      {{"run", dir / "missing", "-o", out}, "cannot read"},
      {{"verify", dir / "missing"}, "cannot read"},
      {{"verify", dir / "missing", "--backend", "reference"}, "compared with itself"},
      {{"verify", dir / "missing", "--backend", "tpu"}, "--backend"},
      {{"verify", dir / "missing", "--threads", "0"}, "--threads"},
      {{"bench", "--op", "gemm"}, "--op"},
      {{"bench", "--op", "srelu", "--formats", "bf16"}, "srelu has no bf16 form"},
      {{"bench", "--formats", "int8"}, "--formats"},
      {{"bench", "--models", "gpt-5"}, "expected one of deepseek-v3"},
      {{"bench", "--rows", "100"}, "positive multiple of 128"},
      {{"bench", "--n", "40", "--op", "dglu"}, "--n 40: dglu needs a multiple of 32"},
      {{"bench", "--repeats", "0"}, "--repeats"},
      {{"bench", "--models", "qwen3-235b", "--n", "64"}, "--models excludes --n"},
      {{"bench", "--models", "qwen3-235b", "--k", "64"}, "--models excludes --k"},
      {{"prepare", example("srelu"), "--format", "mxfp8", "-o", "/dev/null"},
       "'/dev/null': not a regular file"},
      {{"bench", "--html", dir / "no/dir/x.html"}, "cannot write"},
      {{"precompile"}, "--arch is required"},
      {{"precompile", "--arch", "sm_80"}, "--arch"},
  };
  for (const Row& row : table) {
    const Finished finished = gemmule(row.arguments);
    std::string line;
    for (const std::string& argument : row.arguments) line += " " + argument;
    EXPECT_EQ(finished.code, bad_input) << line << ": " << finished.err;
    expect_one_line(finished, line);
    EXPECT_THAT(finished.err, HasSubstr(row.message)) << line;
  }
  EXPECT_TRUE(files_in(dir.path()).empty()) << "nothing may be written";
}

TEST(Arguments, WhatMemoryCannotHoldIsRefusedBeforeItIsMade) {
  TemporaryDirectory dir;
  const Finished finished = gemmule({"make", "--op", "srelu", "--format", "mxfp8", "--experts", "4", "--n",
                                     "16777216", "--k", "16777216", "-o", dir / "p"});
  EXPECT_EQ(finished.code, device_trouble);
  expect_one_line(finished, "make");
  EXPECT_THAT(finished.err, HasSubstr("out of memory: the problem takes 2.29e+06 GB"));
  EXPECT_TRUE(files_in(dir.path()).empty());
}

TEST(Arguments, NumbersAreDecimal) {
  TemporaryDirectory dir;
  const Finished made = succeed({"make", "--op", "dglu", "--format", "bf16", "--rows", "1", "--n", "032",
                                 "--k", "040", "--seed", "010", "-o", dir / "p", "glu_clamp_max=7"});
  EXPECT_THAT(made.out, HasSubstr("N 32, K 40"));
  EXPECT_EQ(io::SafetensorsReader(dir / "p").metadata().at("comment"), "random data, seed 10");
}

TEST(Arguments, OutputThatCannotBeWrittenIsExitTwo) {
  std::ofstream full("/dev/full");
  std::ostringstream err;
  EXPECT_EQ(run({"info"}, {full, err, false, false}), bad_input);
  EXPECT_EQ(err.str(), "gemmule: standard output cannot be written\n");
}

/// In a process of its own, which the limit is for.
TEST(Arguments, FileSizeLimitLeavesNothing) {
  TemporaryDirectory dir;
  std::string out = dir / "p";
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    std::vector<std::string> words{"gemmule", "make", "--op", "dglu", "--format", "bf16", "--rows",
                                   "256",     "--n",  "64",   "--k",  "64",       "-o",   out};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    ::_exit(main(static_cast<int>(argv.size()), argv.data()));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), bad_input);
  EXPECT_TRUE(files_in(dir.path()).empty());
}

TEST(Arguments, ControlCharactersDoNotReachTheTerminal) {
  const Finished finished = gemmule({"run", "a\nb\x1b[31m", "-o", "x"});
  EXPECT_EQ(finished.code, bad_input);
  expect_one_line(finished, "escape");
  EXPECT_EQ(finished.err.find('\x1b'), std::string::npos);
}

TEST(Models, NamesAreForgiving) {
  EXPECT_EQ(model_from_name("DeepSeek-V3").k, 7168);
  EXPECT_EQ(model_from_name("GPT_OSS 120b").n, 2880);
  EXPECT_THROW(model_from_name(""), InvalidArgument);
}

TEST(Models, RoutingIsSkewedAndHasEmptyExperts) {
  for (std::uint64_t seed = 0; seed < 50; ++seed)
    for (const int experts : {1, 3, 4, 8, 16, 64}) {
      const auto counts = route(seed, experts, 1000);
      ASSERT_EQ(counts.size(), static_cast<std::size_t>(experts));
      std::int64_t sum = 0;
      for (const std::int64_t count : counts) sum += count;
      EXPECT_EQ(sum, 1000);
      EXPECT_GE(*std::min_element(counts.begin(), counts.end()), 0);
      if (experts >= 4) {
        EXPECT_EQ(*std::min_element(counts.begin(), counts.end()), 0);
        EXPECT_GE(*std::max_element(counts.begin(), counts.end()) * experts, 1800);
      }
    }
  EXPECT_NE(route(1, 16, 1000), route(2, 16, 1000));
  EXPECT_EQ(route(1, 16, 1000), route(1, 16, 1000));
  EXPECT_EQ(route(1, 8, 0), std::vector<std::int64_t>(8, 0));
}

TEST(Random, LooksNormalAndUniform) {
  const Random random(3, 1);
  double sum = 0, squares = 0, uniform = 0;
  constexpr int count = 200'000;
  for (int i = 0; i < count; ++i) {
    const double value = random.normal(static_cast<std::uint64_t>(i));
    sum += value;
    squares += value * value;
    uniform += random.uniform(static_cast<std::uint64_t>(i));
  }
  EXPECT_NEAR(sum / count, 0, 0.01);
  EXPECT_NEAR(squares / count, 1, 0.01);
  EXPECT_NEAR(uniform / count, 0.5, 0.005);
  EXPECT_NE(random.bits(0), Random(3, 2).bits(0));
  EXPECT_NE(random.bits(0), Random(4, 1).bits(0));
}

}  // namespace
}  // namespace gemmule::cli
