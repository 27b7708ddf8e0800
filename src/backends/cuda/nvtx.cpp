// NVTX 3 has no library to link: a profiler names its own in NVTX_INJECTION64_PATH, and NVTX's headers load that and
// hand it tables of function pointers to fill in. This is the part of them that two functions need.
#include "backends/cuda/nvtx.hpp"

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace gemmule::cuda {
namespace {

using AnyFunction = void (*)();
using Push = int (*)(const char* name);
using Pop = int (*)();

constexpr std::size_t module_count = 7;  // none, core, cuda, opencl, cudart, core2, sync
/// Functions of each module, counting the unused number 0.
constexpr std::size_t module_sizes[module_count] = {0, 16, 9, 15, 7, 16, 7};
constexpr std::size_t largest_module = 16;
constexpr std::size_t core = 1, range_push_a = 9, range_pop = 11;

/// What the profiler fills in, and the pointers to it that it is given: entry 0 and the one past the end are null.
struct Tables {
  std::array<std::array<AnyFunction, largest_module>, module_count> functions{};
  std::array<std::array<AnyFunction*, largest_module + 1>, module_count> entries{};
};

Tables& tables() {
  static Tables t;
  return t;
}

int get_module_table(int module, AnyFunction*** table, unsigned* size) {
  if (module < 1 || module >= static_cast<int>(module_count)) return 0;
  const auto m = static_cast<std::size_t>(module);
  Tables& t = tables();
  for (std::size_t i = 1; i < module_sizes[m]; ++i) t.entries[m][i] = &t.functions[m][i];
  if (table) *table = t.entries[m].data();
  if (size) *size = static_cast<unsigned>(module_sizes[m]);
  return 1;
}

struct CallbackExport {
  std::size_t bytes = sizeof(CallbackExport);
  int (*module_table)(int, AnyFunction***, unsigned*) = get_module_table;
};
struct VersionExport {
  std::size_t bytes = sizeof(VersionExport);
  std::uint32_t version = 3;
  std::uint32_t reserved = 0;
  void (*set_injection_version)(std::uint32_t) = [](std::uint32_t) {};
};

const void* export_table(std::uint32_t id) {
  static const CallbackExport callbacks;
  static const VersionExport version;
  constexpr std::uint32_t callbacks_id = 1, version_id = 3;
  if (id == callbacks_id) return &callbacks;
  return id == version_id ? static_cast<const void*>(&version) : nullptr;
}

struct Profiler {
  Push push = nullptr;
  Pop pop = nullptr;
};

Profiler attach() {
  const char* path = std::getenv("NVTX_INJECTION64_PATH");
  if (!path || !*path) return {};
  void* library = dlopen(path, RTLD_LAZY);
  if (!library) return {};
  using Initialize = int (*)(const void* (*)(std::uint32_t));
  const auto initialize = reinterpret_cast<Initialize>(dlsym(library, "InitializeInjectionNvtx2"));
  if (!initialize || initialize(export_table) == 0) return {};
  const Profiler found{reinterpret_cast<Push>(tables().functions[core][range_push_a]),
                       reinterpret_cast<Pop>(tables().functions[core][range_pop])};
  return found.push && found.pop ? found : Profiler{};
}

const Profiler& profiler() {
  static const Profiler attached = attach();
  return attached;
}

}  // namespace

ProfilerRange::ProfilerRange(const char* name) {
  if (const Push push = profiler().push) push(name);
}

ProfilerRange::~ProfilerRange() {
  if (const Pop pop = profiler().pop) pop();
}

}  // namespace gemmule::cuda
