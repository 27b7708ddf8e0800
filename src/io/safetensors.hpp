// The safetensors file format: 8 bytes of header length (little-endian), a JSON header that gives every tensor's
// dtype, shape and byte range, then the data without holes. Reading trusts nothing; writing is atomic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "io/host_tensor.hpp"

namespace gemmule::io {

using Metadata = std::map<std::string, std::string, std::less<>>;
using TensorMap = std::map<std::string, HostTensor, std::less<>>;

struct Entry {
  DType dtype = DType::none;
  Shape shape;
  std::uint64_t begin = 0, end = 0;  ///< bytes from the start of the data
};

struct Header {
  Metadata metadata;
  std::map<std::string, Entry, std::less<>> tensors;
};

/// Longest header that is accepted, the format's own limit.
inline constexpr std::uint64_t max_header_bytes = 100'000'000;

/// Parses and checks the JSON text; the tensors must cover exactly `data_bytes` bytes. Throws InvalidArgument.
Header parse_header(std::string_view json, std::uint64_t data_bytes);

/// An open file whose header has been checked. Tensors are read on demand into aligned memory. Every message starts with
/// the file's name. Throws InvalidArgument.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::string& path);
  /// The same for a file held in memory; `file_name` is for messages.
  SafetensorsReader(std::string file_name, std::vector<char> contents);
  ~SafetensorsReader();
  SafetensorsReader(const SafetensorsReader&) = delete;
  SafetensorsReader& operator=(const SafetensorsReader&) = delete;

  const std::string& name() const noexcept { return name_; }
  const Metadata& metadata() const noexcept { return header_.metadata; }
  const std::map<std::string, Entry, std::less<>>& tensors() const noexcept { return header_.tensors; }
  bool has(std::string_view tensor) const { return header_.tensors.find(tensor) != header_.tensors.end(); }
  /// Throws InvalidArgument when there is no such tensor.
  const Entry& entry(std::string_view tensor) const;
  HostTensor read(std::string_view tensor) const;

 private:
  void read_header(std::uint64_t file_bytes);
  void read_at(std::uint64_t offset, void* out, std::size_t size) const;

  std::string name_;
  int descriptor_ = -1;
  std::vector<char> contents_;
  std::uint64_t data_start_ = 0;
  Header header_;
};

/// Writes through a temporary name, so that the file appears complete or not at all.
void write_safetensors(const std::string& path, const Metadata& metadata, const TensorMap& tensors);

}  // namespace gemmule::io
