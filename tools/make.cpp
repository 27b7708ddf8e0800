// gemmule make: a problem with random data and realistic routing.
#include <algorithm>
#include <memory>
#include <optional>
#include <ostream>

#include "commands.hpp"
#include "gemmule/error.hpp"
#include "io/atomic_file.hpp"
#include "io/options.hpp"
#include "models.hpp"
#include "problem_builder.hpp"
#include "text.hpp"
#include "values.hpp"

namespace gemmule::cli {
namespace {

struct MakeArguments {
  std::string op, model, format, rows, output;
  int experts = 0;
  std::int64_t n = 0, k = 0;
  std::optional<std::int64_t> tokens;
  std::uint64_t seed = 0;
  bool exact = false;
  std::vector<std::string> options;
};

/// "R,R,..."; CLI11 would let a list swallow the option=value arguments that follow it.
std::vector<std::int64_t> parse_rows(const std::string& text) {
  std::vector<std::int64_t> rows;
  for (std::size_t start = 0; !text.empty() && start <= text.size();) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    const int count = io::parse_int("--rows", text.substr(start, comma - start));
    if (count < 0) throw InvalidArgument("--rows " + io::printable(text) + ": expected counts of at least 0");
    rows.push_back(count);
    start = comma + 1;
  }
  return rows;
}

ProblemSpec make_spec(const MakeArguments& given) {
  ProblemSpec spec;
  spec.op = given.op == "srelu" ? Op::srelu : Op::dglu;
  spec.format = given.format;
  spec.options = parse_option_texts(given.options);
  spec.comment = std::string(given.exact ? "exact" : "random") + " data, seed " + std::to_string(given.seed);
  spec.rows = parse_rows(given.rows);
  int experts = given.experts;
  spec.n = given.n;
  spec.k = given.k;
  if (!given.model.empty()) {
    const Model& model = model_from_name(given.model);
    if (!experts) experts = spec.rows.empty() ? model.experts : static_cast<int>(spec.rows.size());
    if (!spec.n) spec.n = model.n;
    if (!spec.k) spec.k = model.k;
    spec.comment += std::string(", ") + model.name;
  }
  if (!experts) experts = static_cast<int>(spec.rows.size());
  if (!experts || !spec.n || !spec.k)
    throw InvalidArgument("make needs --model, or --experts (or --rows), --n and --k");
  if (experts < 1 || experts > 1024)
    throw InvalidArgument("--experts " + std::to_string(experts) + ": expected 1 to 1024");
  if (spec.rows.empty())
    spec.rows = route(given.seed, experts, given.tokens.value_or(256 * std::int64_t{experts}));
  if (static_cast<int>(spec.rows.size()) != experts)
    throw InvalidArgument("--rows has " + std::to_string(spec.rows.size()) +
                          " counts, expected one for each of the " + std::to_string(experts) + " experts");
  return spec;
}

int make(const MakeArguments& given, const Terminal& terminal) {
  const ProblemSpec spec = make_spec(given);
  io::check_writable(given.output);
  const auto values =
      given.exact ? exact_values(given.seed, spec) : random_values(given.seed, spec.op, spec.n, spec.k);
  io::LoadedProblem problem = build_problem(spec, *values);
  write_problem(given.output, problem);
  terminal.out << "wrote " << given.output << ": " << summary(problem) << ", rows " << joined(spec.rows)
               << "\n";
  return success;
}

}  // namespace

void add_make(CLI::App& app, Action& action) {
  const auto given = std::make_shared<MakeArguments>();
  CLI::App* make_command =
      app.add_subcommand("make", "Make a problem with random data and realistic routing");
  std::string names;
  for (const Model& model : models()) names += (names.empty() ? "" : ", ") + std::string(model.name);
  make_command->add_option("--op", given->op, "Operator")
      ->required()
      ->check(CLI::IsMember({"srelu", "dglu"}));
  make_command->add_option("--model", given->model, "MoE layer of a public model: " + names);
  make_command->add_option("--experts", given->experts, "Number of experts")
      ->transform(decimal)
      ->check(CLI::Range(1, 1024));
  make_command
      ->add_option("--n", given->n, "Columns of an expert's output (srelu) or of each half of it (dglu)")
      ->transform(decimal);
  make_command->add_option("--k", given->k, "Reduction length")->transform(decimal);
  CLI::Option* rows = make_command->add_option(
      "--rows", given->rows, "Tokens of each expert, R,R,... (default: drawn, skewed, some empty)");
  make_command
      ->add_option("--tokens", given->tokens,
                   "Tokens to route when --rows is not given (default 256 per expert)")
      ->excludes(rows)
      ->transform(decimal)
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30));
  make_command->add_option("--format", given->format, "Number format of A and B")
      ->required()
      ->check(CLI::IsMember({"bf16", "mxfp8", "mxfp8_e5m2", "mxfp4", "nvfp4"}));
  make_command->add_option("--seed", given->seed, "Seed of all random data (default 0)")->transform(decimal);
  make_command->add_flag(
      "--exact", given->exact,
      "Small integers and powers of two, whose results do not depend on the order of sums");
  make_command
      ->add_option("-o,--output", given->output,
                   "Problem file to write; a regular file is replaced as a whole")
      ->required();
  make_command->add_option("options", given->options, "option=value ...");
  make_command->footer(option_help());
  make_command->callback(
      [given, &action] { action = [given](const Terminal& terminal) { return make(*given, terminal); }; });
}

}  // namespace gemmule::cli
