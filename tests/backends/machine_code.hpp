// Reads the machine code of a cubin: what neither the model nor a source review can see.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>

namespace gemmule::cuda {

template <class T>
T read_at(std::string_view bytes, std::size_t at) {
  if (at > bytes.size() || bytes.size() - at < sizeof(T)) throw std::runtime_error("truncated cubin");
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

/// Calls visit(name, code) for every function of a cubin (64-bit ELF, sections ".text.NAME").
template <class Visit>
void for_each_function(std::string_view cubin, Visit visit) {
  const auto sections = read_at<std::uint64_t>(cubin, 0x28);
  const auto count = read_at<std::uint16_t>(cubin, 0x3c), names = read_at<std::uint16_t>(cubin, 0x3e);
  const auto offset_of = [&](unsigned section) {
    return read_at<std::uint64_t>(cubin, sections + section * 64u + 24);
  };
  constexpr std::string_view prefix = ".text.";
  for (unsigned i = 0; i < count; ++i) {
    const std::string_view name(cubin.data() + offset_of(names) +
                                read_at<std::uint32_t>(cubin, sections + i * 64u));
    if (!name.starts_with(prefix)) continue;
    visit(name.substr(prefix.size()),
          cubin.substr(offset_of(i), read_at<std::uint64_t>(cubin, sections + i * 64u + 32)));
  }
}

/// The first arrival on an mbarrier that does not wait for an earlier load from shared memory, empty if there is none.
///
/// The arrival tells a copy engine, or another thread, that a buffer has been read. ptxas orders the two instructions but
/// does not make the arrival wait for the loaded data, and on an H200 arrivals were seen to overtake loads that queued
/// behind wgmma with operands in registers: the buffer was refilled before they read it. In the source, the address
/// of the arrival has to depend on what was loaded, or fence.proxy.async (a MEMBAR that waits for loads) lies between.
///
/// Instructions have 128 bits: the opcode in bits 0..11 (LDS 0x984, SYNCS.ARRIVE 0x9a7, MEMBAR 0x992); the scoreboard that an
/// instruction's result releases in 110..112 (7: none), those it waits for in 116..121. Loads are followed in the order of the
/// code, not along its branches.
///
/// Barriers for whose offset (of the address, beside a register) `exempt` is true are left out.
inline std::string overtaking_arrival(
    std::string_view cubin,
    const std::function<bool(std::uint64_t offset)>& exempt = [](std::uint64_t) { return false; }) {
  std::string fault;
  for_each_function(cubin, [&](std::string_view name, std::string_view code) {
    std::size_t load_of[6] = {};  // address + 1 of the load that a scoreboard stands for
    for (std::size_t at = 0; at < code.size() && fault.empty(); at += 16) {
      const auto opcode = read_at<std::uint64_t>(code, at) & 0xfff;
      const auto control = read_at<std::uint64_t>(code, at + 8) >> 41;
      for (unsigned i = 0; i < 6; ++i)
        if (control >> (11 + i) & 1) load_of[i] = 0;
      if (opcode == 0x9a7 && !exempt(read_at<std::uint64_t>(code, at) >> 40))
        for (const std::size_t load : load_of)
          if (load != 0)
            fault = std::string(name) + ": the arrival at byte " + std::to_string(at) +
                    " does not wait for the load at byte " + std::to_string(load - 1);
      // 0x794d: EXIT of every thread, after which the code of another role begins.
      if (opcode == 0x992 || (read_at<std::uint64_t>(code, at) & 0xffff) == 0x794d)
        std::fill(std::begin(load_of), std::end(load_of), std::size_t{0});
      const auto scoreboard = control >> 5 & 7;
      if (opcode == 0x984 && scoreboard < 6) load_of[scoreboard] = at + 1;
    }
  });
  return fault;
}

}  // namespace gemmule::cuda
