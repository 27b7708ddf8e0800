#include "engine/global_memory.hpp"

#include <algorithm>

#include "engine/machine.hpp"

namespace gemmule::model {

namespace {
constexpr std::uint16_t by_atomic = 0x8000;
constexpr std::uint16_t several = 0xffff;
}  // namespace

void GlobalMemory::add(const void* base, std::size_t bytes, std::string name, Access access, bool initialised,
                       bool constant) {
  Allocation a{static_cast<const std::uint8_t*>(base), bytes, std::move(name), access, constant, {}, {}};
  a.cells.resize(bytes / 2 + 1);
  if (!initialised) a.initialised.assign(bytes / 2 + 1, false);
  allocations_.push_back(std::move(a));
}

void GlobalMemory::begin_launch() {
  for (Allocation& a : allocations_) std::fill(a.cells.begin(), a.cells.end(), Cell());
}

GlobalMemory::Allocation* GlobalMemory::find(const void* address, std::size_t bytes) {
  const auto* p = static_cast<const std::uint8_t*>(address);
  const auto inside = [&](const Allocation& a) {
    return p >= a.base && bytes <= a.bytes && static_cast<std::size_t>(p - a.base) <= a.bytes - bytes;
  };
  if (last_ < allocations_.size() && inside(allocations_[last_])) return &allocations_[last_];
  for (last_ = 0; last_ < allocations_.size(); ++last_) {
    if (inside(allocations_[last_])) return &allocations_[last_];
  }
  return nullptr;
}

bool GlobalMemory::check(Thread& t, const void* address, std::size_t bytes, std::size_t alignment,
                         GlobalUse use, Site site) {
  Machine& m = *t.machine;
  const auto place = [&](const Allocation& a, std::size_t at) {
    return t.label() + ": " + std::to_string(bytes) + " bytes at '" + a.name + "' + " + std::to_string(at);
  };
  Allocation* a = find(address, bytes);
  if (!a) {
    m.hazard(Hazard::global_out_of_bounds, site, [&] {
      std::string text = t.label() + ": " + std::to_string(bytes) + " bytes in no allocation";
      for (const Allocation& near : allocations_) {
        const std::ptrdiff_t past = static_cast<const std::uint8_t*>(address) - (near.base + near.bytes);
        if (past >= -static_cast<std::ptrdiff_t>(bytes) && past < 4096) {
          text += "; " + std::to_string(past) + " bytes past the end of '" + near.name + "'";
        }
      }
      return text;
    });
    return false;
  }
  const std::size_t at = static_cast<std::size_t>(static_cast<const std::uint8_t*>(address) - a->base);
  if (reinterpret_cast<std::uintptr_t>(address) % alignment != 0) {
    m.hazard(Hazard::misaligned, site, [&] { return place(*a, at); });
    return false;
  }
  if (use != GlobalUse::read && a->access == Access::read_only) {
    m.hazard(Hazard::global_out_of_bounds, site, [&] { return place(*a, at) + " is read-only"; });
    return false;
  }
  if (m.options().dependent && !a->constant && t.clock.counter(m.grid_agent()) == 0) {
    m.hazard(Hazard::grid_dependency, site, [&] { return place(*a, at); });
  }
  const std::uint16_t self = static_cast<std::uint16_t>(t.cta->index + 1);
  for (std::size_t i = at / 2; i <= (at + bytes - 1) / 2; ++i) {
    Cell& cell = a->cells[i];
    const std::uint16_t writer = cell.writer & static_cast<std::uint16_t>(~by_atomic);
    const bool foreign = writer != 0 && writer != self;
    const bool both_atomic = use == GlobalUse::atomic && (cell.writer & by_atomic) != 0;
    if (foreign && !both_atomic) {
      m.hazard(Hazard::global_unordered_access, site,
               [&] { return place(*a, at) + ", written by cta " + std::to_string(writer - 1); });
    }
    if (use == GlobalUse::read) {
      if (!a->initialised.empty() && !a->initialised[i]) {
        m.hazard(Hazard::uninitialised_read, site, [&] { return place(*a, at); });
      }
      cell.reader = cell.reader == 0 || cell.reader == self ? self : several;
      continue;
    }
    if (use == GlobalUse::write && a->access == Access::write_once && cell.writer != 0) {
      m.hazard(Hazard::global_unordered_access, site, [&] { return place(*a, at) + ", written twice"; });
    }
    if (cell.reader != 0 && cell.reader != self) {
      m.hazard(Hazard::global_unordered_access, site,
               [&] { return place(*a, at) + ", read by another cta"; });
    }
    cell.writer = use == GlobalUse::atomic ? self | by_atomic : self;
    if (!a->initialised.empty()) a->initialised[i] = true;
  }
  return true;
}

}  // namespace gemmule::model
