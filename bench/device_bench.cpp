// The cuda backend beside cuBLAS.
#include <algorithm>
#include <cmath>
#include <memory>

#include "backends/cuda/cuda.hpp"
#include "backends/cuda/device.hpp"
#include "bench.hpp"
#include "cublas.hpp"
#include "gemmule/error.hpp"
#include "synthetic.hpp"

namespace gemmule::bench {
namespace {

/// Device memory. What is generated on the host is repeated to fill large blocks.
class DeviceOperands : public Memory {
 public:
  explicit DeviceOperands(int device_index) : device_(device_index) {}

  void* allocate(std::int64_t bytes) override {
    blocks_.emplace_back(device_, static_cast<std::size_t>(bytes));
    blocks_.back().fill(0);
    return blocks_.back().data();
  }
  void fill(void* to, std::int64_t bytes, const Generate& generate) override {
    if (bytes == 0) return;
    // Odd multiples of 32 bytes, so that neighbouring rows do not hold the same values.
    constexpr std::int64_t period = 32 * 1'000'003;
    const auto filled = std::min(bytes, period);
    std::vector<std::uint8_t> host(static_cast<std::size_t>(filled));
    generate(host.data(), filled);
    cuda::DeviceMemory& block = *std::find_if(blocks_.begin(), blocks_.end(),
                                              [&](const cuda::DeviceMemory& b) { return b.data() == to; });
    for (std::int64_t at = 0; at < bytes; at += period)
      block.upload(host.data(), static_cast<std::size_t>(std::min(period, bytes - at)),
                   static_cast<std::size_t>(at));
  }

 private:
  int device_;
  std::vector<cuda::DeviceMemory> blocks_;
};

/// A contender: what it enqueues, how often per timing, and its times.
struct Contender {
  std::function<void()> enqueue;
  int calls = 1;
  std::vector<double> seconds{};

  void time(const cuda::OwnStream& stream) {
    const float milliseconds = stream.time([&] {
      for (int i = 0; i < calls; ++i) enqueue();
    });
    seconds.push_back(static_cast<double>(milliseconds) * 1e-3 / calls);
  }
  /// Two calls to warm up; then as many at a time as take about ten milliseconds.
  void prepare(const cuda::OwnStream& stream) {
    enqueue();
    time(stream);
    calls = static_cast<int>(std::clamp(std::ceil(10e-3 / seconds.back()), 1.0, 200.0));
    seconds.clear();
  }
  Timing summary() {
    std::sort(seconds.begin(), seconds.end());
    return {seconds.front(), seconds[seconds.size() / 2]};
  }
};

}  // namespace

std::string device_limit_description(int device_index) {
  const cuda::OwnStream stream(device_index);
  return Cublas(device_index, stream.stream()).description();
}

Result run_case_on_device(const Case& which, const Options& options, int device_index) {
  const Problem& p = which.problem;
  if (which.rows.size() != static_cast<std::size_t>(p.experts))
    throw InvalidArgument("rows: " + std::to_string(which.rows.size()) +
                          " entries, expected one per expert (" + std::to_string(p.experts) + ")");
  const auto plan = cuda::compile(p, device_index);
  DeviceOperands memory(device_index);
  const Synthetic data(p, which.rows, options.seed, memory);
  const Operands& o = data.operands();
  const std::size_t workspace_bytes = cuda::workspace_size(*plan, o.m);
  void* workspace = memory.allocate(static_cast<std::int64_t>(workspace_bytes));
  const cuda::OwnStream stream(device_index);
  std::vector<Contender> contenders{
      {.enqueue = [&] { cuda::execute(*plan, o, workspace, workspace_bytes, stream.stream()); }}};

  std::unique_ptr<Cublas> cublas;
  GroupedProduct product;
  if (options.baseline) cublas = std::make_unique<Cublas>(device_index, stream.stream());
  if (cublas && cublas->available()) {
    const auto bf16 = [&](std::int64_t values) {
      return static_cast<std::byte*>(memory.allocate(values * 2));
    };
    product = {which.rows, p.n, p.k, bf16(o.m * p.k), bf16(p.experts * p.n * p.k), bf16(o.m * p.n)};
    fill_random(memory, DType::bfloat16, const_cast<std::byte*>(product.a), o.m * p.k, options.seed + 1);
    fill_random(memory, DType::bfloat16, const_cast<std::byte*>(product.b), p.experts * p.n * p.k,
                options.seed + 2);
    contenders.push_back({.enqueue = [&] { cublas->multiply_each(product); }});
    if (cublas->has_grouped()) {
      const std::vector<const void*> addresses = Cublas::device_pointers(product);
      const std::size_t bytes = addresses.size() * sizeof(void*);
      void* pointers = memory.allocate(static_cast<std::int64_t>(bytes));
      memory.fill(pointers, static_cast<std::int64_t>(bytes), [&](void* host, std::int64_t size) {
        std::copy_n(addresses.data(), static_cast<std::size_t>(size) / sizeof(void*),
                    static_cast<const void**>(host));
      });
      contenders.push_back({.enqueue = [&, pointers] { cublas->multiply_grouped(product, pointers); }});
    }
  }

  for (Contender& contender : contenders) contender.prepare(stream);
  for (int round = 0; round < options.repeats; ++round) {
    for (Contender& contender : contenders) contender.time(stream);
    if (options.progress) options.progress(round + 1, options.repeats);
  }

  Result result;
  result.label = which.label;
  result.target = cuda::gpu(device_index).name;
  result.flops = 2.0 * static_cast<double>(o.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  result.bytes = data.bytes();
  result.ours = contenders[0].summary();
  for (std::size_t i = 1; i < contenders.size(); ++i) {
    const Timing timing = contenders[i].summary();
    if (!result.products.measured() || timing.median < result.products.median) result.products = timing;
  }
  return result;
}

}  // namespace gemmule::bench
