#include "backends/cuda/device.hpp"

#include <mutex>
#include <utility>
#include <vector>

#include "backends/cuda/cuda.hpp"
#include "backends/cuda/driver.hpp"
#include "gemmule/error.hpp"

namespace gemmule::cuda {
namespace {

int attribute(const Driver& d, int which, DeviceHandle device) {
  int value = 0;
  check(d.cuDeviceGetAttribute(&value, which, device), "cuDeviceGetAttribute");
  return value;
}

std::vector<Gpu> enumerate(const Driver& d) {
  int count = 0;
  check(d.cuDeviceGetCount(&count), "cuDeviceGetCount");
  std::vector<Gpu> all;
  for (int index = 0; index < count; ++index) {
    Gpu g;
    g.index = index;
    check(d.cuDeviceGet(&g.handle, index), "cuDeviceGet");
    char text[256] = {};
    check(d.cuDeviceGetName(text, sizeof text - 1, g.handle), "cuDeviceGetName");
    g.name = text;
    g.capability_major = attribute(d, device_attribute_capability_major, g.handle);
    g.capability_minor = attribute(d, device_attribute_capability_minor, g.handle);
    g.limits.sm_count = attribute(d, device_attribute_sm_count, g.handle);
    g.limits.shared_bytes_per_block = attribute(d, device_attribute_shared_bytes_per_block_optin, g.handle);
    std::size_t bytes = 0;
    check(d.cuDeviceTotalMem(&bytes, g.handle), "cuDeviceTotalMem");
    g.memory_bytes = bytes;
    g.arch = arch_of(g.capability_major, g.capability_minor);
    all.push_back(std::move(g));
  }
  return all;
}

StreamHandle handle_of(Stream stream) {
  return static_cast<StreamHandle>(stream.handle);
}

DeviceAddress address_of(const void* pointer) {
  return reinterpret_cast<DeviceAddress>(pointer);
}

}  // namespace

std::optional<Arch> arch_of(int major, int minor) {
  if (major == 9 && minor == 0) return Arch::sm_90a;
  if (major != 10) return std::nullopt;
  if (minor == 0) return Arch::sm_100a;
  if (minor == 3) return Arch::sm_103a;
  return minor > 3 ? std::optional(Arch::sm_100f) : std::nullopt;
}

std::string Gpu::describe() const {
  return name + " (cuda:" + std::to_string(index) + ", compute capability " +
         std::to_string(capability_major) + "." + std::to_string(capability_minor) + ")";
}

const std::vector<Gpu>& gpus() {
  static const std::vector<Gpu> all = enumerate(driver());
  return all;
}

const Gpu& gpu(int index) {
  const std::vector<Gpu>& all = gpus();
  if (index < 0 || static_cast<std::size_t>(index) >= all.size())
    throw RuntimeFailure("cuda: there is no device cuda:" + std::to_string(index) + "; the driver has " +
                         std::to_string(all.size()) + (all.size() == 1 ? " device" : " devices"));
  return all[static_cast<std::size_t>(index)];
}

Arch required_arch(const Gpu& g) {
  if (!g.arch)
    throw RuntimeFailure("cuda: " + g.describe() + " is not supported: " + supported_capabilities +
                         " is needed");
  return *g.arch;
}

ContextHandle primary_context(int index) {
  static std::mutex mutex;
  static auto& contexts = *new std::vector<ContextHandle>(gpus().size());  // outlives every static object
  const Gpu& g = gpu(index);
  const std::lock_guard lock(mutex);
  ContextHandle& context = contexts[static_cast<std::size_t>(index)];
  if (!context) check(driver().cuDevicePrimaryCtxRetain(&context, g.handle), "cuDevicePrimaryCtxRetain");
  return context;
}

ContextScope::ContextScope(ContextHandle context) {
  const Driver& d = driver();
  ContextHandle current = nullptr;
  check(d.cuCtxGetCurrent(&current), "cuCtxGetCurrent");
  if (current == context) return;
  check(d.cuCtxPushCurrent(context), "cuCtxPushCurrent");
  pushed_ = true;
}

ContextScope::~ContextScope() {
  ContextHandle popped;
  if (pushed_) driver().cuCtxPopCurrent(&popped);
}

RelaxedCapture::RelaxedCapture() : mode_(capture_mode_relaxed) {
  check(driver().cuThreadExchangeStreamCaptureMode(&mode_), "cuThreadExchangeStreamCaptureMode");
}

RelaxedCapture::~RelaxedCapture() {
  driver().cuThreadExchangeStreamCaptureMode(&mode_);
}

DeviceMemory::DeviceMemory(int device_index, std::size_t bytes) : device_index_(device_index), bytes_(bytes) {
  if (bytes == 0) return;
  const ContextScope scope(primary_context(device_index));
  check(driver().cuMemAlloc(&address_, bytes), "cuMemAlloc",
        std::to_string(bytes) + " bytes on cuda:" + std::to_string(device_index));
}

DeviceMemory::~DeviceMemory() {
  if (!address_) return;
  try {
    const ContextScope scope(primary_context(device_index_));
    driver().cuMemFree(address_);
  } catch (const Error&) {
    // The device is lost; so is the memory.
  }
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : device_index_(other.device_index_),
      bytes_(std::exchange(other.bytes_, 0)),
      address_(std::exchange(other.address_, 0)) {}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(device_index_, other.device_index_);
  std::swap(bytes_, other.bytes_);
  std::swap(address_, other.address_);
  return *this;
}

namespace {

void check_range(std::size_t offset, std::size_t bytes, std::size_t size) {
  if (offset > size || bytes > size - offset)
    throw InvalidArgument("device memory: bytes " + std::to_string(offset) + " to " +
                          std::to_string(offset + bytes) + " of a block of " + std::to_string(size));
}

}  // namespace

void DeviceMemory::upload(const void* host, std::size_t bytes, std::size_t offset) {
  check_range(offset, bytes, bytes_);
  if (bytes == 0) return;
  const ContextScope scope(primary_context(device_index_));
  check(driver().cuMemcpyHtoD(address_ + offset, host, bytes), "cuMemcpyHtoD");
}

void DeviceMemory::download(void* host, std::size_t bytes, std::size_t offset) const {
  check_range(offset, bytes, bytes_);
  if (bytes == 0) return;
  const ContextScope scope(primary_context(device_index_));
  check(driver().cuMemcpyDtoH(host, address_ + offset, bytes), "cuMemcpyDtoH");
}

void DeviceMemory::fill(std::uint8_t byte) {
  if (bytes_ == 0) return;
  const ContextScope scope(primary_context(device_index_));
  check(driver().cuMemsetD8Async(address_, byte, bytes_, nullptr), "cuMemsetD8Async");
  check(driver().cuStreamSynchronize(nullptr), "cuStreamSynchronize");
}

void* DeviceAllocator::allocate(std::size_t bytes, Device device, Stream stream) {
  if (bytes == 0) return nullptr;
  if (device.type != DeviceType::cuda)
    throw InvalidArgument("device memory asked for on " + gemmule::name(device));
  const ContextScope scope(primary_context(device.index));
  DeviceAddress address = 0;
  check(driver().cuMemAllocAsync(&address, bytes, handle_of(stream)), "cuMemAllocAsync",
        std::to_string(bytes) + " bytes on " + gemmule::name(device));
  return reinterpret_cast<void*>(address);
}

void DeviceAllocator::deallocate(void* data, std::size_t, Device device, Stream stream) noexcept {
  if (!data) return;
  try {
    const ContextScope scope(primary_context(device.index));
    driver().cuMemFreeAsync(address_of(data), handle_of(stream));
  } catch (const Error&) {
    // The device is lost; so is the memory.
  }
}

OwnStream::OwnStream(int device_index) : context_(primary_context(device_index)) {
  const ContextScope scope(context_);
  constexpr unsigned non_blocking = 1;
  check(driver().cuStreamCreate(&stream_, non_blocking), "cuStreamCreate");
}

OwnStream::~OwnStream() {
  driver().cuStreamDestroy(stream_);
}

void OwnStream::synchronize() const {
  const ContextScope scope(context_);
  check(driver().cuStreamSynchronize(stream_), "cuStreamSynchronize");
}

float OwnStream::time(const std::function<void()>& enqueue) const {
  const Driver& d = driver();
  const ContextScope scope(context_);
  struct Event {
    explicit Event(const Driver& drv) : driver(drv) {
      check(driver.cuEventCreate(&handle, 0), "cuEventCreate");
    }
    ~Event() { driver.cuEventDestroy(handle); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    const Driver& driver;
    EventHandle handle = nullptr;
  } begin(d), end(d);
  check(d.cuEventRecord(begin.handle, stream_), "cuEventRecord");
  enqueue();
  check(d.cuEventRecord(end.handle, stream_), "cuEventRecord");
  check(d.cuEventSynchronize(end.handle), "cuEventSynchronize");
  float milliseconds = 0;
  check(d.cuEventElapsedTime(&milliseconds, begin.handle, end.handle), "cuEventElapsedTime");
  return milliseconds;
}

void synchronize(int device_index) {
  const ContextScope scope(primary_context(device_index));
  check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
}

}  // namespace gemmule::cuda
