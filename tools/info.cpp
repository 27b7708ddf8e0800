// gemmule info: what this build can do on this machine.
#include <ostream>

#include "backends/cpu/cpu.hpp"
#include "backends/cuda/cuda.hpp"
#include "commands.hpp"
#include "gemmule/gemmule.hpp"
#include "models.hpp"
#include "problem_builder.hpp"
#include "text.hpp"

namespace gemmule::cli {
namespace {

/// {"cuda", "cuda:0 NVIDIA H200, 9.0, 132 multiprocessors, 140 GiB", what runs there}.
std::vector<std::string> row(const cuda::DeviceReport& device) {
  const std::string name = "cuda:" + std::to_string(device.index) + " " + device.name + ", " +
                           std::to_string(device.capability_major) + "." +
                           std::to_string(device.capability_minor) + ", " + std::to_string(device.sm_count) +
                           " multiprocessors, " + std::to_string(device.memory_bytes >> 30) + " GiB";
  std::string supports;
  for (const std::string& kernel : device.kernels) supports += (supports.empty() ? "" : "; ") + kernel;
  if (!device.supported)
    supports = std::string("nothing: ") + cuda::supported_capabilities + " is needed";
  else if (supports.empty())
    supports = "nothing: no kernel for this device";
  return {"cuda", name, supports};
}

int info(const Terminal& terminal) {
  terminal.out << "gemmule " << version() << "\n\n";
  Table backends({"backend", "device", "supports"});
  backends.add({"cpu", std::string(cpu::target()) + ", " + std::to_string(num_threads()) + " threads",
                "srelu and dglu, every format, dense and discrete weights"});
  backends.add({"reference", "float64 loops", "the same; the truth that verify compares with"});
  const cuda::Report cuda = cuda::report();
  for (const cuda::DeviceReport& device : cuda.devices) backends.add(row(device));
  if (cuda.devices.empty()) backends.add({"cuda", "-", "no device"});
  backends.print(terminal, 3);
  terminal.out << "\nCUDA       driver: " << cuda.driver << "\n           compiler: " << cuda.compiler
               << "\n           kernel cache: " << cuda.cache << "\n";
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
