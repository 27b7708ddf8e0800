// gemmule info: what this build can do on this machine.
#include <ostream>

#include "backends/cpu/cpu.hpp"
#include "commands.hpp"
#include "gemmule/gemmule.hpp"
#include "models.hpp"
#include "problem_builder.hpp"
#include "text.hpp"

namespace gemmule::cli {
namespace {

int info(const Terminal& terminal) {
  terminal.out << "gemmule " << version() << "\n\n";
  Table backends({"backend", "device", "supports"});
  backends.add({"cpu", std::string(cpu::target()) + ", " + std::to_string(num_threads()) + " threads",
                "srelu and dglu, every format, dense and discrete weights"});
  backends.add({"reference", "float64 loops", "the same; the truth that verify compares with"});
  backends.add({"cuda", "-", "not available in this build"});
  backends.print(terminal, 3);
  terminal.out << "\noperators  srelu: mxfp8 mxfp8_e5m2 mxfp4 nvfp4\n"
                  "           dglu:  bf16 (dswiglu, dgeglu), mxfp8 mxfp8_e5m2 mxfp4 nvfp4 (dswiglu, dgeglu, "
                  "dsituglu)\n\n";
  Table shapes({"model", "experts", "N", "K"});
  for (const Model& model : models())
    shapes.add({model.name, std::to_string(model.experts), std::to_string(model.n), std::to_string(model.k)});
  shapes.print(terminal);
  return success;
}

}  // namespace

void add_info(CLI::App& app, Action& action) {
  app.add_subcommand("info", "Backends, devices, and what each supports")->callback([&action] {
    action = info;
  });
}

}  // namespace gemmule::cli
