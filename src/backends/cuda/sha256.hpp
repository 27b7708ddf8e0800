// SHA-256 (FIPS 180-4): names cache entries and guards their contents.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace gemmule::cuda {

using Digest = std::array<std::uint8_t, 32>;

Digest sha256(std::string_view data);
std::string hex(const Digest& digest);

}  // namespace gemmule::cuda
