// gemmule prepare: a captured batch becomes a problem.
#include <memory>
#include <ostream>

#include "capture.hpp"
#include "commands.hpp"
#include "io/atomic_file.hpp"
#include "text.hpp"

namespace gemmule::cli {
namespace {

struct PrepareArguments {
  std::string capture, format, output;
  std::vector<std::string> options;
};

int prepare(const PrepareArguments& given, const Terminal& terminal) {
  const OptionTexts chosen = parse_option_texts(given.options);
  const Capture capture(given.capture);
  io::check_writable(given.output, {given.capture});
  ProblemSpec spec;
  spec.op = capture.op();
  spec.format = given.format;
  spec.n = capture.n();
  spec.k = capture.k();
  spec.rows = capture.rows();
  spec.options = capture.options();
  for (const auto& [key, value] : chosen) spec.options[key] = value;
  spec.comment = "captured batch, activation " + capture.activation();
  io::LoadedProblem problem = build_problem(spec, capture);
  write_problem(given.output, problem);
  terminal.out << "wrote " << given.output << ": " << summary(problem) << ", rows " << joined(spec.rows)
               << " padded to " << problem.m << "\n";
  return success;
}

}  // namespace

void add_prepare(CLI::App& app, Action& action) {
  const auto given = std::make_shared<PrepareArguments>();
  CLI::App* command =
      app.add_subcommand("prepare", "Turn a captured batch into a problem: pad, quantize, interleave");
  command->add_option("capture", given->capture, "Capture file (examples/data has some)")->required();
  command->add_option("--format", given->format, "Number format of A and B")
      ->required()
      ->check(CLI::IsMember({"bf16", "mxfp8", "mxfp8_e5m2", "mxfp4", "nvfp4"}));
  command->add_option("-o,--output", given->output, "Problem file to write")->required();
  command->add_option("options", given->options, "option=value ...");
  command->footer(option_help());
  command->callback(
      [given, &action] { action = [given](const Terminal& terminal) { return prepare(*given, terminal); }; });
}

}  // namespace gemmule::cli
