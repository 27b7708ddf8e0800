// The bench command on a small case, and its reports. Nothing here looks at how long anything took.
#include <nlohmann/json.hpp>

#include "backends/cuda/cuda.hpp"
#include "backends/cuda/device.hpp"
#include "backends/cuda/driver.hpp"
#include "backends/cuda/kernel.hpp"
#include "bench.hpp"
#include "bench_report.hpp"
#include "command.hpp"

namespace gemmule::cli {
namespace {
using testing::HasSubstr;

TEST(Bench, WritesATableAndReports) {
  TemporaryDirectory dir;
  const Finished finished =
      succeed({"bench", "--experts", "2", "--rows", "128", "--n", "64", "--k", "64", "--repeats", "1",
               "--threads", "1", "--json", dir / "b.json", "--csv", dir / "b.csv", "--html", dir / "b.html"});
  for (const char* text : {"TFLOP/s", "of limit", "baseline ms", "dglu", "srelu", "nvfp4", "2x128 N64 K64"})
    EXPECT_THAT(finished.out, HasSubstr(text));
  EXPECT_EQ(finished.err, "") << "progress is for terminals";
  const auto json = nlohmann::json::parse(io::slurp(dir / "b.json"));
  ASSERT_EQ(json.at("results").size(), 5u);  // srelu has no bf16
  for (const auto& row : json.at("results")) {
    EXPECT_GT(row.at("seconds"), 0.0);
    EXPECT_EQ(row.at("rows"), 256);
  }
  const std::string csv = io::slurp(dir / "b.csv");
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 6);
  EXPECT_THAT(io::slurp(dir / "b.html"), HasSubstr("</html>"));
  EXPECT_EQ(files_in(dir.path()).size(), 3u);
}

TEST(Bench, JsonGoesToStandardOutputForADash) {
  const Finished finished = succeed(
      {"bench", "--op", "dglu", "--formats", "mxfp8", "--experts", "1", "--rows",        "128",    "--n",
       "32",    "--k",  "32",   "--repeats", "1",     "--threads", "1", "--no-baseline", "--json", "-"});
  EXPECT_EQ(nlohmann::json::parse(finished.out).at("results").size(), 1u) << finished.out;
  EXPECT_FALSE(std::filesystem::exists("-"));
}

TEST(Bench, SreluOfFp8CanWriteBf16) {
  TemporaryDirectory dir;
  succeed({"bench", "--bf16-d", "--formats", "mxfp8,nvfp4", "--experts", "1", "--rows", "128", "--n", "64",
           "--k", "64", "--repeats", "1", "--threads", "1", "--json", dir / "b.json"});
  std::vector<std::string> shown;
  const auto json = nlohmann::json::parse(io::slurp(dir / "b.json"));
  for (const auto& row : json.at("results"))
    shown.push_back(row.at("op").get<std::string>() + " " + row.at("format").get<std::string>());
  EXPECT_EQ(shown,
            (std::vector<std::string>{"srelu mxfp8->bf16", "srelu nvfp4", "dglu mxfp8", "dglu nvfp4"}));
}

TEST(Bench, DevicesNeedADriver) {
  if (cuda::find_driver()) GTEST_SKIP() << "NOT TESTED: there is a driver";
  const Finished finished = gemmule({"bench", "--backend", "cuda", "--n", "64", "--k", "64"});
  EXPECT_EQ(finished.code, 3);
  expect_one_line(finished, "bench --backend cuda");
  EXPECT_THAT(finished.err, HasSubstr("libcuda.so.1"));
}

TEST(Bench, OptionsOfTheProcessorAreRefusedOnDevices) {
  for (const std::vector<std::string>& option :
       {std::vector<std::string>{"--threads", "2"}, {"--cpu-time"}}) {
    std::vector<std::string> arguments{"bench", "--backend", "cuda"};
    arguments.insert(arguments.end(), option.begin(), option.end());
    const Finished finished = gemmule(arguments);
    EXPECT_EQ(finished.code, 2);
    expect_one_line(finished, option[0]);
    EXPECT_THAT(finished.err, HasSubstr(option[0]));
  }
}

TEST(Bench, EveryCaseHasAKernelOnEveryArchitecture) {
  for (const cuda::Arch arch : {cuda::Arch::sm_90a, cuda::Arch::sm_100a, cuda::Arch::sm_103a})
    for (const Op op : {Op::srelu, Op::dglu})
      for (const char* format : {"bf16", "mxfp8", "mxfp8_e5m2", "mxfp4", "nvfp4"}) {
        if (op == Op::srelu && std::string(format) == "bf16") continue;
        for (const int m_aligned : {128, 256}) {
          Problem problem = bench::make_problem(op, format, 8, 64, 64);
          problem.m_aligned = m_aligned;
          std::string why;
          EXPECT_NE(cuda::find_kernel(problem, arch, &why), nullptr)
              << cuda::name(arch) << " " << format << ": " << why;
        }
      }
}

TEST(Bench, TimesADeviceWhereThereIsOne) {
  const Problem problem = bench::make_problem(Op::dglu, "bf16", 8, 64, 64);
  if (const std::string why = cuda::refusal(problem, 0); !why.empty()) GTEST_SKIP() << "NOT TESTED: " << why;
  TemporaryDirectory dir;
  const Finished finished =
      succeed({"bench", "--backend", "cuda", "--formats", "bf16,mxfp8,mxfp8_e5m2,mxfp4,nvfp4", "--experts",
               "2", "--rows", "128", "--n", "64", "--k", "64", "--repeats", "2", "--json", dir / "b.json"});
  EXPECT_THAT(finished.out, HasSubstr(cuda::gpu(0).name));
  EXPECT_EQ(finished.err, "");
  const auto json = nlohmann::json::parse(io::slurp(dir / "b.json"));
  ASSERT_EQ(json.at("results").size(), 9u);  // srelu has no bf16
  for (const auto& row : json.at("results")) EXPECT_GT(row.at("seconds"), 0.0);
  EXPECT_EQ(json.at("statistic"), "median");
  EXPECT_TRUE(json.at("threads").is_null());
}

BenchReport sample() {
  BenchReport report{"0.1.0", "cpu <avx2>, 2 threads", "OpenBLAS & co", 2, 5, {}};
  Measurement fast{"dglu", "mxfp8", "4x512 N2048 K2048", 4, 2048, 2048, 2048, 0.1, 0.11, 0.3, 0.08,
                   17.2e9, 50e6};
  Measurement alone = fast;
  alone.baseline_seconds = alone.limit_seconds = 0;
  report.rows = {fast, alone};
  return report;
}

TEST(Bench, ReportsSayNothingAboutWhatWasNotMeasured) {
  const auto json = nlohmann::json::parse(to_json(sample()));
  EXPECT_DOUBLE_EQ(json.at("results")[0].at("share_of_limit"), 0.8);
  EXPECT_DOUBLE_EQ(json.at("results")[0].at("speedup"), 3.0);
  EXPECT_DOUBLE_EQ(json.at("results")[0].at("tflops"), 0.172);
  EXPECT_DOUBLE_EQ(json.at("results")[0].at("gigabytes_per_second"), 0.5);
  EXPECT_TRUE(json.at("results")[1].at("speedup").is_null());
  EXPECT_TRUE(to_csv(sample()).ends_with(",,,,\n"));
}

TEST(Bench, HtmlIsSelfContainedAndEscaped) {
  const std::string html = to_html(sample());
  EXPECT_THAT(html, HasSubstr("<svg"));
  EXPECT_THAT(html, HasSubstr("&lt;avx2&gt;"));
  EXPECT_THAT(html, HasSubstr("OpenBLAS &amp; co"));
  for (const char* text : {"http:", "https:", "src=", "<script", "<link", "@import", "nan", "inf"})
    EXPECT_EQ(html.find(text), std::string::npos) << text;
}

}  // namespace
}  // namespace gemmule::cli
