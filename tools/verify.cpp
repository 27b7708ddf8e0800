// gemmule verify: every output against the float64 reference, and against PyTorch's where a capture is given.
#include "verify/verify.hpp"

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "backend_option.hpp"
#include "commands.hpp"
#include "compare_capture.hpp"
#include "gemmule/error.hpp"
#include "io/atomic_file.hpp"
#include "text.hpp"

namespace gemmule::cli {
namespace {

struct VerifyArguments {
  std::string problem, result, expected, json;
  bool brief = false, header = false;
  BackendChoice backend;
};

struct Outcome {
  verify::Report report;
  std::vector<CaptureCheck> capture;
  double seconds = 0;  ///< of the call that was verified; 0 for a result file

  bool passed() const {
    bool good = report.passed();
    for (const CaptureCheck& check : capture) good = good && check.passed();
    return good;
  }
};

io::TensorMap read_result(const io::LoadedProblem& problem, const std::string& path) {
  const io::SafetensorsReader reader(path);
  io::TensorMap result;
  for (const auto& [name, entry] : reader.tensors()) result.emplace(name, reader.read(name));
  try {
    io::check_result(problem, reader.metadata(), result);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(io::printable(path) + ": " + error.what());
  }
  return result;
}

Outcome check(const io::LoadedProblem& problem, const VerifyArguments& given, const Runner& runner,
              const Terminal& terminal) {
  const StatusLine status(terminal);
  // The capture is read first: a bad file is found before the long work.
  std::optional<Capture> capture;
  if (!given.expected.empty()) capture.emplace(given.expected);
  Outcome outcome;
  io::TensorMap result;
  if (given.result.empty()) {
    status.show("running on " + runner.name + " ...");
    const auto start = std::chrono::steady_clock::now();
    result = io::run_problem(problem, runner.cuda_device);
    outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  } else {
    result = read_result(problem, given.result);
  }
  if (capture) outcome.capture = compare_capture(problem, result, *capture);
  const io::BoundCall call = io::bind_call(problem, result);
  status.show("comparing with the float64 reference ...");
  // Rows that no expert owns are zero in a result.
  outcome.report = verify::compare(call.problem, call.inputs, call.outputs, {.poison = std::uint8_t{0}});
  return outcome;
}

bool is_scale(const verify::Check& check) {
  return check.output == "sfd_row" || check.output == "sfd_col";
}

std::string percent(std::int64_t part, std::int64_t whole) {
  return number(whole ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0, 2) + " %";
}

void print_table(const Outcome& outcome, const Terminal& terminal) {
  const auto verdict = [](bool passed) { return passed ? "ok" : "FAIL"; };
  const auto colour = [](bool passed) { return passed ? Colour::green : Colour::red; };
  Table table({"output", "compared with", "elements", "relative error", "max error", "error / bound",
               "out of bound", "verdict"});
  for (const verify::Check& check : outcome.report.checks) {
    const bool scale = is_scale(check);
    table.add({check.output, "float64 reference", std::to_string(check.elements),
               scale ? percent(check.differing, check.elements) + " differ" : number(check.relative_error),
               scale ? number(check.max_error) + " steps" : number(check.max_error),
               scale ? "-" : number(check.max_ratio), std::to_string(check.out_of_bound + check.overwritten),
               verdict(check.passed())},
              {Colour::plain, Colour::plain, Colour::plain, Colour::plain, Colour::plain, Colour::plain,
               Colour::plain, colour(check.passed())});
  }
  for (const CaptureCheck& check : outcome.capture)
    table.add({check.output, "PyTorch " + check.expected, std::to_string(check.elements),
               number(check.relative_error), "-", number(check.relative_error / check.limit),
               check.passed() ? "0" : "1", verdict(check.passed())},
              {Colour::plain, Colour::plain, Colour::plain, Colour::plain, Colour::plain, Colour::plain,
               Colour::plain, colour(check.passed())});
  table.print(terminal, 2);
  for (const verify::Check& check : outcome.report.checks)
    if (!check.passed() && check.first)
      terminal.out << check.output << ": first at row " << check.first->row << ", column "
                   << check.first->column << ": got " << number(check.first->got, 9) << ", expected "
                   << number(check.first->expected, 9) << " within " << number(check.first->bound) << "\n";
    else if (!check.passed())
      terminal.out << check.output << ": " << check.overwritten
                   << " bytes changed in rows that no expert owns\n";
}

/// Fixed columns, so that the lines of several problems make one table.
std::string brief_line(const std::vector<std::string>& cells) {
  constexpr int widths[] = {-6, -11, -9, 11, 13, 15, 15, 13, -8};
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const bool left = widths[i] < 0;
    const auto width = static_cast<std::size_t>(left ? -widths[i] : widths[i]);
    const std::string pad(cells[i].size() < width ? width - cells[i].size() : 0, ' ');
    line += (i ? "  " : "") + (left ? cells[i] + pad : pad + cells[i]);
  }
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

std::string brief_header() {
  return brief_line({"op", "format", "act", "outputs", "error/bound", "D vs float64", "D vs PyTorch",
                     "(limit)", "verdict"});
}

std::string activation(const io::LoadedProblem& problem) {
  if (const auto* dglu = std::get_if<io::DgluArguments>(&problem.arguments))
    return name(dglu->options.act_func);
  return std::get<io::SreluArguments>(problem.arguments).options.tanh_clamp_scale ? "clamped" : "srelu";
}

std::string brief(const io::LoadedProblem& problem, const Outcome& outcome, const Terminal& terminal) {
  double worst = 0, d_error = 0;
  std::size_t good = 0;
  for (const verify::Check& check : outcome.report.checks) {
    if (!is_scale(check)) worst = std::max(worst, check.max_ratio);
    if (check.output == "d" || check.output == "d_row") d_error = check.relative_error;
    good += check.passed();
  }
  std::string against = "-", limit = "-";
  for (const CaptureCheck& check : outcome.capture)
    if (check.output == "d" || check.output == "d_row") {
      against = number(check.relative_error);
      limit = number(check.limit);
    }
  const bool passed = outcome.passed();
  return brief_line(
      {problem.op == Op::srelu ? "srelu" : "dglu", format_label(problem), activation(problem),
       std::to_string(good) + "/" + std::to_string(outcome.report.checks.size()) + " ok", number(worst),
       number(d_error), against, limit,
       coloured(terminal, passed ? Colour::green : Colour::red, passed ? "verified" : "FAILED")});
}

nlohmann::ordered_json to_json(const io::LoadedProblem& problem, const VerifyArguments& given,
                               const Runner& runner, const Outcome& outcome) {
  nlohmann::ordered_json out{{"problem", io::printable(given.problem, 4096)},
                             {"op", problem.op == Op::srelu ? "srelu" : "dglu"},
                             {"format", format_label(problem)},
                             {"activation", activation(problem)},
                             {"experts", problem.experts},
                             {"m", problem.m},
                             {"n", problem.n},
                             {"k", problem.k},
                             {"backend", runner.name},
                             {"seconds", outcome.seconds},
                             {"passed", outcome.passed()}};
  out["outputs"] = nlohmann::ordered_json::array();
  for (const verify::Check& check : outcome.report.checks)
    out["outputs"].push_back({{"output", check.output},
                              {"elements", check.elements},
                              {"relative_error", check.relative_error},
                              {"max_error", check.max_error},
                              {"max_error_over_bound", check.max_ratio},
                              {"differing_scale_codes", check.differing},
                              {"out_of_bound", check.out_of_bound},
                              {"overwritten_bytes", check.overwritten},
                              {"passed", check.passed()}});
  out["capture"] = nlohmann::ordered_json::array();
  for (const CaptureCheck& check : outcome.capture)
    out["capture"].push_back({{"output", check.output},
                              {"expected", check.expected},
                              {"elements", check.elements},
                              {"relative_error", check.relative_error},
                              {"limit", check.limit},
                              {"passed", check.passed()}});
  return out;
}

int verify_command(const VerifyArguments& given, const Terminal& terminal) {
  if (given.backend.is_reference() && given.result.empty())
    throw InvalidArgument(
        "verify --backend reference: the reference would be compared with itself; give --result, or another "
        "backend");
  if (given.backend.device && !given.result.empty())
    throw InvalidArgument("--device: not with --result, which runs nothing");
  io::LoadedProblem problem = io::load_problem(io::SafetensorsReader(given.problem));
  given.backend.apply(problem);
  const Problem checked = io::check_problem(problem);
  const Runner runner = given.result.empty() ? given.backend.runner(checked) : Runner{{}, "result file"};
  const bool to_stdout = given.json == "-";
  if (!given.json.empty() && !to_stdout)
    io::check_writable(given.json, {given.problem, given.result, given.expected});
  const Outcome outcome = check(problem, given, runner, terminal);

  const std::string json = given.json.empty() ? "" : to_json(problem, given, runner, outcome).dump(2) + "\n";
  if (to_stdout) {
    terminal.out << json;
  } else {
    if (!given.json.empty()) io::write_file(given.json, json);
    if (given.header) terminal.out << coloured(terminal, Colour::bold, brief_header()) << "\n";
    if (given.brief) {
      terminal.out << brief(problem, outcome, terminal) << "\n";
    } else {
      terminal.out << summary(problem) << ", " << runner.name << "\n";
      print_table(outcome, terminal);
    }
  }
  if (outcome.passed()) return success;
  terminal.err << "gemmule: verification failed: " << io::printable(given.problem) << "\n";
  return verification_failed;
}

}  // namespace

void add_verify(CLI::App& app, Action& action) {
  const auto given = std::make_shared<VerifyArguments>();
  CLI::App* command = app.add_subcommand(
      "verify", "Error of every output against the float64 reference; exit 1 when one is out of bound");
  command->add_option("problem", given->problem, "Problem file")->required();
  command->add_option("--result", given->result, "Verify this result file instead of running the problem");
  command->add_option("--expected", given->expected,
                      "Also compare with what this capture says PyTorch computed");
  command->add_option("--json", given->json,
                      "Write the comparison as JSON to this file, or to standard output for -");
  command->add_flag("--brief", given->brief, "One line");
  command->add_flag("--header", given->header, "The column titles of --brief first");
  given->backend.add_to(*command);
  command->callback([given, &action] {
    action = [given](const Terminal& terminal) { return verify_command(*given, terminal); };
  });
}

}  // namespace gemmule::cli
