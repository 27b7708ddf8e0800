// gemmule precompile: fills the kernel cache without a GPU.
#include <algorithm>
#include <memory>
#include <ostream>

#include "backends/cuda/cuda.hpp"
#include "commands.hpp"
#include "text.hpp"

namespace gemmule::cli {
namespace {

int precompile(const std::string& arch, const std::vector<std::string>& names, const Terminal& terminal) {
  std::vector<Op> ops;
  const auto wanted = [&](const char* name) {
    return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
  };
  if (wanted("srelu")) ops.push_back(Op::srelu);
  if (wanted("dglu")) ops.push_back(Op::dglu);
  cuda::precompile(cuda::arch_from_name(arch), ops, [&](const cuda::PrecompileStep& step) {
    terminal.out << step.done << "/" << step.total << " " << step.kernel << " "
                 << (step.was_cached ? "was there" : number(step.seconds) + " s") << std::endl;
  });
  return success;
}

}  // namespace

void add_precompile(CLI::App& app, Action& action) {
  struct Arguments {
    std::string arch;
    std::vector<std::string> ops;
  };
  const auto given = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("precompile", "Fill the kernel cache without a GPU");
  command->add_option("--arch", given->arch, "GPU architecture")
      ->required()
      ->check(CLI::IsMember({"sm_90a", "sm_100a", "sm_103a", "sm_100f"}));
  command->add_option("--ops", given->ops, "Operators, default all")
      ->delimiter(',')
      ->check(CLI::IsMember({"srelu", "dglu"}));
  command->callback([given, &action] {
    action = [given](const Terminal& terminal) { return precompile(given->arch, given->ops, terminal); };
  });
}

}  // namespace gemmule::cli
