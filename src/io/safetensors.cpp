#include "io/safetensors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "gemmule/error.hpp"
#include "io/atomic_file.hpp"
#include "io/file_dtypes.hpp"

namespace gemmule::io {
namespace {

constexpr std::size_t length_bytes = 8;

std::uint64_t load_length(const unsigned char (&bytes)[length_bytes]) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) value |= std::uint64_t{bytes[i]} << (8 * i);
  return value;
}

/// Runs `body` and puts the file's name in front of its message.
template <class Body>
auto naming(const std::string& file, Body body) {
  try {
    return body();
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(printable(file) + ": " + error.what());
  }
}

}  // namespace

SafetensorsReader::SafetensorsReader(const std::string& path) : name_(path) {
  // O_NONBLOCK: opening a pipe must not wait for a writer; the type is checked next.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor_ < 0) throw InvalidArgument("cannot read " + quote(path) + ": " + std::strerror(errno));
  try {
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode))
      throw InvalidArgument("cannot read " + quote(path) + ": not a regular file");
    read_header(static_cast<std::uint64_t>(status.st_size));
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

SafetensorsReader::SafetensorsReader(std::string file_name, std::vector<char> contents)
    : name_(std::move(file_name)), contents_(std::move(contents)) {
  read_header(contents_.size());
}

SafetensorsReader::~SafetensorsReader() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void SafetensorsReader::read_header(std::uint64_t file_bytes) {
  naming(name_, [&] {
    if (file_bytes < length_bytes)
      throw InvalidArgument("not a safetensors file: " + std::to_string(file_bytes) +
                            " bytes, expected at least 8");
    unsigned char raw[length_bytes];
    read_at(0, raw, length_bytes);
    const std::uint64_t length = load_length(raw);
    if (length > max_header_bytes || length > file_bytes - length_bytes)
      throw InvalidArgument("not a safetensors file: header length " + std::to_string(length) +
                            ", expected at most " +
                            std::to_string(std::min(max_header_bytes, file_bytes - length_bytes)));
    std::string text(length, '\0');
    read_at(length_bytes, text.data(), text.size());
    data_start_ = length_bytes + length;
    header_ = parse_header(text, file_bytes - data_start_);
  });
}

void SafetensorsReader::read_at(std::uint64_t offset, void* out, std::size_t size) const {
  if (descriptor_ < 0) {
    if (size) std::memcpy(out, contents_.data() + offset, size);
    return;
  }
  constexpr std::size_t chunk = std::size_t{1} << 30;
  char* next = static_cast<char*>(out);
  while (size > 0) {
    const ssize_t got = ::pread(descriptor_, next, std::min(size, chunk), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw InvalidArgument(std::string("read: ") + std::strerror(errno));
    if (got == 0) throw InvalidArgument("the file became shorter while it was read");
    next += got;
    offset += static_cast<std::uint64_t>(got);
    size -= static_cast<std::size_t>(got);
  }
}

const Entry& SafetensorsReader::entry(std::string_view tensor) const {
  const auto found = header_.tensors.find(tensor);
  if (found == header_.tensors.end())
    throw InvalidArgument(printable(name_) + ": no tensor " + quote(tensor));
  return found->second;
}

HostTensor SafetensorsReader::read(std::string_view tensor) const {
  const Entry& from = entry(tensor);
  return naming(name_, [&] {
    HostTensor out(from.dtype, from.shape);
    read_at(data_start_ + from.begin, out.bytes.data(), out.bytes.size());
    return out;
  });
}

void write_safetensors(const std::string& path, const Metadata& metadata, const TensorMap& tensors) {
  // Widest elements first: every tensor is then aligned to its element size without holes.
  std::vector<const TensorMap::value_type*> order;
  for (const auto& item : tensors) order.push_back(&item);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return size_of(a->second.dtype) > size_of(b->second.dtype);
  });

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  for (const auto* item : order) {
    const auto& [name, tensor] = *item;
    const std::string_view dtype = dtype_to_file(tensor.dtype);
    if (dtype.empty())
      throw InvalidArgument("tensor " + quote(name) + ": " + gemmule::name(tensor.dtype) +
                            " cannot be stored");
    const std::uint64_t end = offset + tensor.bytes.size();
    header[name] = {{"dtype", dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((length_bytes - text.size() % length_bytes) % length_bytes, ' ');

  AtomicFile file(path);
  unsigned char length[length_bytes];
  for (std::size_t i = 0; i < length_bytes; ++i)
    length[i] = static_cast<unsigned char>(text.size() >> (8 * i));
  file.write(length, sizeof length);
  file.write(text.data(), text.size());
  for (const auto* item : order) file.write(item->second.bytes.data(), item->second.bytes.size());
  file.commit();
}

}  // namespace gemmule::io
