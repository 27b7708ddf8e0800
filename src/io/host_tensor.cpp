#include "io/host_tensor.hpp"

#include <cstring>
#include <limits>
#include <new>
#include <string_view>

#include "gemmule/error.hpp"

namespace gemmule::io {

AlignedBytes::AlignedBytes(std::size_t size) : size_(size) {
  if (size > std::numeric_limits<std::size_t>::max() - alignment) throw std::bad_alloc();
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded ? rounded : alignment)));
  if (!data_) throw std::bad_alloc();
  std::memset(data_.get(), 0, rounded);
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::int64_t element_count(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0) throw InvalidArgument("shape " + to_string(shape) + ": negative extent");
    if (__builtin_mul_overflow(count, extent, &count))
      throw InvalidArgument("shape " + to_string(shape) + ": more than 2^63-1 elements");
  }
  return count;
}

HostTensor::HostTensor(DType type, Shape extents) : dtype(type), shape(std::move(extents)) {
  std::int64_t size = 0;
  if (__builtin_mul_overflow(element_count(shape), static_cast<std::int64_t>(size_of(dtype)), &size))
    throw InvalidArgument("shape " + to_string(shape) + ": more than 2^63-1 bytes");
  bytes = AlignedBytes(static_cast<std::size_t>(size));
}

HostTensor::HostTensor(const Tensor& tensor, Shape extents) : HostTensor(tensor.dtype, std::move(extents)) {
  if (bytes.size() != tensor.bytes())
    throw InvalidArgument("shape " + to_string(shape) + " does not hold " + std::to_string(tensor.bytes()) +
                          " bytes of " + name(tensor.dtype));
  if (bytes.size()) std::memcpy(bytes.data(), tensor.data, bytes.size());
}

Tensor HostTensor::view() const {
  if (shape.size() > static_cast<std::size_t>(Tensor::max_rank))
    throw InvalidArgument("shape " + to_string(shape) + ": rank above 6");
  Tensor out;
  out.data = bytes.data();
  out.dtype = dtype;
  out.rank = static_cast<int>(shape.size());
  std::int64_t stride = 1;
  for (int i = out.rank - 1; i >= 0; --i) {
    const std::int64_t extent = shape[static_cast<std::size_t>(i)];
    out.shape[static_cast<std::size_t>(i)] = extent;
    out.strides[static_cast<std::size_t>(i)] = stride;
    stride *= extent;
  }
  return out;
}

std::string printable(std::string_view text, std::size_t limit) {
  static constexpr char hex[] = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    if (out.size() >= limit) return out + "...";
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f)
      out += c;
    else
      out += std::string("\\x") + hex[byte >> 4] + hex[byte & 15];
  }
  return out;
}

std::string quote(std::string_view text) {
  return "'" + printable(text) + "'";
}

}  // namespace gemmule::io
