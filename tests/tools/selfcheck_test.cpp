// gemmule selfcheck, on the host: its cases, its report, and that it can fail.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <set>

#include "command.hpp"
#include "selfcheck_report.hpp"
#include "watchdog.hpp"

namespace gemmule::cli {
namespace {
using testing::HasSubstr;

TEST(Selfcheck, EveryCaseIsLegalAndCanBeMade) {
  std::set<std::string> commands;
  for (std::size_t i = 0; i < selfcheck_round(); ++i) {
    const SelfcheckCase what = selfcheck_case(3, i);
    const std::string command = what.command();
    EXPECT_EQ(command, selfcheck_case(3, i).command());
    commands.insert(command);
    const Problem described = what.problem();
    EXPECT_EQ(described.op, what.spec.op);
    EXPECT_EQ(described.k, what.spec.k);
    if (i % 9) continue;  // building all of them takes long; random and exact ones in turn
    TemporaryDirectory dir;
    std::vector<std::string> words;
    std::istringstream in(command);
    for (std::string word; in >> word;) words.push_back(word);
    words.erase(words.begin());
    words.insert(words.end(), {"-o", dir / "p"});
    succeed(words);
    const io::SafetensorsReader reader(dir / "p");
    const io::LoadedProblem built = what.build();
    EXPECT_EQ(io::check_problem(built), described) << command;
    for (const char* name : {"a", "b", "prob"}) {
      const io::HostTensor made = reader.read(name);
      const auto bytes = built.tensors.at(name).as<std::byte>();
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), made.as<std::byte>().begin())) << command;
    }
  }
  EXPECT_EQ(commands.size(), selfcheck_round());
}

TEST(Selfcheck, RunsOnTheHostAndWritesAReport) {
  TemporaryDirectory dir;
  const Finished finished =
      succeed({"selfcheck", "--backend", "cpu", "--time", "1", "--report", dir / "report"});
  EXPECT_EQ(files_in(dir.path()), (std::vector<std::string>{"report.json", "report.txt"}));
  const std::string text = io::slurp(dir / "report.txt");
  EXPECT_TRUE(finished.out.starts_with(text));
  EXPECT_THAT(text, HasSubstr(" passed, 0 failed, 0 without a kernel"));
  const auto json = nlohmann::json::parse(io::slurp(dir / "report.json"));
  EXPECT_EQ(json.at("passed"), true);
  EXPECT_THAT(json.at("device").get<std::string>(), HasSubstr("cpu "));
  EXPECT_NE(json.at("commit"), "");
  ASSERT_GE(json.at("cases").size(), 1u);
  EXPECT_EQ(json.at("totals").at("passed"), json.at("cases").size());
  EXPECT_EQ(json.at("kernels").at("cpu"), json.at("cases").size());
  const auto& first = json.at("cases")[0];
  EXPECT_EQ(first.at("verdict"), "ok");
  EXPECT_GT(first.at("max_error_over_bound"), 0.0);
  EXPECT_LE(first.at("max_error_over_bound"), 1.0);
  EXPECT_THAT(first.at("command").get<std::string>(), HasSubstr("gemmule make --op "));
}

TEST(Selfcheck, NeedsADevice) {
  TemporaryDirectory dir;
  const Finished finished = gemmule({"selfcheck", "--device", "1000", "--report", dir / "report"});
  EXPECT_EQ(finished.code, device_trouble);
  expect_one_line(finished, "selfcheck");
  EXPECT_THAT(finished.err, HasSubstr("--backend cpu"));
  EXPECT_TRUE(files_in(dir.path()).empty());
  EXPECT_EQ(gemmule({"selfcheck", "--backend", "cpu", "--report", dir / "no/report"}).code, bad_input);
  EXPECT_EQ(gemmule({"selfcheck", "--time", "0"}).code, bad_input);
}

TEST(Selfcheck, RefusesWhatItWouldIgnoreOrMisread) {
  TemporaryDirectory dir;
  const std::vector<std::pair<std::vector<std::string>, const char*>> table{
      {{"--device", "0"}, "--device: not with --backend cpu"},
      {{"--case-limit", "nan"}, "--case-limit"},
      {{"--report", ""}, "--report '': expected the name of a file"},
      {{"--report", dir / ""}, "expected the name of a file"}};
  for (const auto& [more, message] : table) {
    std::vector<std::string> words{"selfcheck", "--backend", "cpu", "--time", "1"};
    words.insert(words.end(), more.begin(), more.end());
    const Finished finished = gemmule(words);
    EXPECT_EQ(finished.code, bad_input) << message;
    expect_one_line(finished, message);
    EXPECT_THAT(finished.err, HasSubstr(message));
  }
  EXPECT_TRUE(files_in(dir.path()).empty());
}

TEST(Selfcheck, AWatchdogBarksOnce) {
  std::atomic<int> expired{0};
  {
    Watchdog watchdog(std::chrono::hours(1), [&] { ++expired; });
    watchdog.feed();
  }
  EXPECT_EQ(expired, 0);
  std::mutex mutex;
  std::condition_variable changed;
  Watchdog watchdog(std::chrono::milliseconds(1), [&] {
    const std::lock_guard lock(mutex);
    ++expired;
    changed.notify_one();
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return expired == 1; });
}

/// A case that does not end within the limit: the report is written all the same, and the process ends with 1.
TEST(Selfcheck, HangsEndTheRunWithAReport) {
  TemporaryDirectory dir;
  const pid_t child = ::fork();
  if (child == 0) {
    std::ostringstream out, err;
    // The reference of the first cases takes longer than a millisecond, which stands for a hang here.
    ::_exit(run({"selfcheck", "--backend", "cpu", "--time", "30", "--case-limit", "0.001", "--report",
                 dir / "report"},
                {out, err, false, false}) +
            10);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), verification_failed);
  EXPECT_THAT(io::slurp(dir / "report.txt"), HasSubstr("not finished after"));
  EXPECT_EQ(nlohmann::json::parse(io::slurp(dir / "report.json")).at("passed"), false);
}

TEST(Selfcheck, ReportsSayWhatFailed) {
  SelfcheckReport report;
  report.round = 4;
  report.device_kernels = {"sm100_never", "sm90_some"};
  for (std::size_t i = 0; i < 3; ++i) {
    SelfcheckResult result;
    result.number = i;
    result.what = selfcheck_case(0, i);
    result.kernel = "sm90_some";
    report.results.push_back(result);
  }
  EXPECT_TRUE(report.passed());
  report.results[1].verdict = SelfcheckResult::Verdict::failed;
  report.results[1].difference = "d_row: byte 5 is 0x01, expected 0x02";
  report.results[2].verdict = SelfcheckResult::Verdict::no_kernel;
  report.results[2].kernel.clear();
  report.results[2].message = "no such kernel";
  report.stopped = "illegal address";
  EXPECT_FALSE(report.passed());
  EXPECT_FALSE(report.complete());
  const std::string text = summary(report);
  for (const char* part :
       {"FAILED: case 2 (sm90_some): gemmule make ", "byte 5 is 0x01",
        "no kernel for 1 cases: no such kernel", "sm100_never: 0 cases", "sm90_some: 2 cases",
        "stopped early: illegal address", "incomplete: 3 of the 4", "1 passed, 1 failed, 1 without a kernel"})
    EXPECT_THAT(text, HasSubstr(part));
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json.at("passed"), false);
  EXPECT_EQ(json.at("totals").at("failed"), 1);
  EXPECT_EQ(json.at("cases")[1].at("verdict"), "FAILED");
  EXPECT_EQ(json.at("kernels").at("sm100_never"), 0);
}

}  // namespace
}  // namespace gemmule::cli
