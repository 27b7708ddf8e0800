// What needs a GPU: contexts, memory, loading and launching, capture, the encoder of tensor maps.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "backends/cuda/cuda.hpp"
#include "backends/cuda/device.hpp"
#include "backends/cuda/driver.hpp"
#include "backends/cuda/module.hpp"
#include "gemmule/error.hpp"

namespace gemmule::cuda {
namespace {

struct AddParams {
  std::uint32_t* out;
  std::uint32_t count, value;
};

Specialization add_kernel() {
  return {R"(
struct AddParams { unsigned* out; unsigned count, value; };
extern "C" __global__ void __launch_bounds__(128, 1) add(const __grid_constant__ AddParams params) {
  extern __shared__ unsigned scratch[];
  scratch[threadIdx.x] = params.value;
  __syncthreads();
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < params.count; i += gridDim.x * blockDim.x)
    params.out[i] += scratch[threadIdx.x];
})",
          {{"add", 128, 64 * 1024, 2}}};
}

class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!find_driver(&why)) GTEST_SKIP() << "NOT TESTED, no GPU: " << why;
    if (!gpu(0).arch) GTEST_SKIP() << "NOT TESTED, unsupported GPU: " << gpu(0).describe();
  }

  static std::vector<std::uint32_t> read(const DeviceMemory& memory) {
    std::vector<std::uint32_t> words(memory.bytes() / 4);
    memory.download(words.data(), memory.bytes());
    return words;
  }
  static ContextHandle current() {
    ContextHandle context = nullptr;
    check(driver().cuCtxGetCurrent(&context), "cuCtxGetCurrent");
    return context;
  }
  /// Adds `value` to every word on the given stream.
  static void add(const Module& module, const Gpu& g, DeviceMemory& memory, std::uint32_t value,
                  Stream stream) {
    const Problem problem;
    const Operands operands;
    const ContextScope scope(primary_context(g.index));
    const Launch launch{problem,          operands, g.limits,
                        module.functions, nullptr,  static_cast<StreamHandle>(stream.handle)};
    const AddParams params{static_cast<std::uint32_t*>(memory.data()),
                           static_cast<std::uint32_t>(memory.bytes() / 4), value};
    launch.run(0, launch.persistent_ctas(0, 1000000), &params);
  }
};

TEST_F(DeviceTest, MemoryMovesAndTheContextIsLeftAsFound) {
  const ContextHandle before = current();
  for (int index = 0; index < static_cast<int>(gpus().size()); ++index) {
    std::vector<std::uint32_t> words(1000);
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::uint32_t>(i * 2654435761u);
    DeviceMemory memory(index, words.data(), words.size() * 4);
    EXPECT_EQ(read(memory), words);
    fill(index, memory.data(), 0xff800000u, 500, {});
    synchronize(index);
    const auto filled = read(memory);
    EXPECT_EQ(filled[499], 0xff800000u);
    EXPECT_EQ(filled[500], words[500]);
    EXPECT_EQ(current(), before);
    DeviceMemory moved = std::move(memory);
    EXPECT_EQ(read(moved), filled);
  }
  EXPECT_THROW(gpu(static_cast<int>(gpus().size())), RuntimeFailure);
  EXPECT_THROW(DeviceMemory(0, std::size_t{1} << 50), RuntimeFailure);
  EXPECT_EQ(current(), before);
}

TEST_F(DeviceTest, AllocatorServesBothKindsOfStream) {
  DeviceAllocator allocator;
  const OwnStream own(0);
  for (const Stream stream : {Stream{}, own.stream()}) {
    void* memory = allocator.allocate(1 << 20, {DeviceType::cuda, 0}, stream);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 256, 0u);
    fill(0, memory, 7, 1 << 18, stream);
    allocator.deallocate(memory, 1 << 20, {DeviceType::cuda, 0}, stream);
  }
  own.synchronize();
  EXPECT_THROW(allocator.allocate(1, {DeviceType::cpu, 0}, {}), InvalidArgument);
}

TEST_F(DeviceTest, KernelsAreCompiledLoadedAndLaunchedOnEveryDevice) {
  for (int index = 0; index < static_cast<int>(gpus().size()); ++index) {
    const Gpu g = gpu(index);
    const ContextHandle before = current();
    const auto module = get_module(add_kernel(), g);
    EXPECT_EQ(get_module(add_kernel(), g), module) << "the memory cache";
    EXPECT_GT(module->functions[0].resident_ctas, 0);
    EXPECT_EQ(module->functions[0].resident_ctas % 2, 0);
    DeviceMemory memory(index, 4 * 100000);
    memory.fill(0);
    const OwnStream own(index);
    add(*module, g, memory, 3, own.stream());
    add(*module, g, memory, 4, own.stream());
    own.synchronize();
    EXPECT_EQ(read(memory), std::vector<std::uint32_t>(100000, 7));
    EXPECT_EQ(current(), before);
  }
}

TEST_F(DeviceTest, ThreadsShareOneModule) {
  const Gpu g = gpu(0);
  std::vector<std::shared_ptr<const Module>> modules(8);
  std::vector<std::thread> threads;
  for (auto& slot : modules) threads.emplace_back([&] { slot = get_module(add_kernel(), g); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& module : modules) EXPECT_EQ(module, modules[0]);
}

TEST_F(DeviceTest, SmLimitCapsThePersistentGrid) {
  const Gpu g = gpu(0);
  const auto module = get_module(add_kernel(), g);
  Problem problem;
  const Operands operands;
  const Launch launch{problem, operands, g.limits, module->functions};
  EXPECT_EQ(launch.persistent_ctas(0, 1), 2u);
  EXPECT_EQ(launch.persistent_ctas(0, 5), 6u);
  problem.sm_limit = 17;
  EXPECT_EQ(launch.persistent_ctas(0, 1000000), 16u);
  problem.sm_limit = 1;
  EXPECT_EQ(launch.persistent_ctas(0, 1000000), 2u) << "at least one cluster";
}

TEST_F(DeviceTest, FailedCallsNameCallAndReason) {
  Specialization impossible = add_kernel();
  impossible.source += "// another module";
  impossible.entries[0].shared_bytes = 1 << 20;
  try {
    get_module(impossible, gpu(0));
    FAIL();
  } catch (const RuntimeFailure& error) {
    EXPECT_NE(std::string(error.what()).find("cuFuncSetAttribute failed: CUDA_ERROR_INVALID_VALUE"),
              std::string::npos)
        << error.what();
  }
  Specialization misnamed = add_kernel();
  misnamed.source += "// a third module";
  misnamed.entries[0].name = "subtract";
  EXPECT_THROW(get_module(misnamed, gpu(0)), RuntimeFailure);
}

TEST_F(DeviceTest, AnythingButACubinIsRefusedByTheDriver) {
  std::vector<char> garbage(4096, 'x');
  garbage.back() = 0;
  const ContextScope scope(primary_context(0));
  ModuleHandle module = nullptr;
  EXPECT_THROW(check(driver().cuModuleLoadData(&module, garbage.data()), "cuModuleLoadData"), RuntimeFailure);
}

TensorMap matrix(const DeviceMemory& memory) {
  TensorMap map;
  map.base = reinterpret_cast<std::uint64_t>(memory.data());
  map.element = Element::bf16;
  map.rank = 3;
  map.extent[0] = 256, map.extent[1] = 64, map.extent[2] = 4;
  map.stride[0] = 512, map.stride[1] = 512 * 64;
  map.box[0] = 64, map.box[1] = 64, map.box[2] = 1;
  map.swizzle = Swizzle::b128;
  return map;
}

bool driver_accepts(const TensorMap& map) {
  static constexpr unsigned ones[] = {1, 1, 1, 1, 1};
  EncodedTensorMap encoded;
  const ContextScope scope(primary_context(0));
  return driver().cuTensorMapEncodeTiled(&encoded, static_cast<int>(map.element),
                                         static_cast<unsigned>(map.rank), reinterpret_cast<void*>(map.base),
                                         map.extent, map.stride, map.box, ones, 0,
                                         static_cast<int>(map.swizzle), static_cast<int>(map.promotion),
                                         static_cast<int>(map.fill)) == result_success;
}

TEST_F(DeviceTest, TheDriverAgreesWithOurRulesOfTensorMaps) {
  const DeviceMemory memory(0, 1 << 20);
  int accepted = 0, refused = 0;
  const auto compare = [&](const TensorMap& map, const std::string& what) {
    const std::string rule = illegal(map);
    EXPECT_EQ(driver_accepts(map), rule.empty()) << what << ": we say '" << rule << "'";
    ++(rule.empty() ? accepted : refused);
  };
  compare(matrix(memory), "a legal matrix");
  for (int rank = 0; rank <= 6; ++rank) {
    TensorMap map = matrix(memory);
    map.rank = rank;
    for (int i = 3; i < std::min(rank, TensorMap::max_rank); ++i)
      map.extent[i] = 1, map.stride[i - 1] = 512 * 256, map.box[i] = 1;
    if (rank <= TensorMap::max_rank) compare(map, "rank " + std::to_string(rank));
  }
  for (const std::uint64_t shift : {1, 2, 4, 8, 16, 32, 64}) {
    TensorMap map = matrix(memory);
    map.base += shift;
    compare(map, "base + " + std::to_string(shift));
    map = matrix(memory);
    map.stride[0] = 512 + shift;
    compare(map, "stride + " + std::to_string(shift));
  }
  for (const std::uint64_t extent :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{63}, std::uint64_t{1} << 31, std::uint64_t{1} << 32,
        (std::uint64_t{1} << 32) + 1}) {
    TensorMap map = matrix(memory);
    map.extent[2] = extent;
    compare(map, "extent " + std::to_string(extent));
  }
  for (const std::uint64_t stride :
       {std::uint64_t{0}, std::uint64_t{1} << 39, (std::uint64_t{1} << 40) - 16, std::uint64_t{1} << 40}) {
    TensorMap map = matrix(memory);
    map.stride[1] = stride;
    compare(map, "stride " + std::to_string(stride));
  }
  for (const Element element :
       {Element::u8, Element::u16, Element::u32, Element::i32, Element::u64, Element::i64, Element::f16,
        Element::f32, Element::bf16, Element::u4_align8, Element::u4_align16})
    for (const Swizzle swizzle : {Swizzle::none, Swizzle::b32, Swizzle::b64, Swizzle::b128})
      for (const std::uint32_t box : {0u, 1u, 4u, 8u, 16u, 24u, 32u, 64u, 128u, 256u, 257u})
        for (const Fill fill_value : {Fill::zero, Fill::nan}) {
          TensorMap map = matrix(memory);
          map.element = element;
          map.swizzle = swizzle;
          map.box[0] = box;
          map.fill = fill_value;
          const bool fp4 = element == Element::u4_align8 || element == Element::u4_align16;
          if (fp4 && gpu(0).capability_major < 10) {  // only later devices know packed FP4
            EXPECT_FALSE(driver_accepts(map));
            continue;
          }
          compare(map, "element " + std::to_string(static_cast<int>(element)) + " swizzle " +
                           std::to_string(static_cast<int>(swizzle)) + " box " + std::to_string(box) +
                           " fill " + std::to_string(static_cast<int>(fill_value)));
        }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 100);
}

TEST_F(DeviceTest, ValuesAreReadAfterTheWorkOnTheStream) {
  DeviceMemory memory(0, 64 << 20);
  const OwnStream own(0);
  fill(0, memory.data(), 7, memory.bytes() / 4, own.stream());
  std::uint32_t last = 0;
  const auto* words = static_cast<const std::uint32_t*>(memory.data());
  EXPECT_TRUE(read_values(0, words + memory.bytes() / 4 - 1, &last, 4, own.stream()));
  EXPECT_EQ(last, 7u);
}

TEST_F(DeviceTest, TimesWhatAStreamDoes) {
  const OwnStream own(0);
  DeviceMemory memory(0, 64 << 20);
  const float milliseconds = own.time([&] { fill(0, memory.data(), 1, memory.bytes() / 4, own.stream()); });
  EXPECT_GT(milliseconds, 0.0f);
}

}  // namespace
}  // namespace gemmule::cuda
