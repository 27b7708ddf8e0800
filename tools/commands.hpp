// The subcommands. Each adds itself to the command line and says what to run when it was chosen.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "cli.hpp"

namespace gemmule::cli {

/// Set by the chosen subcommand; returns the exit code.
using Action = std::function<int(const Terminal&)>;

void add_info(CLI::App& app, Action& action);
void add_make(CLI::App& app, Action& action);
void add_prepare(CLI::App& app, Action& action);
void add_run(CLI::App& app, Action& action);
void add_verify(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_precompile(CLI::App& app, Action& action);
void add_selfcheck(CLI::App& app, Action& action);

}  // namespace gemmule::cli
