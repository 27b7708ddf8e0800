// gemmule selfcheck: a few minutes of verification on whatever device is present, and a report to send back.
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <ostream>

#include "backend_option.hpp"
#include "backends/cpu/cpu.hpp"
#include "backends/cuda/cuda.hpp"
#include "backends/cuda/device.hpp"
#include "commands.hpp"
#include "gemmule/error.hpp"
#include "gemmule/gemmule.hpp"
#include "gemmule_commit.hpp"
#include "io/atomic_file.hpp"
#include "io/host_tensor.hpp"
#include "selfcheck_report.hpp"
#include "text.hpp"
#include "watchdog.hpp"

namespace gemmule::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Verdict = SelfcheckResult::Verdict;

struct SelfcheckArguments {
  std::string backend = "cuda", report = "gemmule-selfcheck";
  std::optional<int> device;
  int time = 240;
  double case_limit = 180;
  std::uint64_t seed = 0;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

/// The device to check; none: the host.
class Target {
 public:
  explicit Target(const SelfcheckArguments& given) {
    if (given.backend == "cpu") return;
    try {
      gpu_ = &cuda::gpu(given.device.value_or(0));
      arch_ = cuda::required_arch(*gpu_);
    } catch (const RuntimeFailure& error) {
      throw RuntimeFailure(std::string("selfcheck: ") + error.what() +
                           "; --backend cpu checks this machine's processor");
    }
  }

  void describe(SelfcheckReport& report) const {
    report.device =
        gpu_ ? gpu_->describe()
             : std::string("cpu ") + cpu::target() + ", " + std::to_string(num_threads()) + " threads";
    if (!gpu_) return;
    const cuda::Report cuda = cuda::report();
    report.capability = std::to_string(gpu_->capability_major) + "." + std::to_string(gpu_->capability_minor);
    report.sm_count = gpu_->limits.sm_count;
    report.memory_bytes = gpu_->memory_bytes;
    report.driver = cuda.driver;
    report.nvrtc = cuda.compiler;
    report.cache = cuda.cache;
    for (const cuda::Kernel* kernel : cuda::kernels())
      if (kernel->runs_on(arch_)) report.device_kernels.emplace_back(kernel->name);
  }

  /// False when the device has no kernel for the case.
  bool choose_kernel(SelfcheckResult& result) const {
    if (!gpu_) {
      result.kernel = "cpu";
      return true;
    }
    const cuda::Kernel* kernel = cuda::find_kernel(result.what.problem(), arch_, &result.message);
    if (!kernel) return false;
    result.kernel = kernel->name;
    result.message.clear();
    return true;
  }

  io::TensorMap run(io::LoadedProblem& problem) const {
    problem.common().backend = gpu_ ? Backend::automatic : Backend::cpu;
    return io::run_problem(problem, gpu_ ? std::optional(gpu_->index) : std::nullopt);
  }

  /// The same outputs from code that shares nothing with the kernel: the cpu backend's, or for that the reference's.
  io::TensorMap other(io::LoadedProblem& problem) const {
    problem.common().backend = gpu_ ? Backend::cpu : Backend::reference;
    return io::run_problem(problem);
  }

 private:
  const cuda::Gpu* gpu_ = nullptr;
  cuda::Arch arch_{};
};

/// "d_row: byte 17 is 0x3c, expected 0x3d", or empty.
std::string first_difference(const io::TensorMap& got, const io::TensorMap& expected) {
  for (const auto& [name, tensor] : expected) {
    const auto wanted = tensor.as<std::uint8_t>(), found = got.at(name).as<std::uint8_t>();
    if (std::memcmp(wanted.data(), found.data(), wanted.size()) == 0) continue;
    std::size_t at = 0;
    while (wanted[at] == found[at]) ++at;
    char text[64];
    std::snprintf(text, sizeof text, ": byte %zu is 0x%02x, expected 0x%02x", at, unsigned{found[at]},
                  unsigned{wanted[at]});
    return name + text;
  }
  return "";
}

/// Device trouble is thrown, after it has been written into `result`.
void check(const Target& target, SelfcheckResult& result) {
  try {
    if (!target.choose_kernel(result)) {
      result.verdict = Verdict::no_kernel;
      return;
    }
    io::LoadedProblem problem = result.what.build();
    const Clock::time_point start = Clock::now();
    const io::TensorMap got = target.run(problem);
    result.seconds = seconds_since(start);
    const io::BoundCall call = io::bind_call(problem, got);
    result.report = verify::compare(call.problem, call.inputs, call.outputs, {.poison = std::uint8_t{0}});
    if (result.what.exact) result.difference = first_difference(got, target.other(problem));
    if (!result.report.passed() || !result.difference.empty()) result.verdict = Verdict::failed;
  } catch (const std::exception& error) {
    result.verdict = Verdict::failed;
    result.message = error.what();
    throw;
  }
}

/// The report as it grows: on standard output, and in two files once it is complete.
class Writer {
 public:
  Writer(const std::string& name, const Terminal& terminal)
      : json_(name + ".json"), text_file_(name + ".txt"), terminal_(terminal) {
    io::check_writable(json_);
    io::check_writable(text_file_);
  }

  void say(const std::string& words) {
    text_ += words;
    terminal_.out << words << std::flush;
  }
  void finish(const SelfcheckReport& report) {
    say(summary(report));
    io::write_file(json_, to_json(report));
    io::write_file(text_file_, text_);
    terminal_.out << "report: " << text_file_ << " and " << json_ << std::endl;
  }

 private:
  std::string json_, text_file_, text_;
  const Terminal& terminal_;
};

void run_cases(const SelfcheckArguments& given, const Target& target, SelfcheckReport& report,
               Writer& writer) {
  const Clock::time_point start = Clock::now();
  writer.say(header(report));
  SelfcheckResult result;
  // A kernel that never ends cannot be stopped: the report is written, and the process ends.
  const auto limit = std::chrono::milliseconds(static_cast<std::int64_t>(1000 * given.case_limit));
  Watchdog watchdog(limit, [&] {
    result.verdict = Verdict::failed;
    result.message = report.stopped = "not finished after " + number(given.case_limit) + " s";
    report.results.push_back(result);
    report.seconds = seconds_since(start);
    writer.say(line_end(result) + "\n");
    writer.finish(report);
    std::_Exit(verification_failed);
  });
  for (std::size_t i = 0; report.stopped.empty() && seconds_since(start) < given.time; ++i) {
    result = {};
    result.number = i;
    result.what = selfcheck_case(given.seed, i);
    writer.say(line_begin(result));
    watchdog.feed();
    try {
      check(target, result);
    } catch (const std::exception& error) {  // after an error on the device nothing works there any more
      report.stopped = error.what();
    }
    watchdog.feed();
    writer.say(line_end(result) + "\n");
    report.results.push_back(result);
  }
  report.seconds = seconds_since(start);
}

void check_arguments(const SelfcheckArguments& given) {
  backend_with_device(given.backend, given.device.has_value());
  if (std::isnan(given.case_limit))  // no comparison finds it out of range
    throw InvalidArgument("--case-limit: nan, expected 0.001 to 1e6 seconds");
  if (std::filesystem::path(given.report).filename().empty())
    throw InvalidArgument("--report " + io::quote(given.report) + ": expected the name of a file");
}

int selfcheck(const SelfcheckArguments& given, const Terminal& terminal) {
  check_arguments(given);
  const Target target(given);
  Writer writer(given.report, terminal);
  SelfcheckReport report;
  report.version = version();
  report.commit = build_commit;
  report.started = utc_now();
  report.seed = given.seed;
  report.round = selfcheck_round();
  target.describe(report);
  run_cases(given, target, report, writer);
  writer.finish(report);
  if (report.count(Verdict::no_kernel) == report.results.size())
    throw RuntimeFailure("selfcheck: " + report.device + " has no kernel for any of the " +
                         std::to_string(report.results.size()) + " cases; nothing was checked");
  if (report.passed()) return success;
  terminal.err << "gemmule: selfcheck failed: " << report.count(Verdict::failed) << " of "
               << report.results.size() << " cases\n";
  return verification_failed;
}

}  // namespace

void add_selfcheck(CLI::App& app, Action& action) {
  const auto given = std::make_shared<SelfcheckArguments>();
  CLI::App* command = app.add_subcommand(
      "selfcheck",
      "Verify every kernel of this machine's GPU for a few minutes, and write a report to send back");
  command->add_option("--backend", given->backend, "cuda (default), or cpu to check the processor instead")
      ->check(CLI::IsMember({"cuda", "cpu"}));
  command->add_option("--device", given->device, "CUDA device (default 0)")
      ->transform(decimal)
      ->check(CLI::Range(0, 1023));
  command
      ->add_option("--time", given->time,
                   "Seconds after which no further case is begun (default 240; one round of cases needs a "
                   "few minutes)")
      ->transform(decimal)
      ->check(CLI::Range(1, 1 << 20));
  command
      ->add_option("--case-limit", given->case_limit,
                   "Seconds after which a case counts as hanging and ends the run (default 180)")
      ->check(CLI::Range(0.001, 1e6));
  command->add_option("--seed", given->seed, "Seed of the drawn options and data (default 0)")
      ->transform(decimal);
  command->add_option("--report", given->report,
                      "Name of the report without its .txt and .json (default gemmule-selfcheck)");
  command->callback([given, &action] {
    action = [given](const Terminal& terminal) { return selfcheck(*given, terminal); };
  });
}

}  // namespace gemmule::cli
