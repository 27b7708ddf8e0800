// gemmule precompile: fills the kernel cache without a GPU.
#include <memory>

#include "commands.hpp"
#include "gemmule/error.hpp"

namespace gemmule::cli {

void add_precompile(CLI::App& app, Action& action) {
  struct Arguments {
    std::string arch;
    std::vector<std::string> ops;
  };
  const auto given = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("precompile", "Fill the kernel cache without a GPU");
  command->add_option("--arch", given->arch, "GPU architecture")
      ->required()
      ->check(CLI::IsMember({"sm_90a", "sm_100a", "sm_103a"}));
  command->add_option("--ops", given->ops, "Operators, default all")
      ->delimiter(',')
      ->check(CLI::IsMember({"srelu", "dglu"}));
  command->callback([given, &action] {  // the options write into *given
    action = [](const Terminal&) -> int {
      throw RuntimeFailure("precompile: the CUDA backend is not available in this build");
    };
  });
}

}  // namespace gemmule::cli
