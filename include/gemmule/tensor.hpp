// How a caller describes memory: a pointer, an element type, a shape, strides and a device. No ownership.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "gemmule/error.hpp"

namespace gemmule {

/// Element types. float4_e2m1fn_x2 is one byte that holds two e2m1 values, the even index in the low nibble.
enum class DType : std::uint8_t {
  none,
  float32,
  float16,
  bfloat16,
  float8_e4m3fn,
  float8_e5m2,
  float8_e8m0fnu,
  float4_e2m1fn_x2,
  uint8,  ///< as an operand: packed float4_e2m1fn_x2
  int32,
  int64,
};

/// "float32", "float8_e4m3fn", ...; "none" for DType::none.
const char* name(DType dtype) noexcept;

/// Inverse of name(). Throws InvalidArgument for a name it does not know.
DType dtype_from_name(const std::string& text);

/// Bytes of one element as stored (1 for the packed FP4 types).
std::size_t size_of(DType dtype) noexcept;

/// Values are those of DLPack's DLDeviceType.
enum class DeviceType : std::int32_t { cpu = 1, cuda = 2, cuda_host = 3 };

struct Device {
  DeviceType type = DeviceType::cpu;
  std::int32_t index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

/// "cpu", "cuda:0".
std::string name(Device device);

/// A CUDA stream (CUstream / cudaStream_t). Null is the legacy default stream. Ignored on the CPU.
struct Stream {
  void* handle = nullptr;
};

/// A view of memory that somebody else owns. A default-constructed Tensor is absent: it stands for an argument
/// that was not given. Shape and strides count elements of `dtype` as stored, so a packed FP4 matrix of M x K
/// values has shape (M, K/2).
struct Tensor {
  static constexpr int max_rank = 6;

  void* data = nullptr;
  DType dtype = DType::none;
  int rank = 0;
  std::array<std::int64_t, max_rank> shape{};
  std::array<std::int64_t, max_rank> strides{};
  Device device{};

  Tensor() = default;
  /// Row-major (last extent contiguous) when `strides` is empty.
  Tensor(void* data, DType dtype, std::initializer_list<std::int64_t> shape,
         std::initializer_list<std::int64_t> strides = {}, Device device = {});

  bool present() const noexcept { return dtype != DType::none; }
  explicit operator bool() const noexcept { return present(); }
  /// Row-major strides. Throws InvalidArgument when the extents multiply to more than 2^63.
  static std::array<std::int64_t, max_rank> packed_strides(int rank,
                                                           const std::array<std::int64_t, max_rank>& shape);
  /// Product of the extents (1 for rank 0); the largest int64 when it would be more.
  std::int64_t numel() const noexcept;
  /// numel() * size_of(dtype).
  std::size_t bytes() const noexcept;
};

/// Converts anything with DLTensor's members (data, device{device_type, device_id}, ndim, dtype{code, bits, lanes},
/// shape, strides, byte_offset), so that this header does not need DLPack's. Throws InvalidArgument for more than six
/// dimensions or an element type this library does not know.
DType dtype_from_dlpack(int code, int bits, int lanes);

template <class DLTensorLike>
Tensor from_dlpack(const DLTensorLike& t) {
  if (t.ndim < 0 || t.ndim > Tensor::max_rank)
    throw InvalidArgument("DLPack tensor: rank " + std::to_string(t.ndim) + ", expected at most 6");
  Tensor out;
  out.data = static_cast<char*>(t.data) + t.byte_offset;
  out.dtype = dtype_from_dlpack(static_cast<int>(t.dtype.code), static_cast<int>(t.dtype.bits),
                                static_cast<int>(t.dtype.lanes));
  out.rank = static_cast<int>(t.ndim);
  for (int i = 0; i < out.rank; ++i) out.shape[i] = t.shape[i];
  if (t.strides)
    for (int i = 0; i < out.rank; ++i) out.strides[i] = t.strides[i];
  else
    out.strides = Tensor::packed_strides(out.rank, out.shape);
  out.device = Device{static_cast<DeviceType>(static_cast<int>(t.device.device_type)),
                      static_cast<std::int32_t>(t.device.device_id)};
  return out;
}

/// Memory for the one-call forms. Both functions may be called from any thread.
class Allocator {
 public:
  virtual ~Allocator() = default;
  /// At least `bytes` bytes aligned to 256, usable on `stream`. Throws on failure. bytes may be 0.
  virtual void* allocate(std::size_t bytes, Device device, Stream stream) = 0;
  /// Memory for the output that `description` describes (its data is null); allocate(description.bytes()) unless
  /// overridden, for callers who make arrays of their own kind. Outputs are asked for in
  /// the order c, d, d_col, sfd_row, sfd_col, amax (srelu) or d_row, d_col, sfd_row, sfd_col, dbias, amax (dglu); absent
  /// ones are skipped.
  virtual void* allocate_output(const Tensor& description, Stream stream) {
    return allocate(description.bytes(), description.device, stream);
  }
  /// Called for scratch memory once the work that uses it has been enqueued on `stream`, and for outputs when the
  /// call that allocated them fails. Outputs of a successful call belong to the caller.
  virtual void deallocate(void* data, std::size_t bytes, Device device, Stream stream) noexcept = 0;
};

}  // namespace gemmule
