// Devices, their primary contexts, and memory on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backends/cuda/kernel.hpp"
#include "gemmule/tensor.hpp"

namespace gemmule::cuda {

/// None on a device we do not run on. 10.1 was the name of 11.0 before CUDA 13; its family, unlike later 10.x, is not that of
/// 10.0.
std::optional<Arch> arch_of(int major, int minor);

struct Gpu {
  int index = 0;
  DeviceHandle handle = 0;
  std::string name;
  int capability_major = 0, capability_minor = 0;
  std::uint64_t memory_bytes = 0;
  DeviceLimits limits;
  std::optional<Arch> arch;  ///< what we compile for

  /// "NVIDIA H200 (cuda:0, compute capability 9.0)"
  std::string describe() const;
};

/// Every device of the driver. Throws RuntimeFailure without a driver.
const std::vector<Gpu>& gpus();
/// Throws RuntimeFailure when there is no driver or no such device.
const Gpu& gpu(int index);
/// Throws RuntimeFailure naming the device unless we run on it.
Arch required_arch(const Gpu& gpu);

/// The device's primary context (the one that the CUDA runtime, PyTorch and JAX use), retained until the process ends.
ContextHandle primary_context(int index);

/// Makes a context current for a scope; the caller's is current again afterwards.
class ContextScope {
 public:
  explicit ContextScope(ContextHandle context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  bool pushed_ = false;
};

/// Lets this thread do what a stream capture elsewhere in the process would forbid (load code, allocate), for a scope.
class RelaxedCapture {
 public:
  RelaxedCapture();
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  int mode_;
};

/// A block of memory on a device, freed with the object. The copies block.
class DeviceMemory {
 public:
  DeviceMemory(int device_index, std::size_t bytes);
  DeviceMemory(int device_index, const void* host, std::size_t bytes) : DeviceMemory(device_index, bytes) {
    upload(host, bytes);
  }
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;

  void* data() const noexcept { return reinterpret_cast<void*>(address_); }  ///< null when bytes() is 0
  std::size_t bytes() const noexcept { return bytes_; }
  void upload(const void* host, std::size_t bytes, std::size_t offset = 0);
  void download(void* host, std::size_t bytes, std::size_t offset = 0) const;
  /// Fills all of it with one byte.
  void fill(std::uint8_t byte);

 private:
  int device_index_;
  std::size_t bytes_;
  DeviceAddress address_ = 0;
};

/// Memory for the one-call forms, allocated and freed in stream order.
class DeviceAllocator : public Allocator {
 public:
  void* allocate(std::size_t bytes, Device device, Stream stream) override;
  void deallocate(void* data, std::size_t bytes, Device device, Stream stream) noexcept override;
};

/// A stream of its own on one device, and the time work takes on it.
class OwnStream {
 public:
  explicit OwnStream(int device_index);
  ~OwnStream();
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  Stream stream() const noexcept { return Stream{stream_}; }
  void synchronize() const;
  /// Milliseconds the device spends on what `enqueue` enqueues on this stream; blocks.
  float time(const std::function<void()>& enqueue) const;

 private:
  ContextHandle context_;
  StreamHandle stream_ = nullptr;
};

/// Blocks until everything on the device has finished; throws RuntimeFailure with what went wrong there.
void synchronize(int device_index);

}  // namespace gemmule::cuda
