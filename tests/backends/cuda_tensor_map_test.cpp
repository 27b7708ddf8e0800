// The tensor map encoder's limits, as we check them, and our declarations against cuda.h where it is installed.
#include <gtest/gtest.h>

#include <functional>

#include "backends/cuda/abi.hpp"
#include "backends/cuda/tensor_map.hpp"
#include "gemmule/error.hpp"

#if __has_include(<cuda.h>)
#include <cuda.h>
#define GEMMULE_TEST_HAS_CUDA_H 1
#endif

namespace gemmule::cuda {
namespace {

TensorMap matrix() {
  TensorMap map;
  map.base = 0x7f0000000000;
  map.element = Element::bf16;
  map.rank = 3;
  map.extent[0] = 2880, map.extent[1] = 1856, map.extent[2] = 16;
  map.stride[0] = 2880 * 2, map.stride[1] = 2880 * 2 * 1856;
  map.box[0] = 64, map.box[1] = 128, map.box[2] = 1;
  map.swizzle = Swizzle::b128;
  return map;
}

struct Case {
  const char* field;  ///< what the message must start with
  std::function<void(TensorMap&)> spoil;
};

TEST(TensorMap, LegalOnesPass) {
  EXPECT_EQ(illegal(matrix()), "");
  TensorMap packed = matrix();
  packed.element = Element::u4_align16;
  packed.extent[0] = 2944;
  packed.stride[0] = 1472, packed.stride[1] = 1472 * 1856;
  packed.box[0] = 128;
  EXPECT_EQ(illegal(packed), "");
  TensorMap vector;
  vector.base = 16;
  vector.element = Element::f32;
  vector.rank = 1;
  vector.extent[0] = 1;
  vector.box[0] = 256;
  EXPECT_EQ(illegal(vector), "");
  TensorMap largest = matrix();
  largest.extent[1] = std::uint64_t{1} << 32;
  largest.stride[1] = (std::uint64_t{1} << 40) - 16;
  EXPECT_EQ(illegal(largest), "");
}

TEST(TensorMap, EachRuleIsNamed) {
  const Case cases[] = {
      {"rank", [](TensorMap& m) { m.rank = 0; }},
      {"rank", [](TensorMap& m) { m.rank = 6; }},
      {"base", [](TensorMap& m) { m.base += 8; }},
      {"base", [](TensorMap& m) { m.base = 0; }},
      {"extent[1]", [](TensorMap& m) { m.extent[1] = 0; }},
      {"extent[2]", [](TensorMap& m) { m.extent[2] = (std::uint64_t{1} << 32) + 1; }},
      {"stride[0]", [](TensorMap& m) { m.stride[0] = 3276; }},
      {"stride[1]", [](TensorMap& m) { m.stride[1] = std::uint64_t{1} << 40; }},
      {"box[1]", [](TensorMap& m) { m.box[1] = 257; }},
      {"box[2]", [](TensorMap& m) { m.box[2] = 0; }},
      {"box[0]", [](TensorMap& m) { m.box[0] = 4; }},
      {"box[0]", [](TensorMap& m) { m.box[0] = 128; }},
      {"box[0]", [](TensorMap& m) { m.swizzle = Swizzle::b64; }},
      {"fill", [](TensorMap& m) { m.element = Element::u16, m.fill = Fill::nan; }},
      {"element", [](TensorMap& m) { m.element = static_cast<Element>(99); }},
      {"extent[0]", [](TensorMap& m) { m.element = Element::u4_align16, m.box[0] = 128; }},
      {"box[0]",
       [](TensorMap& m) { m.element = Element::u4_align16, m.extent[0] = 2944, m.stride[0] = 5888; }},
      {"extent[0]", [](TensorMap& m) { m.element = Element::u4_align8, m.extent[0] = 2881; }},
  };
  for (const Case& c : cases) {
    TensorMap map = matrix();
    c.spoil(map);
    EXPECT_EQ(illegal(map).rfind(c.field, 0), 0u)
        << "expected a complaint about " << c.field << ", got: " << illegal(map);
    EXPECT_THROW(encode(map), InvalidArgument);
  }
}

#ifdef GEMMULE_TEST_HAS_CUDA_H
static_assert(sizeof(EncodedTensorMap) == sizeof(CUtensorMap));
static_assert(sizeof(LaunchAttribute) == sizeof(CUlaunchAttribute));
static_assert(offsetof(LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
static_assert(sizeof(LaunchAttribute::Value) == sizeof(CUlaunchAttributeValue));
static_assert(sizeof(LaunchConfig) == sizeof(CUlaunchConfig));
static_assert(offsetof(LaunchConfig, grid_z) == offsetof(CUlaunchConfig, gridDimZ));
static_assert(offsetof(LaunchConfig, block_x) == offsetof(CUlaunchConfig, blockDimX));
static_assert(offsetof(LaunchConfig, shared_bytes) == offsetof(CUlaunchConfig, sharedMemBytes));
static_assert(offsetof(LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream));
static_assert(offsetof(LaunchConfig, attributes) == offsetof(CUlaunchConfig, attrs));
static_assert(offsetof(LaunchConfig, attribute_count) == offsetof(CUlaunchConfig, numAttrs));
static_assert(sizeof(DeviceAddress) == sizeof(CUdeviceptr) && sizeof(DeviceHandle) == sizeof(CUdevice));
static_assert(int{result_no_device} == int{CUDA_ERROR_NO_DEVICE});
static_assert(int{device_attribute_sm_count} == int{CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT});
static_assert(int{device_attribute_capability_major} == int{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR});
static_assert(int{device_attribute_capability_minor} == int{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR});
static_assert(int{device_attribute_shared_bytes_per_block_optin} ==
              int{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN});
static_assert(int{function_attribute_max_dynamic_shared_bytes} ==
              int{CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES});
static_assert(int{function_attribute_non_portable_cluster} ==
              int{CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED});
static_assert(int{capture_mode_relaxed} == int{CU_STREAM_CAPTURE_MODE_RELAXED});
static_assert(int{capture_status_none} == int{CU_STREAM_CAPTURE_STATUS_NONE});
static_assert(int{launch_attribute_cluster_dimension} == int{CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION});
static_assert(int{launch_attribute_programmatic_stream_serialization} ==
              int{CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION});
static_assert(int{CU_TENSOR_MAP_DATA_TYPE_UINT8} == static_cast<int>(Element::u8));
static_assert(int{CU_TENSOR_MAP_DATA_TYPE_INT64} == static_cast<int>(Element::i64));
static_assert(int{CU_TENSOR_MAP_DATA_TYPE_FLOAT16} == static_cast<int>(Element::f16));
static_assert(int{CU_TENSOR_MAP_DATA_TYPE_FLOAT32} == static_cast<int>(Element::f32));
static_assert(int{CU_TENSOR_MAP_DATA_TYPE_BFLOAT16} == static_cast<int>(Element::bf16));
static_assert(int{CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B} == static_cast<int>(Element::u4_align8));
static_assert(int{CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B} == static_cast<int>(Element::u4_align16));
static_assert(int{CU_TENSOR_MAP_SWIZZLE_128B} == static_cast<int>(Swizzle::b128));
static_assert(int{CU_TENSOR_MAP_L2_PROMOTION_L2_256B} == static_cast<int>(L2Promotion::b256));
static_assert(int{CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA} == static_cast<int>(Fill::nan));

TEST(Abi, AgreesWithCudaH) {
  SUCCEED() << "compared at compile time with CUDA " << CUDA_VERSION;
}
#else
TEST(Abi, AgreesWithCudaH) {
  GTEST_SKIP() << "NOT TESTED, no cuda.h on this machine";
}
#endif

}  // namespace
}  // namespace gemmule::cuda
