// DType, Device and Tensor of the public header.
#include "gemmule/tensor.hpp"

#include <algorithm>
#include <limits>

namespace gemmule {
namespace {

struct DTypeInfo {
  DType dtype;
  const char* name;
  std::size_t bytes;
  int dlpack_code, dlpack_bits, dlpack_lanes;
};

// Codes of DLPack's DLDataTypeCode; the narrow float types have one each since DLPack 1.1.
constexpr int dl_int = 0, dl_uint = 1, dl_float = 2, dl_bfloat = 4, dl_e4m3fn = 10, dl_e5m2 = 12,
              dl_e8m0fnu = 14, dl_e2m1fn = 17;

constexpr DTypeInfo dtypes[] = {
    {DType::float32, "float32", 4, dl_float, 32, 1},
    {DType::float16, "float16", 2, dl_float, 16, 1},
    {DType::bfloat16, "bfloat16", 2, dl_bfloat, 16, 1},
    {DType::float8_e4m3fn, "float8_e4m3fn", 1, dl_e4m3fn, 8, 1},
    {DType::float8_e5m2, "float8_e5m2", 1, dl_e5m2, 8, 1},
    {DType::float8_e8m0fnu, "float8_e8m0fnu", 1, dl_e8m0fnu, 8, 1},
    {DType::float4_e2m1fn_x2, "float4_e2m1fn_x2", 1, dl_e2m1fn, 4, 2},
    {DType::uint8, "uint8", 1, dl_uint, 8, 1},
    {DType::int32, "int32", 4, dl_int, 32, 1},
    {DType::int64, "int64", 8, dl_int, 64, 1},
};

const DTypeInfo* find(DType dtype) noexcept {
  const auto* it =
      std::find_if(std::begin(dtypes), std::end(dtypes), [&](const auto& d) { return d.dtype == dtype; });
  return it == std::end(dtypes) ? nullptr : it;
}

}  // namespace

const char* name(DType dtype) noexcept {
  const DTypeInfo* info = find(dtype);
  return info ? info->name : "none";
}

DType dtype_from_name(const std::string& text) {
  for (const DTypeInfo& info : dtypes)
    if (text == info.name) return info.dtype;
  std::string known;
  for (const DTypeInfo& info : dtypes) known += std::string(known.empty() ? "" : ", ") + info.name;
  throw InvalidArgument("dtype '" + text + "' is unknown, expected one of " + known);
}

std::size_t size_of(DType dtype) noexcept {
  const DTypeInfo* info = find(dtype);
  return info ? info->bytes : 0;
}

DType dtype_from_dlpack(int code, int bits, int lanes) {
  for (const DTypeInfo& info : dtypes)
    if (code == info.dlpack_code && bits == info.dlpack_bits && lanes == info.dlpack_lanes) return info.dtype;
  throw InvalidArgument("DLPack tensor: element type code " + std::to_string(code) + " with " +
                        std::to_string(bits) + " bits and " + std::to_string(lanes) +
                        " lanes is not supported");
}

std::string name(Device device) {
  switch (device.type) {
    case DeviceType::cpu:
      return "cpu";
    case DeviceType::cuda:
      return "cuda:" + std::to_string(device.index);
    case DeviceType::cuda_host:
      return "cuda_host";
  }
  return "device type " + std::to_string(static_cast<int>(device.type)) + ":" + std::to_string(device.index);
}

Tensor::Tensor(void* data_, DType dtype_, std::initializer_list<std::int64_t> shape_,
               std::initializer_list<std::int64_t> strides_, Device device_)
    : data(data_), dtype(dtype_), device(device_) {
  if (shape_.size() > max_rank)
    throw InvalidArgument("Tensor: rank " + std::to_string(shape_.size()) + ", expected at most 6");
  if (strides_.size() != 0 && strides_.size() != shape_.size())
    throw InvalidArgument("Tensor: " + std::to_string(strides_.size()) + " strides for a shape of rank " +
                          std::to_string(shape_.size()));
  for (const std::int64_t extent : shape_)
    if (extent < 0) throw InvalidArgument("Tensor: extent " + std::to_string(extent) + " is negative");
  rank = static_cast<int>(shape_.size());
  std::copy(shape_.begin(), shape_.end(), shape.begin());
  if (strides_.size() != 0) {
    std::copy(strides_.begin(), strides_.end(), strides.begin());
    return;
  }
  strides = packed_strides(rank, shape);
}

std::array<std::int64_t, Tensor::max_rank> Tensor::packed_strides(
    int rank, const std::array<std::int64_t, max_rank>& shape) {
  std::array<std::int64_t, max_rank> strides{};
  std::int64_t stride = 1;
  for (int i = rank - 1; i >= 0; --i) {
    strides[i] = stride;
    if (__builtin_mul_overflow(stride, shape[i], &stride))
      throw InvalidArgument("Tensor: extent " + std::to_string(shape[i]) +
                            ", more than 2^63 elements in all");
  }
  return strides;
}

std::int64_t Tensor::numel() const noexcept {
  std::int64_t count = 1;
  for (int i = 0; i < rank; ++i)
    if (__builtin_mul_overflow(count, shape[i], &count)) return std::numeric_limits<std::int64_t>::max();
  return count;
}

std::size_t Tensor::bytes() const noexcept {
  return static_cast<std::size_t>(numel()) * size_of(dtype);
}

}  // namespace gemmule
