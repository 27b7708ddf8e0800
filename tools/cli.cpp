#include "cli.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <new>

#include "commands.hpp"
#include "gemmule/gemmule.hpp"
#include "io/host_tensor.hpp"

namespace gemmule::cli {
namespace {

constexpr std::size_t message_limit = 2000;

int fail(const Terminal& terminal, int code, const std::string& message) {
  terminal.err << "gemmule: " << io::printable(message, message_limit) << "\n";
  return code;
}

/// CLI11 would only say that a subcommand is missing.
void check_subcommand(const CLI::App& app, const std::string& name) {
  if (name.starts_with("-")) {
    if (app.get_option_no_throw(name)) return;
    throw InvalidArgument("unknown option " + io::quote(name) + ", expected a subcommand (gemmule --help)");
  }
  std::string names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == name) return;
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  throw InvalidArgument("unknown subcommand " + io::quote(name) + ", expected one of " + names);
}

int dispatch(const std::vector<std::string>& arguments, const Terminal& terminal) {
  CLI::App app("Fused grouped GEMMs for Mixture-of-Experts training", "gemmule");
  Action action;
  app.require_subcommand(1);
  app.set_version_flag("--version", version());
  app.footer(
      "Exit codes: 0 success, 1 verification failed, 2 bad arguments, or a file (or standard output) that "
      "cannot "
      "be read or written, 3 device trouble or out of memory.");
  add_info(app, action);
  add_make(app, action);
  add_prepare(app, action);
  add_run(app, action);
  add_verify(app, action);
  add_bench(app, action);
  add_precompile(app, action);
  add_selfcheck(app, action);
  if (!arguments.empty()) check_subcommand(app, arguments[0]);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // CLI11 takes them last first
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) {
      const bool in_subcommand = !arguments.empty() && !arguments[0].starts_with("-");
      return fail(terminal, bad_input,
                  std::string(error.what()) + " (gemmule " + (in_subcommand ? arguments[0] + " " : "") +
                      "--help shows the usage)");
    }
    app.exit(error, terminal.out, terminal.err);  // --help or --version
    return success;
  }
  return action(terminal);
}

/// Colour and progress only where a person watches, and never with NO_COLOR.
bool shows_colour(int descriptor) {
  const char* no_colour = std::getenv("NO_COLOR");
  const char* kind = std::getenv("TERM");
  return ::isatty(descriptor) && !(no_colour && *no_colour) && !(kind && std::string(kind) == "dumb");
}

}  // namespace

int run(const std::vector<std::string>& arguments, const Terminal& terminal) {
  try {
    const int code = dispatch(arguments, terminal);
    terminal.out.flush();
    if (!terminal.out) return fail(terminal, bad_input, "standard output cannot be written");
    return code;
  } catch (const RuntimeFailure& error) {
    return fail(terminal, device_trouble, error.what());
  } catch (const Error& error) {
    return fail(terminal, bad_input, error.what());
  } catch (const std::bad_alloc&) {
    return fail(terminal, device_trouble, "out of memory");
  } catch (const std::exception& error) {
    return fail(terminal, device_trouble, error.what());
  }
}

int main(int argc, char** argv) {
  std::signal(SIGXFSZ,
              SIG_IGN);  // a file above the size limit is then an error of write(), which is reported
  return run({argv + 1, argv + std::max(argc, 1)},
             {std::cout, std::cerr, shows_colour(STDOUT_FILENO), ::isatty(STDERR_FILENO) != 0});
}

}  // namespace gemmule::cli
