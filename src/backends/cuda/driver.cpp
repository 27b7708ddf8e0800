#include "backends/cuda/driver.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <type_traits>

#include "gemmule/error.hpp"

namespace gemmule::cuda {
namespace {

/// Resolves every member; returns the name of the first symbol the library lacks. The current ABI of a function may
/// carry a version suffix.
std::string resolve(void* library, Driver& d) {
  std::string missing;
  const auto get = [&](auto& member, const char* symbol) {
    member = reinterpret_cast<std::remove_reference_t<decltype(member)>>(dlsym(library, symbol));
    if (!member && missing.empty()) missing = symbol;
  };
  get(d.cuInit, "cuInit");
  get(d.cuDriverGetVersion, "cuDriverGetVersion");
  get(d.cuGetErrorName, "cuGetErrorName");
  get(d.cuGetErrorString, "cuGetErrorString");
  get(d.cuDeviceGetCount, "cuDeviceGetCount");
  get(d.cuDeviceGet, "cuDeviceGet");
  get(d.cuDeviceGetName, "cuDeviceGetName");
  get(d.cuDeviceGetAttribute, "cuDeviceGetAttribute");
  get(d.cuDeviceTotalMem, "cuDeviceTotalMem_v2");
  get(d.cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  get(d.cuCtxGetCurrent, "cuCtxGetCurrent");
  get(d.cuCtxPushCurrent, "cuCtxPushCurrent_v2");
  get(d.cuCtxPopCurrent, "cuCtxPopCurrent_v2");
  get(d.cuCtxSynchronize, "cuCtxSynchronize");
  get(d.cuModuleLoadData, "cuModuleLoadData");
  get(d.cuModuleGetFunction, "cuModuleGetFunction");
  get(d.cuFuncSetAttribute, "cuFuncSetAttribute");
  get(d.cuOccupancyMaxActiveBlocksPerMultiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  get(d.cuOccupancyMaxActiveClusters, "cuOccupancyMaxActiveClusters");
  get(d.cuLaunchKernelEx, "cuLaunchKernelEx");
  get(d.cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled");
  get(d.cuMemAlloc, "cuMemAlloc_v2");
  get(d.cuMemFree, "cuMemFree_v2");
  get(d.cuMemAllocAsync, "cuMemAllocAsync");
  get(d.cuMemFreeAsync, "cuMemFreeAsync");
  get(d.cuMemcpyHtoD, "cuMemcpyHtoD_v2");
  get(d.cuMemcpyDtoH, "cuMemcpyDtoH_v2");
  get(d.cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2");
  get(d.cuMemsetD8Async, "cuMemsetD8Async");
  get(d.cuMemsetD32Async, "cuMemsetD32Async");
  get(d.cuStreamCreate, "cuStreamCreate");
  get(d.cuStreamDestroy, "cuStreamDestroy_v2");
  get(d.cuStreamSynchronize, "cuStreamSynchronize");
  get(d.cuStreamIsCapturing, "cuStreamIsCapturing");
  get(d.cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode");
  get(d.cuEventCreate, "cuEventCreate");
  get(d.cuEventDestroy, "cuEventDestroy_v2");
  get(d.cuEventRecord, "cuEventRecord");
  get(d.cuEventSynchronize, "cuEventSynchronize");
  get(d.cuEventElapsedTime, "cuEventElapsedTime");
  return missing;
}

std::string path_of(const void* symbol) {
  Dl_info info{};
  return dladdr(symbol, &info) && info.dli_fname ? info.dli_fname : "unknown path";
}

std::string error_text(const Driver& d, Result result) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (d.cuGetErrorName(result, &name) != result_success || !name) name = "unknown error";
  if (d.cuGetErrorString(result, &text) != result_success || !text) text = "no description";
  return std::string(name) + " (" + std::to_string(result) + ", " + text + ")";
}

}  // namespace

std::string load_driver(const char* library_name, Driver& d) {
  void* library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = dlerror();
    const char* path = std::getenv("LD_LIBRARY_PATH");
    return std::string("no CUDA driver: ") + library_name + " was looked for in LD_LIBRARY_PATH (" +
           (path && *path ? path : "empty") +
           ") and the system's library directories: " + (reason ? reason : "not found");
  }
  if (const std::string symbol = resolve(library, d); !symbol.empty())
    return "the CUDA driver is too old: " + std::string(library_name) + " has no " + symbol +
           "; CUDA 12.0 or later is needed";
  const std::string path = path_of(reinterpret_cast<const void*>(d.cuInit));
  const Result result = d.cuInit(0);
  if (result == result_no_device)
    return "the CUDA driver (" + path + ") finds no device: cuInit: " + error_text(d, result);
  if (result != result_success)
    return "the CUDA driver (" + path + ") does not start: cuInit: " + error_text(d, result);
  return {};
}

const Driver* find_driver(std::string* why) {
  static std::mutex mutex;
  static Driver table{};
  static bool ready = false;
  const std::lock_guard lock(mutex);
  if (ready) return &table;
  const std::string reason = load_driver("libcuda.so.1", table);
  ready = reason.empty();
  if (why) *why = reason;
  return ready ? &table : nullptr;
}

const Driver& driver() {
  static const Driver& loaded = []() -> const Driver& {
    std::string why;
    const Driver* found = find_driver(&why);
    if (!found) throw RuntimeFailure("cuda: " + why);
    return *found;
  }();
  return loaded;
}

int driver_version() noexcept {
  const Driver* d = find_driver();
  int version = 0;
  return d && d->cuDriverGetVersion(&version) == result_success ? version : 0;
}

std::string describe_driver() {
  std::string why;
  const Driver* d = find_driver(&why);
  if (!d) return why;
  const int version = driver_version();
  return "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10) + " driver, " +
         path_of(reinterpret_cast<const void*>(d->cuInit));
}

void check(Result result, const char* call, const std::string& context) {
  if (result == result_success) return;
  const Driver* d = find_driver();
  throw RuntimeFailure(std::string("cuda: ") + call +
                       " failed: " + (d ? error_text(*d, result) : "error " + std::to_string(result)) +
                       (context.empty() ? "" : ": " + context));
}

}  // namespace gemmule::cuda
