#include "engine/shared_memory.hpp"

#include <bit>
#include <cstring>
#include <stdexcept>
#include <string>

#include "engine/machine.hpp"
#include "engine/tcgen05.hpp"
#include "engine/tensor_memory.hpp"

namespace gemmule::model {

void SharedMemory::resize(std::uint32_t bytes, int granule, std::uint64_t poison) {
  if (granule < 1 || granule > 16 || !std::has_single_bit(static_cast<unsigned>(granule))) {
    throw std::invalid_argument("granule must be 1, 2, 4, 8 or 16");
  }
  size_ = bytes;
  shift_ = std::countr_zero(static_cast<unsigned>(granule));
  poison_ = poison | 0x7f807f807f807f80ull;  // NaN as float, bfloat16 and half
  bytes_.resize(bytes);
  cells_.assign((bytes >> shift_) + 1, Cell());
  overflow_.clear();
  free_overflow_.clear();
  SharedMemory::poison(shared_base, bytes);
}

void SharedMemory::poison(std::uint32_t offset, std::uint32_t bytes) {
  std::uint8_t* to = at(offset);
  std::uint32_t i = 0;
  for (; i + 8 <= bytes; i += 8) std::memcpy(to + i, &poison_, 8);
  for (; i < bytes; ++i) to[i] = 0xff;
}

void SharedMemory::add_reader(Cell& cell, Epoch reader, const Clock& clock) {
  for (Epoch& slot : cell.read) {
    if (!slot || slot == reader || slot.agent() == reader.agent() || clock.sees(slot)) {
      slot = reader;
      return;
    }
  }
  if (cell.more < 0) {
    if (free_overflow_.empty()) {
      free_overflow_.push_back(static_cast<int>(overflow_.size()));
      overflow_.emplace_back();
    }
    cell.more = free_overflow_.back();
    free_overflow_.pop_back();
  }
  for (Epoch& e : overflow_[static_cast<std::size_t>(cell.more)]) {
    if (e.agent() == reader.agent() || clock.sees(e)) {
      e = reader;
      return;
    }
  }
  overflow_[static_cast<std::size_t>(cell.more)].push_back(reader);
}

void SharedMemory::release(Cell& cell) {
  overflow_[static_cast<std::size_t>(cell.more)].clear();
  free_overflow_.push_back(cell.more);
  cell.more = -1;
}

namespace {

bool is_thread(const Cta& cta, Epoch e) {
  const int local = e.agent() % (static_cast<int>(cta.threads.size()) + async_agents);
  return local < static_cast<int>(cta.threads.size());
}

std::string hex(std::uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%x", value);
  return text;
}

std::string who(const Cta& cta, Epoch e) {
  const int per_cta = static_cast<int>(cta.threads.size()) + async_agents;
  const Cta& owner = *cta.cluster->ctas[static_cast<std::size_t>(e.agent() / per_cta)];
  const int local = e.agent() % per_cta;
  if (local < static_cast<int>(owner.threads.size())) {
    return owner.threads[static_cast<std::size_t>(local)]->label();
  }
  for (const auto& barrier : owner.mbarriers) {
    if (barrier->agent == e.agent()) {
      return "the bulk copy that completes phase " + std::to_string(e.counter() - 1) +
             " of the mbarrier at " + hex(barrier->address) + " of cta " + std::to_string(owner.index);
    }
  }
  for (const auto& group : owner.groups) {
    if (group->agent == e.agent()) {
      return "wgmma group " + std::to_string(e.counter() - 1) + " of cta " + std::to_string(owner.index) +
             " warpgroup " + std::to_string(group->index);
    }
  }
  if (const std::string tensor = tensor_agent_name(owner, e); !tensor.empty()) return tensor;
  return "bulk store group " + std::to_string(e.counter() - 1) + " of cta " + std::to_string(owner.index);
}

std::string place(const Cta& cta, std::uint32_t offset, std::uint32_t bytes) {
  return std::to_string(bytes) + " bytes at " + hex(offset) + " of cta " + std::to_string(cta.index);
}

bool bounds(Machine& m, const Thread& t, Cta& cta, std::uint32_t offset, std::uint32_t bytes, Site site) {
  if (cta.shared.contains(offset, bytes)) return true;
  m.hazard(Hazard::out_of_bounds, site, [&] {
    return t.label() + ": " + place(cta, offset, bytes) + "; shared memory is [" + hex(shared_base) + ", " +
           hex(cta.shared.end()) + ")";
  });
  return false;
}

/// Why an access may not follow `before`, if it may not.
Hazard conflict(const Cta& cta, Epoch before, bool before_writes) {
  if (is_thread(cta, before)) return Hazard::unordered_access;
  return before_writes ? Hazard::read_before_completion : Hazard::write_under_pending_read;
}

}  // namespace

Cta* resolve(Thread& t, std::uint32_t address, std::uint32_t& offset) {
  offset = address & ((1u << rank_shift) - 1);
  const std::uint32_t window = address >> rank_shift;
  if (window == 0) return t.cta;
  Cluster& cluster = *t.cta->cluster;
  return window - 1 < cluster.ctas.size() ? cluster.ctas[window - 1].get() : nullptr;
}

std::uint32_t map_rank(std::uint32_t address, std::uint32_t rank) {
  return (address & ((1u << rank_shift) - 1)) | (rank + 1) << rank_shift;
}

std::uint8_t* generic_access(Thread& t, std::uint32_t address, std::uint32_t bytes, bool write, Site site) {
  Machine& m = *t.machine;
  std::uint32_t offset = 0;
  Cta* cta = resolve(t, address, offset);
  if (!cta) {
    m.hazard(Hazard::out_of_bounds, site, [&] { return t.label() + ": no such CTA: " + hex(address); });
    return nullptr;
  }
  if (offset % bytes != 0) {
    m.hazard(Hazard::misaligned, site, [&] { return t.label() + ": " + place(*cta, offset, bytes); });
    return nullptr;
  }
  if (!bounds(m, t, *cta, offset, bytes, site)) return nullptr;
  SharedMemory& shared = cta->shared;
  const std::uint32_t last = shared.last_cell(offset, bytes);
  const Epoch stamp = t.epoch();
  for (std::uint32_t i = shared.first_cell(offset); i <= last; ++i) {
    SharedMemory::Cell& cell = shared.cell(i);
    if (!cell.write && !write) {
      m.hazard(Hazard::uninitialised_read, site,
               [&] { return t.label() + ": " + place(*cta, offset, bytes); });
    }
    if (!t.clock.sees(cell.write)) {
      const Epoch before = cell.write;
      m.hazard(conflict(*cta, before, true), site, [&] {
        return t.label() + (write ? " writes " : " reads ") + place(*cta, offset, bytes) + ", written by " +
               who(*cta, before);
      });
    }
    if (write) {
      shared.each_reader(cell, [&](Epoch reader) {
        if (t.clock.sees(reader)) return;
        m.hazard(conflict(*cta, reader, false), site, [&] {
          return t.label() + " writes " + place(*cta, offset, bytes) + ", read by " + who(*cta, reader);
        });
      });
      shared.set_writer(cell, stamp);
    } else {
      shared.add_reader(cell, stamp, t.clock);
    }
  }
  return shared.at(offset);
}

namespace {

/// Whether the async proxy may read bytes last written at `before`, on behalf of every issuer.
void check_source(Machine& m, Thread* const* issuers, int count, Cta& cta, std::uint32_t offset, Epoch before,
                  Site site) {
  if (!before) {
    m.hazard(Hazard::uninitialised_read, site,
             [&] { return issuers[0]->label() + ": " + place(cta, offset, 1u); });
    return;
  }
  const bool generic = is_thread(cta, before);
  for (int k = 0; k < count; ++k) {
    const Thread& t = *issuers[k];
    const bool seen = t.clock.sees(before);
    if (seen && (!generic || t.clock.sees_fenced(before))) continue;
    m.hazard(seen ? Hazard::missing_proxy_fence : conflict(cta, before, true), site, [&] {
      return t.label() + " lets the async proxy read " + place(cta, offset, 1u) + ", written by " +
             who(cta, before);
    });
    return;
  }
}

bool read_span(Machine& m, Thread* const* issuers, int count, Cta& cta, std::uint32_t offset,
               std::uint32_t bytes, Epoch stamp, Epoch& checked, Site site) {
  if (!bounds(m, *issuers[0], cta, offset, bytes, site)) return false;
  SharedMemory& shared = cta.shared;
  const std::uint32_t last = shared.last_cell(offset, bytes);
  for (std::uint32_t i = shared.first_cell(offset); i <= last; ++i) {
    SharedMemory::Cell& cell = shared.cell(i);
    if (!cell.write || !(cell.write == checked)) {  // neighbouring cells usually have the same writer
      check_source(m, issuers, count, cta, shared.address_of_cell(i), cell.write, site);
      checked = cell.write;
    }
    shared.add_reader(cell, stamp, issuers[0]->clock);
  }
  return true;
}

}  // namespace

bool async_read_chunks(Machine& m, Thread* const* issuers, int count, Cta& cta,
                       const std::vector<std::uint32_t>& chunks, Epoch stamp, Site site) {
  Epoch checked;
  for (std::uint32_t chunk : chunks) {
    if (!read_span(m, issuers, count, cta, chunk, 16, stamp, checked, site)) return false;
  }
  return true;
}

bool async_write(Machine& m, Thread& issuer, Cta& cta, std::uint32_t offset, std::uint32_t bytes, Epoch stamp,
                 Site site) {
  if (!bounds(m, issuer, cta, offset, bytes, site)) return false;
  SharedMemory& shared = cta.shared;
  const std::uint32_t last = shared.last_cell(offset, bytes);
  for (std::uint32_t i = shared.first_cell(offset); i <= last; ++i) {
    SharedMemory::Cell& cell = shared.cell(i);
    const Epoch before = cell.write;
    if (before && !issuer.clock.sees(before)) {
      m.hazard(conflict(cta, before, true), site, [&] {
        return issuer.label() + " lets the async proxy write " + place(cta, offset, bytes) + ", written by " +
               who(cta, before);
      });
    } else if (before && is_thread(cta, before) && !issuer.clock.sees_fenced(before)) {
      m.hazard(Hazard::missing_proxy_fence, site, [&] {
        return issuer.label() + " lets the async proxy write " + place(cta, offset, bytes) + ", written by " +
               who(cta, before);
      });
    }
    shared.each_reader(cell, [&](Epoch reader) {
      if (issuer.clock.sees(reader)) return;
      m.hazard(conflict(cta, reader, false), site, [&] {
        return issuer.label() + " lets the async proxy write " + place(cta, offset, bytes) + ", read by " +
               who(cta, reader);
      });
    });
    shared.set_writer(cell, stamp);
  }
  return true;
}

}  // namespace gemmule::model
