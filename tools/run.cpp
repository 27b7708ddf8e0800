// gemmule run: a problem file in, a result file out.
#include <chrono>
#include <memory>
#include <ostream>

#include "backend_option.hpp"
#include "commands.hpp"
#include "io/atomic_file.hpp"
#include "text.hpp"

namespace gemmule::cli {
namespace {

struct RunArguments {
  std::string problem, output;
  BackendChoice backend;
};

int run_command(const RunArguments& given, const Terminal& terminal) {
  io::LoadedProblem problem = io::load_problem(io::SafetensorsReader(given.problem));
  given.backend.apply(problem);
  const Runner runner = given.backend.runner(io::check_problem(problem));
  io::check_writable(given.output, {given.problem});
  const auto start = std::chrono::steady_clock::now();
  const io::TensorMap result = io::run_problem(problem, runner.cuda_device);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  io::write_safetensors(given.output, problem.metadata, result);

  std::string names;
  for (const auto& [name, tensor] : result) names += " " + name;
  terminal.out << "wrote " << given.output << ":" << names << "\n"
               << summary(problem) << " on " << runner.name << ": " << number(seconds.count() * 1e3)
               << " ms for the whole call\n";
  return success;
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  const auto given = std::make_shared<RunArguments>();
  CLI::App* command = app.add_subcommand("run", "Run a problem and write its outputs");
  command->add_option("problem", given->problem, "Problem file")->required();
  given->backend.add_to(*command);
  command
      ->add_option("-o,--output", given->output,
                   "Result file to write; a regular file is replaced as a whole")
      ->required();
  command->callback([given, &action] {
    action = [given](const Terminal& terminal) { return run_command(*given, terminal); };
  });
}

}  // namespace gemmule::cli
