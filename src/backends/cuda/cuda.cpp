#include "backends/cuda/cuda.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "backends/cuda/driver.hpp"
#include "backends/cuda/module.hpp"
#include "backends/cuda/nvrtc.hpp"
#include "backends/cuda/nvtx.hpp"
#include "gemmule/error.hpp"

namespace gemmule::cuda {

class Plan {
 public:
  Problem problem;
  const Kernel* kernel = nullptr;
  const Gpu* gpu = nullptr;
  ContextHandle context = nullptr;
  std::shared_ptr<const Module> module;
};

namespace {

const Kernel& required_kernel(const Problem& problem, Arch arch) {
  std::string reason;
  const Kernel* kernel = find_kernel(problem, arch, &reason);
  if (!kernel) throw Unsupported("cuda: no kernel takes this problem: " + reason);
  return *kernel;
}

void check_workspace(const Plan& plan, std::int64_t m, const void* workspace, std::size_t bytes) {
  const std::size_t needed = workspace_size(plan, m);
  if (bytes < needed)
    throw InvalidArgument("workspace has " + std::to_string(bytes) + " bytes, must have " +
                          std::to_string(needed));
  if (needed != 0 && (!workspace || reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0))
    throw InvalidArgument("workspace is at " + std::to_string(reinterpret_cast<std::uintptr_t>(workspace)) +
                          ", must be a multiple of 256 and not null");
}

/// One specialization into the disk cache; true if it was there.
bool precompile_one(const Specialization& specialization, Arch arch, const DiskCache& cache) {
  const DiskCache::Entry entry = get_cubin(specialization, arch, cache, true);
  if (!entry.store_error.empty()) throw RuntimeFailure("kernel cache: " + entry.store_error);
  return entry.from_disk;
}

}  // namespace

std::shared_ptr<const Plan> compile(const Problem& problem, int device_index) {
  auto plan = std::make_shared<Plan>();
  plan->problem = problem;
  plan->gpu = &gpu(device_index);
  const Arch arch = required_arch(*plan->gpu);
  plan->kernel = &required_kernel(problem, arch);
  plan->context = primary_context(device_index);
  plan->module = get_module(plan->kernel->specialize(problem, arch), *plan->gpu);
  return plan;
}

std::size_t workspace_size(const Plan& plan, std::int64_t m) {
  return m == 0 ? 0 : plan.kernel->workspace_size(plan.problem, plan.gpu->limits, m);
}

void execute(const Plan& plan, const Operands& operands, void* workspace, std::size_t workspace_bytes,
             Stream stream) {
  check_workspace(plan, operands.m, workspace, workspace_bytes);
  if (operands.m == 0) return;  // no row, nothing to accumulate
  const ProfilerRange range(plan.kernel->name);
  const ContextScope scope(plan.context);
  const auto handle = static_cast<StreamHandle>(stream.handle);
  plan.kernel->launch({plan.problem, operands, plan.gpu->limits, plan.module->functions,
                       static_cast<std::byte*>(workspace), handle});
}

void check_available(const Problem& problem, int device_index) {
  required_kernel(problem, required_arch(gpu(device_index)));
}

std::string refusal(const Problem& problem, int device_index) {
  try {
    check_available(problem, device_index);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

void fill(int device_index, void* destination, std::uint32_t word, std::size_t words, Stream stream) {
  if (words == 0) return;
  const ContextScope scope(primary_context(device_index));
  check(driver().cuMemsetD32Async(reinterpret_cast<DeviceAddress>(destination), word, words,
                                  static_cast<StreamHandle>(stream.handle)),
        "cuMemsetD32Async");
}

bool checks_requested() noexcept {
  static const bool requested = [] {
    const char* value = std::getenv("GEMMULE_CHECK");
    return value && *value && std::string(value) != "0";
  }();
  return requested;
}

bool read_values(int device_index, const void* device, void* host, std::size_t bytes, Stream stream) {
  const Driver& d = driver();
  const ContextScope scope(primary_context(device_index));
  const auto handle = static_cast<StreamHandle>(stream.handle);
  int status = capture_status_none;
  check(d.cuStreamIsCapturing(handle, &status), "cuStreamIsCapturing");
  if (status != capture_status_none) {
    static std::atomic_flag said;
    if (!said.test_and_set())
      std::fprintf(stderr,
                   "gemmule: GEMMULE_CHECK cannot read device memory while the stream is being captured\n");
    return false;
  }
  check(d.cuMemcpyDtoHAsync(host, reinterpret_cast<DeviceAddress>(device), bytes, handle),
        "cuMemcpyDtoHAsync");
  check(d.cuStreamSynchronize(handle), "cuStreamSynchronize");
  return true;
}

void precompile(Arch arch, const std::vector<Op>& ops,
                const std::function<void(const PrecompileStep&)>& report) {
  std::vector<std::pair<const Kernel*, Specialization>> work;
  std::set<std::string> seen;
  for (const Kernel* kernel : kernels()) {
    if (!kernel->runs_on(arch)) continue;
    for (const Problem& problem : kernel->common_problems()) {
      if (std::find(ops.begin(), ops.end(), problem.op) == ops.end()) continue;
      Specialization specialization = kernel->specialize(problem, arch);
      if (seen.insert(specialization.source).second) work.emplace_back(kernel, std::move(specialization));
    }
  }
  if (work.empty())
    throw Unsupported(std::string("cuda: there is no kernel for ") + name(arch) + " and these operators");
  nvrtc();
  const DiskCache cache = DiskCache::from_environment();
  std::mutex mutex;  // of what follows
  std::size_t next = 0, done = 0;
  std::exception_ptr failure;
  const auto worker = [&] {
    std::unique_lock lock(mutex);
    while (next < work.size() && !failure) {
      const auto& [kernel, specialization] = work[next++];
      PrecompileStep step{kernel->name, 0, work.size()};
      lock.unlock();
      const auto begin = std::chrono::steady_clock::now();
      std::exception_ptr own_failure;
      try {
        step.was_cached = precompile_one(specialization, arch, cache);
      } catch (...) {
        own_failure = std::current_exception();
      }
      step.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      lock.lock();
      if (own_failure) {
        failure = own_failure;
      } else {
        step.done = ++done;
        if (report) report(step);
      }
    }
  };
  std::vector<std::jthread> threads;
  const std::size_t count =
      std::min<std::size_t>(work.size(), std::max(1u, std::thread::hardware_concurrency()));
  for (std::size_t i = 0; i < count; ++i) threads.emplace_back(worker);
  threads.clear();  // joins
  if (failure) std::rethrow_exception(failure);
}

void precompile(Arch arch, const Problem& problem) {
  nvrtc();
  precompile_one(required_kernel(problem, arch).specialize(problem, arch), arch,
                 DiskCache::from_environment());
}

Report report() {
  Report result{describe_driver(), describe_nvrtc(), DiskCache::from_environment().describe(), {}};
  if (!find_driver()) return result;
  try {
    for (const Gpu& g : gpus()) {
      DeviceReport& device = result.devices.emplace_back();
      device.index = g.index;
      device.name = g.name;
      device.capability_major = g.capability_major;
      device.capability_minor = g.capability_minor;
      device.sm_count = g.limits.sm_count;
      device.memory_bytes = g.memory_bytes;
      device.supported = g.arch.has_value();
      for (const Kernel* kernel : kernels())
        if (g.arch && kernel->runs_on(*g.arch))
          device.kernels.push_back(std::string(kernel->name) + ": " + kernel->description);
    }
  } catch (const Error& error) {
    result.driver += std::string("; ") + error.what();
  }
  return result;
}

}  // namespace gemmule::cuda
