#include "backends/cuda/module.hpp"

#include <cstdio>
#include <future>
#include <map>
#include <mutex>
#include <utility>

#include "backends/cuda/compile.hpp"
#include "backends/cuda/compiler_stamp.hpp"
#include "backends/cuda/driver.hpp"
#include "backends/cuda/nvrtc.hpp"
#include "gemmule/error.hpp"

namespace gemmule::cuda {
namespace {

/// How many CTAs of the function the device holds at once, a multiple of the cluster size.
int resident_ctas(const Driver& d, FunctionHandle handle, const EntryPoint& entry,
                  const DeviceLimits& limits) {
  if (entry.cluster == 1) {
    int blocks = 0;
    check(d.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, handle, static_cast<int>(entry.threads),
                                                        entry.shared_bytes),
          "cuOccupancyMaxActiveBlocksPerMultiprocessor", entry.name);
    return blocks * limits.sm_count;
  }
  LaunchAttribute cluster{};
  cluster.id = launch_attribute_cluster_dimension;
  cluster.value.cluster = {entry.cluster, 1, 1};
  LaunchConfig config{};
  config.grid_x = entry.cluster;
  config.grid_y = config.grid_z = 1;
  config.block_x = entry.threads;
  config.block_y = config.block_z = 1;
  config.shared_bytes = entry.shared_bytes;
  config.attributes = &cluster;
  config.attribute_count = 1;
  int clusters = 0;
  check(d.cuOccupancyMaxActiveClusters(&clusters, handle, &config), "cuOccupancyMaxActiveClusters",
        entry.name);
  return clusters * static_cast<int>(entry.cluster);
}

Function load_function(const Driver& d, ModuleHandle module, const EntryPoint& entry, const Gpu& gpu) {
  Function function;
  function.entry = entry;
  check(d.cuModuleGetFunction(&function.handle, module, entry.name.c_str()), "cuModuleGetFunction",
        entry.name);
  if (entry.shared_bytes > 0)
    check(d.cuFuncSetAttribute(function.handle, function_attribute_max_dynamic_shared_bytes,
                               static_cast<int>(entry.shared_bytes)),
          "cuFuncSetAttribute",
          entry.name + ": " + std::to_string(entry.shared_bytes) +
              " bytes of shared memory; the device has " + std::to_string(gpu.limits.shared_bytes_per_block) +
              " per CTA");
  constexpr unsigned largest_portable_cluster = 8;
  if (entry.cluster > largest_portable_cluster)
    check(d.cuFuncSetAttribute(function.handle, function_attribute_non_portable_cluster, 1),
          "cuFuncSetAttribute", entry.name);
  function.resident_ctas = resident_ctas(d, function.handle, entry, gpu.limits);
  if (function.resident_ctas < 1)
    throw RuntimeFailure("cuda: " + entry.name + " does not fit " + gpu.describe());
  return function;
}

std::shared_ptr<const Module> load(const std::string& cubin, const Specialization& specialization,
                                   const Gpu& gpu) {
  const Driver& d = driver();
  const ContextScope scope(primary_context(gpu.index));
  const RelaxedCapture relaxed;
  ModuleHandle handle = nullptr;
  if (const Result result = d.cuModuleLoadData(&handle, cubin.data()); result != result_success)
    check(result, "cuModuleLoadData",
          "code for " + gpu.describe() + "; " + describe_driver() + "; " + describe_nvrtc());
  auto module = std::make_shared<Module>();
  for (const EntryPoint& entry : specialization.entries)
    module->functions.push_back(load_function(d, handle, entry, gpu));
  return module;
}

std::string compile_cubin(const Specialization& specialization, Arch arch, bool strict) {
  Compiled compiled = compile_source(specialization.source, arch);
  if (const std::string fault = resource_fault(compiled, specialization.tolerated_spill_bytes);
      !fault.empty()) {
    const std::string text =
        std::string("cuda: NVRTC ") + nvrtc().version() + " for " + name(arch) + ": " + fault;
    if (strict) throw RuntimeFailure(text);
    std::fprintf(stderr, "gemmule: %s; results are right, speed is not\n", text.c_str());
  }
  return std::move(compiled.cubin);
}

}  // namespace

DiskCache::Entry get_cubin(const Specialization& specialization, Arch arch, const DiskCache& cache,
                           bool strict) {
  const auto key = [](const std::string& version) { return "nvrtc" + version; };
  const std::string text = identity(specialization.source, arch);
  DiskCache::Entry entry;
  const std::string stamped = stamped_compiler_version(cache.directory());
  if (!stamped.empty() && cache.load(text, key(stamped), entry.cubin)) {
    entry.from_disk = true;
    return entry;
  }
  const Nvrtc* compiler = find_nvrtc();
  entry = cache.get(text, compiler ? key(compiler->version()) : "",
                    [&] { return compile_cubin(specialization, arch, strict); });
  if (compiler && compiler->version() != stamped) stamp_compiler(cache.directory(), *compiler);
  return entry;
}

std::shared_ptr<const Module> get_module(const Specialization& specialization, const Gpu& gpu) {
  using Future = std::shared_future<std::shared_ptr<const Module>>;
  using Key = std::pair<int, std::string>;
  static std::mutex mutex;
  static std::map<Key, Future>& modules = *new std::map<Key, Future>;  // outlives every static object

  const Arch arch = required_arch(gpu);
  const Key key{gpu.index, specialization.source};
  std::promise<std::shared_ptr<const Module>> promise;
  Future future;
  {
    const std::lock_guard lock(mutex);
    if (const auto found = modules.find(key); found != modules.end())
      future = found->second;
    else
      modules.emplace(key, promise.get_future().share());
  }
  if (future.valid()) return future.get();
  try {
    auto module = load(get_cubin(specialization, arch, DiskCache::from_environment(), false).cubin,
                       specialization, gpu);
    promise.set_value(module);
    return module;
  } catch (...) {
    {
      const std::lock_guard lock(mutex);
      modules.erase(key);  // the next one tries again
    }
    promise.set_exception(std::current_exception());
    throw;
  }
}

}  // namespace gemmule::cuda
