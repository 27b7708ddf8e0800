#include "io/place.hpp"

#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "backends/cuda/device.hpp"
#include "gemmule/error.hpp"

namespace gemmule::io {
namespace {

/// Blocks of memory by address; one-call forms may allocate from any thread.
template <class Block>
class Blocks {
 public:
  void* keep(Block block) {
    void* data = block.data();
    const std::lock_guard lock(mutex_);
    if (data) blocks_.insert_or_assign(data, std::move(block));
    return data;
  }
  Block remove(void* data, Block otherwise) {
    const std::lock_guard lock(mutex_);
    auto node = blocks_.extract(data);
    return node ? std::move(node.mapped()) : std::move(otherwise);
  }

 private:
  std::mutex mutex_;
  std::map<void*, Block> blocks_;
};

class HostPlace final : public Place {
 public:
  void* allocate(std::size_t bytes, Device, Stream) override { return blocks_.keep(AlignedBytes(bytes)); }
  void deallocate(void* data, std::size_t, Device, Stream) noexcept override { blocks_.remove(data, {}); }

  Tensor bring(const Tensor& host) override { return host; }
  Tensor bring_copy(const Tensor& host) override {
    Tensor copy = host;
    if (!host) return copy;
    copy.data = allocate(host.bytes(), {}, {});
    if (copy.data) std::memcpy(copy.data, host.data, host.bytes());
    return copy;
  }
  Tensor bring_pointers(const Tensor& host_pointers, const HostTensor&) override { return host_pointers; }
  AlignedBytes take(const Tensor& output) override { return blocks_.remove(output.data, {}); }

 private:
  Blocks<AlignedBytes> blocks_;
};

class DevicePlace final : public Place {
 public:
  explicit DevicePlace(int device_index) : device_{DeviceType::cuda, cuda::gpu(device_index).index} {}

  void* allocate(std::size_t bytes, Device, Stream) override {
    cuda::DeviceMemory memory(device_.index, bytes);
    memory.fill(0);
    return blocks_.keep(std::move(memory));
  }
  void deallocate(void* data, std::size_t, Device, Stream) noexcept override {
    blocks_.remove(data, nothing());
  }

  Tensor bring(const Tensor& host) override {
    return host ? moved(host, cuda::DeviceMemory(device_.index, host.data, extent_bytes(host))) : host;
  }
  Tensor bring_copy(const Tensor& host) override { return bring(host); }
  Tensor bring_pointers(const Tensor& host_pointers, const HostTensor& whole) override {
    if (!host_pointers) return host_pointers;
    const auto* from = static_cast<const std::int64_t*>(host_pointers.data);
    cuda::DeviceMemory copy(device_.index, whole.bytes.data(), whole.bytes.size());
    const auto base = reinterpret_cast<std::int64_t>(whole.bytes.data());
    const auto there = reinterpret_cast<std::int64_t>(blocks_.keep(std::move(copy)));
    std::vector<std::int64_t> to(static_cast<std::size_t>(host_pointers.numel()));
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[i] - base + there;
    return moved(host_pointers,
                 cuda::DeviceMemory(device_.index, to.data(), to.size() * sizeof(std::int64_t)));
  }
  AlignedBytes take(const Tensor& output) override {
    cuda::synchronize(device_.index);
    const cuda::DeviceMemory memory = blocks_.remove(output.data, nothing());
    AlignedBytes bytes(memory.bytes());
    memory.download(bytes.data(), bytes.size());
    return bytes;
  }

 private:
  cuda::DeviceMemory nothing() const { return cuda::DeviceMemory(device_.index, 0); }

  /// Every byte between the first and the last element: strides may order the extents in any way.
  static std::size_t extent_bytes(const Tensor& t) {
    std::int64_t last = 0;
    for (int i = 0; i < t.rank; ++i) {
      if (t.shape[i] == 0) return 0;
      last += (t.shape[i] - 1) * t.strides[i];
    }
    return static_cast<std::size_t>(last + 1) * size_of(t.dtype);
  }

  Tensor moved(Tensor tensor, cuda::DeviceMemory memory) {
    tensor.data = blocks_.keep(std::move(memory));
    tensor.device = device_;
    return tensor;
  }

  Device device_;
  Blocks<cuda::DeviceMemory> blocks_;
};

}  // namespace

std::unique_ptr<Place> host_place() {
  return std::make_unique<HostPlace>();
}

std::unique_ptr<Place> device_place(int device_index) {
  return std::make_unique<DevicePlace>(device_index);
}

}  // namespace gemmule::io
