// Any bytes as a safetensors file: the reader answers or throws, and reads only what the file holds.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gemmule/error.hpp"
#include "io/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gemmule;
  try {
    const io::SafetensorsReader reader("input", std::vector<char>(data, data + size));
    std::size_t bytes = 0;
    for (const auto& [name, entry] : reader.tensors()) bytes += reader.read(name).bytes.size();
    if (bytes > size) __builtin_trap();
  } catch (const InvalidArgument&) {
  }
  return 0;
}
