// A tensor in host memory that owns its bytes, and the text of its shape for messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gemmule/tensor.hpp"

namespace gemmule::io {

/// Zero-initialised bytes aligned to 256, which is what every backend may ask of an operand.
class AlignedBytes {
 public:
  static constexpr std::size_t alignment = 256;

  AlignedBytes() = default;
  explicit AlignedBytes(std::size_t size);

  std::byte* data() const noexcept { return data_.get(); }
  std::size_t size() const noexcept { return size_; }
  void* release() noexcept { return data_.release(); }  ///< the caller calls std::free

 private:
  struct Free {
    void operator()(std::byte* bytes) const noexcept { std::free(bytes); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

using Shape = std::vector<std::int64_t>;

/// "[512, 256]".
std::string to_string(const Shape& shape);
/// Product of the extents. Throws InvalidArgument when one is negative or the product exceeds 2^63-1.
std::int64_t element_count(const Shape& shape);

/// Row-major. FP4 is held as stored: uint8, two values a byte.
struct HostTensor {
  DType dtype = DType::none;
  Shape shape;
  AlignedBytes bytes;

  HostTensor() = default;
  /// Zero-filled.
  HostTensor(DType type, Shape extents);
  /// Copy of `tensor`'s bytes under the given shape.
  HostTensor(const Tensor& tensor, Shape extents);

  std::int64_t numel() const { return element_count(shape); }
  template <class T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  /// A row-major view of rank at most 6.
  Tensor view() const;
};

/// Text for a one-line message: control and non-ASCII bytes escaped as \xNN, long text cut.
std::string printable(std::string_view text, std::size_t limit = 120);
/// printable() between single quotes.
std::string quote(std::string_view text);

}  // namespace gemmule::io
