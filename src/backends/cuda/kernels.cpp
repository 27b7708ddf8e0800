#include <algorithm>

#include "backends/cuda/driver.hpp"
#include "backends/cuda/kernel.hpp"
#include "gemmule/error.hpp"

namespace gemmule::cuda {
namespace {

constexpr Arch all_archs[] = {Arch::sm_90a, Arch::sm_100a, Arch::sm_103a, Arch::sm_100f};

}  // namespace

// Every kernel's host file defines one of these; list it here and below.
extern const Kernel sm90_bf16_dglu;
extern const Kernel sm90_scaled_dglu;
extern const Kernel sm90_scaled_srelu;
extern const Kernel sm100_bf16_dglu;
extern const Kernel sm100_scaled_dglu;
extern const Kernel sm100_scaled_srelu;

std::span<const Kernel* const> kernels() {
  static const std::vector<const Kernel*> all = {
      &sm90_bf16_dglu,  &sm90_scaled_dglu,  &sm90_scaled_srelu,
      &sm100_bf16_dglu, &sm100_scaled_dglu, &sm100_scaled_srelu,
  };
  return all;
}

const char* name(Arch arch) noexcept {
  switch (arch) {
    case Arch::sm_90a:
      return "sm_90a";
    case Arch::sm_100a:
      return "sm_100a";
    case Arch::sm_103a:
      return "sm_103a";
    case Arch::sm_100f:
      return "sm_100f";
  }
  return "";
}

Arch arch_from_name(const std::string& text) {
  for (const Arch arch : all_archs)
    if (text == name(arch)) return arch;
  throw InvalidArgument("arch '" + text + "', expected sm_90a, sm_100a, sm_103a or sm_100f");
}

const Kernel* find_kernel(const Problem& problem, Arch arch, std::string* reason) {
  std::string reasons;
  for (const Kernel* kernel : kernels()) {
    if (!kernel->runs_on(arch)) continue;
    const std::string refusal = kernel->refuse(problem);
    if (refusal.empty()) return kernel;
    reasons += std::string(reasons.empty() ? "" : "; ") + kernel->name + ": " + refusal;
  }
  if (reason) *reason = reasons.empty() ? std::string("there is no kernel for ") + name(arch) : reasons;
  return nullptr;
}

unsigned Launch::persistent_ctas(std::size_t entry, std::int64_t work_ctas) const {
  const Function& function = functions[entry];
  const std::int64_t cluster = function.entry.cluster;
  std::int64_t ctas = function.resident_ctas;
  if (problem.sm_limit > 0) ctas = std::min<std::int64_t>(ctas, problem.sm_limit);
  ctas = std::min(ctas, (work_ctas + cluster - 1) / cluster * cluster);
  return static_cast<unsigned>(std::max(cluster, ctas / cluster * cluster));
}

void Launch::run(std::size_t entry, unsigned grid_ctas, const void* params, bool overlap) const {
  const Function& function = functions[entry];
  LaunchAttribute attributes[2] = {};
  LaunchConfig config{};
  config.grid_x = grid_ctas;
  config.grid_y = config.grid_z = 1;
  config.block_x = function.entry.threads;
  config.block_y = config.block_z = 1;
  config.shared_bytes = function.entry.shared_bytes;
  config.stream = stream;
  config.attributes = attributes;
  if (function.entry.cluster > 1) {
    LaunchAttribute& attribute = attributes[config.attribute_count++];
    attribute.id = launch_attribute_cluster_dimension;
    attribute.value.cluster = {function.entry.cluster, 1, 1};
  }
  if (overlap) {
    LaunchAttribute& attribute = attributes[config.attribute_count++];
    attribute.id = launch_attribute_programmatic_stream_serialization;
    attribute.value.programmatic_stream_serialization = 1;
  }
  void* arguments[] = {const_cast<void*>(params)};
  const Result result = driver().cuLaunchKernelEx(&config, function.handle, arguments, nullptr);
  if (result != result_success)
    check(result, "cuLaunchKernelEx",
          function.entry.name + ", " + std::to_string(grid_ctas) + " CTAs of " +
              std::to_string(function.entry.threads) + " threads, clusters of " +
              std::to_string(function.entry.cluster) + ", " + std::to_string(function.entry.shared_bytes) +
              " bytes of shared memory");
}

void Launch::fill(void* destination, std::uint32_t word, std::size_t count) const {
  if (count != 0)
    check(driver().cuMemsetD32Async(reinterpret_cast<DeviceAddress>(destination), word, count, stream),
          "cuMemsetD32Async");
}

}  // namespace gemmule::cuda
