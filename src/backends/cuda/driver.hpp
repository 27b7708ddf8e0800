// The CUDA driver, loaded when first needed.
#pragma once

#include <string>

#include "backends/cuda/abi.hpp"

namespace gemmule::cuda {

/// Entry points of libcuda; each member has the name of the function it is (the _v2 suffix left out).
struct Driver {
  Result (*cuInit)(unsigned flags);
  Result (*cuDriverGetVersion)(int* version);
  Result (*cuGetErrorName)(Result error, const char** name);
  Result (*cuGetErrorString)(Result error, const char** text);
  Result (*cuDeviceGetCount)(int* count);
  Result (*cuDeviceGet)(DeviceHandle* device, int ordinal);
  Result (*cuDeviceGetName)(char* name, int length, DeviceHandle device);
  Result (*cuDeviceGetAttribute)(int* value, int attribute, DeviceHandle device);
  Result (*cuDeviceTotalMem)(std::size_t* bytes, DeviceHandle device);
  Result (*cuDevicePrimaryCtxRetain)(ContextHandle* context, DeviceHandle device);
  Result (*cuCtxGetCurrent)(ContextHandle* context);
  Result (*cuCtxPushCurrent)(ContextHandle context);
  Result (*cuCtxPopCurrent)(ContextHandle* context);
  Result (*cuCtxSynchronize)();
  Result (*cuModuleLoadData)(ModuleHandle* module, const void* image);
  Result (*cuModuleGetFunction)(FunctionHandle* function, ModuleHandle module, const char* name);
  Result (*cuFuncSetAttribute)(FunctionHandle function, int attribute, int value);
  Result (*cuOccupancyMaxActiveBlocksPerMultiprocessor)(int* blocks, FunctionHandle function, int threads,
                                                        std::size_t shared_bytes);
  Result (*cuOccupancyMaxActiveClusters)(int* clusters, FunctionHandle function, const LaunchConfig* config);
  Result (*cuLaunchKernelEx)(const LaunchConfig* config, FunctionHandle function, void** params,
                             void** extra);
  Result (*cuTensorMapEncodeTiled)(EncodedTensorMap* map, int element, unsigned rank, void* base,
                                   const std::uint64_t* extent, const std::uint64_t* stride,
                                   const unsigned* box, const unsigned* element_stride, int interleave,
                                   int swizzle, int promotion, int fill);
  Result (*cuMemAlloc)(DeviceAddress* address, std::size_t bytes);
  Result (*cuMemFree)(DeviceAddress address);
  Result (*cuMemAllocAsync)(DeviceAddress* address, std::size_t bytes, StreamHandle stream);
  Result (*cuMemFreeAsync)(DeviceAddress address, StreamHandle stream);
  Result (*cuMemcpyHtoD)(DeviceAddress to, const void* from, std::size_t bytes);
  Result (*cuMemcpyDtoH)(void* to, DeviceAddress from, std::size_t bytes);
  Result (*cuMemcpyDtoHAsync)(void* to, DeviceAddress from, std::size_t bytes, StreamHandle stream);
  Result (*cuMemsetD8Async)(DeviceAddress to, unsigned char value, std::size_t count, StreamHandle stream);
  Result (*cuMemsetD32Async)(DeviceAddress to, unsigned value, std::size_t count, StreamHandle stream);
  Result (*cuStreamCreate)(StreamHandle* stream, unsigned flags);
  Result (*cuStreamDestroy)(StreamHandle stream);
  Result (*cuStreamSynchronize)(StreamHandle stream);
  Result (*cuStreamIsCapturing)(StreamHandle stream, int* status);
  Result (*cuThreadExchangeStreamCaptureMode)(int* mode);
  Result (*cuEventCreate)(EventHandle* event, unsigned flags);
  Result (*cuEventDestroy)(EventHandle event);
  Result (*cuEventRecord)(EventHandle event, StreamHandle stream);
  Result (*cuEventSynchronize)(EventHandle event);
  Result (*cuEventElapsedTime)(float* milliseconds, EventHandle begin, EventHandle end);
};

/// The driver, initialised. Throws RuntimeFailure that says which part is missing and where it was looked for; a later
/// call tries again.
const Driver& driver();

/// The driver, or null with the reason in `why`. Throws nothing.
const Driver* find_driver(std::string* why = nullptr);

/// "CUDA 13.0 driver, <path of libcuda>", or why there is none.
std::string describe_driver();

/// Fills the table from one library and initialises the driver; returns why that fails, empty on success.
std::string load_driver(const char* library_name, Driver& d);

/// Version of CUDA that the driver supports, 1000 * major + 10 * minor; 0 without a driver.
int driver_version() noexcept;

/// Throws RuntimeFailure "<call> failed: <error name> (<text>)<context>" unless `result` is success.
void check(Result result, const char* call, const std::string& context = {});

}  // namespace gemmule::cuda
