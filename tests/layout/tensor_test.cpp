// DType, Device, Tensor and the DLPack conversion.
#include "gemmule/tensor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gemmule {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr DType all[] = {
    DType::float32,        DType::float16,          DType::bfloat16, DType::float8_e4m3fn, DType::float8_e5m2,
    DType::float8_e8m0fnu, DType::float4_e2m1fn_x2, DType::uint8,    DType::int32,         DType::int64};

TEST(DType, NamesRoundTrip) {
  for (const DType d : all) EXPECT_EQ(dtype_from_name(name(d)), d);
  EXPECT_STREQ(name(DType::none), "none");
  EXPECT_STREQ(name(DType::float4_e2m1fn_x2), "float4_e2m1fn_x2");
  EXPECT_THAT([] { dtype_from_name("float64"); }, ThrowsMessage<InvalidArgument>(::testing::AllOf(
                                                      HasSubstr("'float64'"), HasSubstr("bfloat16"))));
  EXPECT_THROW(dtype_from_name("none"), InvalidArgument);
  EXPECT_THROW(dtype_from_name(""), InvalidArgument);
}

TEST(DType, Sizes) {
  EXPECT_EQ(size_of(DType::none), 0u);
  EXPECT_EQ(size_of(DType::float32), 4u);
  EXPECT_EQ(size_of(DType::bfloat16), 2u);
  EXPECT_EQ(size_of(DType::float4_e2m1fn_x2), 1u);
  EXPECT_EQ(size_of(DType::int64), 8u);
}

TEST(Device, Names) {
  EXPECT_EQ(name(Device{}), "cpu");
  EXPECT_EQ(name(Device{DeviceType::cuda, 3}), "cuda:3");
  EXPECT_EQ(name(Device{DeviceType::cuda_host, 0}), "cuda_host");
  EXPECT_EQ(name(Device{static_cast<DeviceType>(10), 1}), "device type 10:1");
}

TEST(Tensor, AbsentByDefault) {
  const Tensor t;
  EXPECT_FALSE(t.present());
  EXPECT_FALSE(t);
  EXPECT_EQ(t.bytes(), 0u);
}

TEST(Tensor, RowMajorUnlessStridesAreGiven) {
  float x[24];
  const Tensor t(x, DType::float32, {2, 3, 4});
  EXPECT_TRUE(t);
  EXPECT_EQ(t.rank, 3);
  EXPECT_EQ(t.strides[0], 12);
  EXPECT_EQ(t.strides[1], 4);
  EXPECT_EQ(t.strides[2], 1);
  EXPECT_EQ(t.numel(), 24);
  EXPECT_EQ(t.bytes(), 96u);
  const Tensor u(x, DType::float32, {3, 2}, {1, 3}, {DeviceType::cuda, 1});
  EXPECT_EQ(u.strides[1], 3);
  EXPECT_EQ(u.device.index, 1);
  EXPECT_EQ(Tensor(x, DType::float32, {0, 5}).numel(), 0);
  EXPECT_EQ(Tensor(nullptr, DType::int32, {1LL << 20, 1LL << 20}).numel(), 1LL << 40);
}

TEST(Tensor, RejectsImpossibleShapes) {
  EXPECT_THAT(
      [] {
        Tensor(nullptr, DType::uint8, {1, 1, 1, 1, 1, 1, 1});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("rank 7")));
  EXPECT_THAT(
      [] {
        Tensor(nullptr, DType::uint8, {4, 4}, {1});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("1 strides for a shape of rank 2")));
  EXPECT_THAT(
      [] {
        Tensor(nullptr, DType::uint8, {4, -4});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("-4")));
  EXPECT_THAT(
      [] {
        Tensor(nullptr, DType::uint8, {1LL << 40, 1LL << 40});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("2^63")));
}

/// DLPack's DLTensor, member for member.
struct FakeDlTensor {
  void* data;
  struct {
    int device_type;
    std::int32_t device_id;
  } device;
  std::int32_t ndim;
  struct {
    std::uint8_t code, bits;
    std::uint16_t lanes;
  } dtype;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};

TEST(DlPack, Converts) {
  char memory[64];
  std::int64_t shape[] = {2, 3};
  std::int64_t strides[] = {1, 2};
  FakeDlTensor dl{memory, {2, 1}, 2, {4, 16, 1}, shape, strides, 8};
  const Tensor t = from_dlpack(dl);
  EXPECT_EQ(t.data, memory + 8);
  EXPECT_EQ(t.dtype, DType::bfloat16);
  EXPECT_EQ(t.device, (Device{DeviceType::cuda, 1}));
  EXPECT_EQ(t.strides[0], 1);
  EXPECT_EQ(t.strides[1], 2);
  dl.strides = nullptr;
  EXPECT_EQ(from_dlpack(dl).strides[0], 3);
  dl.ndim = 7;
  EXPECT_THROW(from_dlpack(dl), InvalidArgument);
}

TEST(DlPack, ElementTypes) {
  EXPECT_EQ(dtype_from_dlpack(2, 32, 1), DType::float32);
  EXPECT_EQ(dtype_from_dlpack(2, 16, 1), DType::float16);
  EXPECT_EQ(dtype_from_dlpack(10, 8, 1), DType::float8_e4m3fn);
  EXPECT_EQ(dtype_from_dlpack(12, 8, 1), DType::float8_e5m2);
  EXPECT_EQ(dtype_from_dlpack(14, 8, 1), DType::float8_e8m0fnu);
  EXPECT_EQ(dtype_from_dlpack(17, 4, 2), DType::float4_e2m1fn_x2);
  EXPECT_EQ(dtype_from_dlpack(1, 8, 1), DType::uint8);
  EXPECT_EQ(dtype_from_dlpack(0, 32, 1), DType::int32);
  EXPECT_EQ(dtype_from_dlpack(0, 64, 1), DType::int64);
  EXPECT_THAT([] { dtype_from_dlpack(2, 64, 1); }, ThrowsMessage<InvalidArgument>(HasSubstr("64 bits")));
  EXPECT_THROW(dtype_from_dlpack(2, 32, 4), InvalidArgument);
  EXPECT_THROW(dtype_from_dlpack(17, 4, 1), InvalidArgument);
}

}  // namespace
}  // namespace gemmule
