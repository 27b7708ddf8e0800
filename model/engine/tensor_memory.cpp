#include "engine/tensor_memory.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "engine/barriers.hpp"
#include "engine/tcgen05.hpp"

namespace gemmule::model {

TensorMemory::TensorMemory(std::uint32_t poison)
    : poison_(poison | 0x7fc00000u),
      words_(static_cast<std::size_t>(lanes) * columns, std::bit_cast<float>(poison_)),
      cells_(static_cast<std::size_t>(quarters) * columns) {}

bool TensorMemory::allocated(int first, int count) const {
  return std::any_of(allocations_.begin(), allocations_.end(), [&](const Allocation& a) {
    return first >= a.first && first + count <= a.first + a.count;
  });
}

bool TensorMemory::free(int first, int count) const {
  return std::none_of(allocations_.begin(), allocations_.end(), [&](const Allocation& a) {
    return first < a.first + a.count && a.first < first + count;
  });
}

std::vector<int> TensorMemory::places(int count) const {
  std::vector<int> all;
  for (int first = 0; first + count <= columns; first += 32) {
    if (free(first, count)) all.push_back(first);
  }
  return all;
}

bool TensorMemory::remove(int first, int count) {
  const auto found = std::find_if(allocations_.begin(), allocations_.end(),
                                  [&](const Allocation& a) { return a.first == first && a.count == count; });
  if (found == allocations_.end()) return false;
  allocations_.erase(found);
  for (int q = 0; q < quarters; ++q) {
    for (int column = first; column < first + count; ++column) cell(q, column) = Cell();
  }
  for (int lane = 0; lane < lanes; ++lane)
    std::fill_n(row(lane) + first, count, std::bit_cast<float>(poison_));
  return true;
}

TensorMemory& tensor_of(Cta& cta) {
  if (!cta.tensor) cta.tensor = std::make_unique<TensorMemory>(cta.machine->random().next());
  return *cta.tensor;
}

Cta* peer_of(Cta& cta) {
  const std::size_t rank = static_cast<std::size_t>(cta.rank) ^ 1u;
  return rank < cta.cluster->ctas.size() ? cta.cluster->ctas[rank].get() : nullptr;
}

namespace {

bool same_group(Thread& t, int ctas, Site site) {
  Machine& m = *t.machine;
  if (m.tensor_group() == 0) m.tensor_group() = ctas;
  if (m.tensor_group() == ctas) return true;
  m.hazard(Hazard::illegal_instruction, site, [&] {
    return t.label() + ": .cta_group::" + std::to_string(ctas) +
           " in a kernel whose other tcgen05 instructions have another";
  });
  return false;
}

}  // namespace

bool check_group(Thread& t, int ctas, Site site) {
  Machine& m = *t.machine;
  if (!same_group(t, ctas, site)) return false;
  if (ctas == 1) return true;
  const Cta* peer = peer_of(*t.cta);
  if (peer && peer->live > 0) return true;
  m.hazard(peer ? Hazard::out_of_bounds : Hazard::cluster_misuse, site, [&] {
    return t.label() +
           (peer ? ": the peer CTA has exited" : ": .cta_group::2 without a peer CTA in the cluster");
  });
  return false;
}

namespace {

std::string place(const Cta& cta, int quarter, int column) {
  return "column " + std::to_string(column) + ", lanes " + std::to_string(32 * quarter) +
         ".. of the tensor memory of cta " + std::to_string(cta.index);
}

struct WarpAgent {
  Warp* warp = nullptr;
  bool load = false;
};
WarpAgent find_warp(const Cluster& cluster, int agent) {
  for (const auto& cta : cluster.ctas) {
    for (const auto& warp : cta->warps) {
      if (warp->load_agent == agent) return {warp.get(), true};
      if (warp->store_agent == agent) return {warp.get(), false};
    }
  }
  return {};
}

/// Whether an operation that `t` starts now comes after `e`. The tcgen05 pipeline of one thread keeps its order.
bool ordered(const Thread& t, Epoch e, Epoch stamp) {
  if (!e || t.tensor_clock.sees(e)) return true;
  if (e.agent() == stamp.agent() && t.pipe && t.pipe->agent == e.agent()) return true;
  if (e.agent() == t.warp->load_agent) return e.counter() <= t.load_waits;
  if (e.agent() == t.warp->store_agent) return e.counter() <= t.store_waits;
  return false;
}

/// Why an access may not follow `e`.
Hazard conflict(const Thread& t, const Cta& cta, Epoch e, bool before_writes) {
  if (t.clock.sees(e)) return Hazard::missing_tensor_fence;
  const WarpAgent w = find_warp(*cta.cluster, e.agent());
  if (!w.warp) return before_writes ? Hazard::read_before_completion : Hazard::write_under_pending_read;
  bool waited = true, fenced = true;
  for (const Thread* lane : w.warp->lanes) {
    waited = waited && (w.load ? lane->load_waits : lane->store_waits) >= e.counter();
    fenced = fenced && lane->clock.sees(e);
  }
  if (!waited) return Hazard::missing_tensor_wait;
  return fenced || w.warp == t.warp ? Hazard::unordered_access : Hazard::missing_tensor_fence;
}

void check_after(Thread& t, Cta& cta, int quarter, int column, Epoch e, bool before_writes, bool writes,
                 Epoch stamp, Site site) {
  if (ordered(t, e, stamp)) return;
  t.machine->hazard(conflict(t, cta, e, before_writes), site, [&] {
    return t.label() + (writes ? " writes " : " reads ") + place(cta, quarter, column) +
           (before_writes ? ", written by " : ", read by ") + tensor_agent_name(cta, e);
  });
}

void remember_reader(Thread& t, TensorMemory::Cell& cell, Epoch stamp) {
  for (Epoch& reader : cell.readers) {
    if (reader.agent() == stamp.agent() || ordered(t, reader, stamp)) {
      reader = stamp;
      return;
    }
  }
  cell.readers.push_back(stamp);
}

}  // namespace

bool tensor_access(Thread& t, Cta& cta, const TensorAccess& access, Epoch stamp, Site site) {
  Machine& m = *t.machine;
  TensorMemory& memory = tensor_of(cta);
  if (!memory.allocated(access.first, access.count)) {
    m.hazard(Hazard::tensor_memory_misuse, site, [&] {
      return t.label() + ": columns " + std::to_string(access.first) + ".." +
             std::to_string(access.first + access.count - 1) + " of cta " + std::to_string(cta.index) +
             " are not allocated";
    });
    return false;
  }
  for (int q = 0; q < TensorMemory::quarters; ++q) {
    const std::uint32_t mask = access.lane_masks[q];
    if (mask == 0) continue;
    Epoch checked;
    for (int column = access.first; column < access.first + access.count; ++column) {
      TensorMemory::Cell& cell = memory.cell(q, column);
      if (access.read && (cell.written & mask) != mask) {
        m.hazard(Hazard::uninitialised_read, site,
                 [&] { return t.label() + ": " + place(cta, q, column) + " was never written"; });
      }
      if (!(cell.write == checked)) {  // neighbouring columns usually have the same writer
        check_after(t, cta, q, column, cell.write, true, access.write, stamp, site);
        checked = cell.write;
      }
      if (!access.write) {
        remember_reader(t, cell, stamp);
        continue;
      }
      for (const Epoch reader : cell.readers)
        check_after(t, cta, q, column, reader, false, true, stamp, site);
      cell.readers.clear();
      cell.write = stamp;
      cell.written |= mask;
    }
  }
  return true;
}

namespace {

bool check_count(Thread& t, std::uint32_t count, Site site) {
  if (count >= 32 && count <= TensorMemory::columns && std::has_single_bit(count)) return true;
  t.machine->hazard(Hazard::tensor_memory_misuse, site, [&] {
    return t.label() + ": " + std::to_string(count) + " columns: a power of two from 32 to 512 is allocated";
  });
  return false;
}

/// One of the places where `count` columns are free in each of the CTAs; -1 if there is none.
int choose_place(Machine& m, Cta& cta, Cta* peer, int count) {
  std::vector<int> places = tensor_of(cta).places(count);
  if (peer) std::erase_if(places, [&](int first) { return !tensor_of(*peer).free(first, count); });
  return places.empty() ? -1 : places[static_cast<std::size_t>(m.random().below(places.size()))];
}

/// Waits for the peer's warp to execute the same instruction. True in the second one, which acts for both.
bool pair_arrive(Thread& t, Op op, int count, Site site) {
  Machine& m = *t.machine;
  TensorMemory& own = tensor_of(*t.cta);
  TensorMemory& other = tensor_of(*peer_of(*t.cta));
  if (!other.pair_thread) {
    own.pair_thread = &t;
    own.pair_op = op;
    own.pair_count = count;
    while (own.pair_thread == &t) m.block(t, Wait::tensor_memory, static_cast<std::uint32_t>(op), 1, site);
    return false;
  }
  if (other.pair_op != op || other.pair_count != count) {
    m.hazard(Hazard::divergent_collective, site, [&] {
      return t.label() + ": " + name(op) + " of " + std::to_string(count) + " columns, in the peer CTA " +
             name(other.pair_op) + " of " + std::to_string(other.pair_count);
    });
  }
  return true;
}

void pair_release(Thread& t, int first) {
  TensorMemory& other = tensor_of(*peer_of(*t.cta));
  Thread* waiting = other.pair_thread;
  other.pair_first = first;
  other.pair_thread = nullptr;
  t.machine->wake(waiting);
}

void store_result(Thread& t, std::uint32_t to, int first, Site site) {
  std::uint8_t* p = generic_access(t, to, 4, true, site);
  if (!p) return;
  const std::uint32_t address = static_cast<std::uint32_t>(first);
  std::memcpy(p, &address, 4);
  for (Thread* lane : t.warp->lanes)
    lane->clock.set(t.agent, t.clock.counter(t.agent));  // the whole warp wrote it
}

bool check_allocation(Thread& t, std::uint32_t count, Site site) {
  Machine& m = *t.machine;
  if (!check_count(t, count, site)) return false;
  TensorMemory& memory = tensor_of(*t.cta);
  if (memory.relinquished) {
    m.hazard(Hazard::tensor_memory_misuse, site,
             [&] { return t.label() + ": allocates after relinquish_alloc_permit"; });
    return false;
  }
  if (static_cast<int>(count) > memory.last_count) {
    m.hazard(Hazard::tensor_memory_misuse, site, [&] {
      return t.label() + ": allocates " + std::to_string(count) + " columns after " +
             std::to_string(memory.last_count) + ": allocations must not grow";
    });
  }
  memory.last_count = static_cast<int>(count);
  return true;
}

/// For one CTA, or for both as the second warp of the pair. The other one finds the place in pair_first.
int allocate(Thread& t, int count, Cta* peer, Site site) {
  Machine& m = *t.machine;
  int first;
  while ((first = choose_place(m, *t.cta, peer, count)) < 0) {
    tensor_of(*t.cta).waiting.push_back(&t);
    if (peer) tensor_of(*peer).waiting.push_back(&t);
    m.block(t, Wait::tensor_memory, static_cast<std::uint32_t>(Op::tensor_alloc), 0, site);
    std::erase(tensor_of(*t.cta).waiting, &t);
    if (peer) std::erase(tensor_of(*peer).waiting, &t);
  }
  tensor_of(*t.cta).add(first, count);
  if (peer) tensor_of(*peer).add(first, count);
  return first;
}

void check_freed(Thread& t, int first, int count, Site site) {
  TensorMemory& memory = tensor_of(*t.cta);
  const auto known = [&](Epoch e) {
    if (!e) return true;
    for (const Thread* lane : t.warp->lanes) {
      const bool own = e.agent() == t.warp->load_agent    ? e.counter() <= lane->load_waits
                       : e.agent() == t.warp->store_agent ? e.counter() <= lane->store_waits
                                                          : false;
      if (!own && !lane->clock.sees(e)) return false;
    }
    return true;
  };
  for (int q = 0; q < TensorMemory::quarters; ++q) {
    for (int column = first; column < first + count; ++column) {
      const TensorMemory::Cell& cell = memory.cell(q, column);
      const auto report = [&](Epoch e, bool writes) {
        if (known(e)) return;
        t.machine->hazard(conflict(t, *t.cta, e, writes), site, [&] {
          return t.label() + " frees " + place(*t.cta, q, column) +
                 (writes ? ", written by " : ", read by ") + tensor_agent_name(*t.cta, e);
        });
      };
      report(cell.write, true);
      for (const Epoch reader : cell.readers) report(reader, false);
    }
  }
}

void remove(Thread& t, Cta& cta, int first, int count, Site site) {
  TensorMemory& memory = tensor_of(cta);
  if (!memory.remove(first, count)) {
    t.machine->hazard(Hazard::tensor_memory_misuse, site, [&] {
      return t.label() + ": frees columns " + std::to_string(first) + ".." +
             std::to_string(first + count - 1) + ", which is not an allocation";
    });
  }
  std::vector<Thread*> waiting = std::move(memory.waiting);
  memory.waiting.clear();
  t.machine->wake_all(waiting);
}

}  // namespace

void tensor_allocate(Thread& t, std::uint32_t to, std::uint32_t count, int ctas, Site site) {
  if (!warp_arrive(t, Op::tensor_alloc, std::uint64_t{to} << 32 | count, site)) return;
  if (check_group(t, ctas, site) && check_allocation(t, count, site)) {
    const int columns = static_cast<int>(count);
    int first;
    if (ctas == 1) {
      first = allocate(t, columns, nullptr, site);
    } else if (pair_arrive(t, Op::tensor_alloc, columns, site)) {
      first = allocate(t, columns, peer_of(*t.cta), site);
      pair_release(t, first);
    } else {
      first = tensor_of(*t.cta).pair_first;
    }
    store_result(t, to, first, site);
  }
  warp_release(t);
}

namespace {

/// The warps of a pair free and relinquish together: the first may have to wait for the second, or not (the seed decides;
/// then the peer may have exited already).
void pair_up(Thread& t, Op op, int count, int ctas, Site site) {
  if (ctas == 1 || t.machine->options().seed % 2 != 0 || !check_group(t, ctas, site)) return;
  if (pair_arrive(t, op, count, site)) pair_release(t, 0);
}

}  // namespace

void tensor_free(Thread& t, std::uint32_t address, std::uint32_t count, int ctas, Site site) {
  if (!warp_arrive(t, Op::tensor_dealloc, std::uint64_t{address} << 32 | count, site)) return;
  const int first = tensor_column(address), columns = static_cast<int>(count);
  if (same_group(t, ctas, site) && check_count(t, count, site)) {
    if (tensor_lane(address) != 0 || first + columns > TensorMemory::columns) {
      t.machine->hazard(Hazard::tensor_memory_misuse, site, [&] {
        return t.label() + ": frees what is no allocation (address " + std::to_string(address) + ")";
      });
    } else {
      check_freed(t, first, columns, site);
      pair_up(t, Op::tensor_dealloc, columns, ctas, site);
      remove(t, *t.cta, first, columns, site);
    }
  }
  warp_release(t);
}

void tensor_relinquish(Thread& t, int ctas, Site site) {
  if (!warp_arrive(t, Op::tensor_relinquish, 0, site)) return;
  if (same_group(t, ctas, site)) {
    pair_up(t, Op::tensor_relinquish, 0, ctas, site);
    tensor_of(*t.cta).relinquished = true;
  }
  warp_release(t);
}

namespace {

/// The part of the address space that a warp's 32x32b access names; false and reported if it is not the warp's.
bool check_owner(Thread& t, std::uint32_t address, int count, Site site) {
  const int lane = tensor_lane(address), column = tensor_column(address);
  if (lane == 32 * (t.warp->index % 4) && column + count <= TensorMemory::columns) return true;
  t.machine->hazard(Hazard::tensor_memory_misuse, site, [&] {
    return t.label() + ": accesses " + std::to_string(count) + " columns at lane " + std::to_string(lane) +
           ", column " + std::to_string(column) + "; this warp owns lanes " +
           std::to_string(32 * (t.warp->index % 4)) + "..+31";
  });
  return false;
}

/// The first lane to arrive does not know what the others have observed, so the last one checks for all.
bool warp_access(Thread& t, std::uint32_t address, int count, bool write, Epoch stamp, Site site) {
  if (!check_owner(t, address, count, site)) return false;
  TensorAccess access{.first = tensor_column(address), .count = count, .write = write};
  const int q = t.warp->index % 4;
  access.lane_masks[q] = 0xffffffffu;
  TensorMemory& memory = tensor_of(*t.cta);
  if (memory.allocated(access.first, count)) {
    for (Thread* lane : t.warp->lanes) {
      if (lane == &t) continue;
      Epoch checked;
      for (int column = access.first; column < access.first + count; ++column) {
        const TensorMemory::Cell& cell = memory.cell(q, column);
        if (!(cell.write == checked))
          check_after(*lane, *t.cta, q, column, cell.write, true, write, stamp, site);
        checked = cell.write;
        if (!write) continue;
        for (const Epoch reader : cell.readers)
          check_after(*lane, *t.cta, q, column, reader, false, true, stamp, site);
      }
    }
  }
  return tensor_access(t, *t.cta, access, stamp, site);
}

int warp_agent(Thread& t, int& agent) {
  if (agent < 0) agent = t.machine->take_agent(*t.cta);
  return agent;
}

void fetch(const Thread& t, float* values, int count, std::uint32_t from) {
  std::copy_n(tensor_of(*t.cta).row(tensor_lane(from) + t.lane) + tensor_column(from), count, values);
}

}  // namespace

void tensor_load(Thread& t, float* values, TensorRowState& state, int count, std::uint32_t from, Site site) {
  std::fill_n(values, count, std::numeric_limits<float>::quiet_NaN());
  state = {&t, from, t.load_waits};
  t.collective_value = reinterpret_cast<std::uint64_t>(values);
  t.collective_result = reinterpret_cast<std::uint64_t>(&state);
  const std::uint64_t key =
      from | static_cast<std::uint64_t>(count) << 32 | static_cast<std::uint64_t>(t.load_waits) << 42;
  if (!warp_arrive(t, Op::tensor_load, key, site)) return;
  const Epoch stamp(warp_agent(t, t.warp->load_agent), t.load_waits + 1);
  if (warp_access(t, from, count, false, stamp, site)) {
    const bool late = t.machine->random().one_in(2);
    for (Thread* lane : t.warp->lanes) {
      auto& row = *reinterpret_cast<TensorRowState*>(lane->collective_result);
      row.late = late;
      for (int i = 0; i < count; ++i) {
        const TensorMemory::Cell& cell = tensor_of(*t.cta).cell(t.warp->index % 4, tensor_column(from) + i);
        if ((cell.written >> lane->lane & 1u) == 0) row.undefined[i / 32] |= 1u << i % 32;
      }
      // Until the wait names the row, tensor_row_touched() reports whoever reads it.
      if (!late) fetch(*lane, reinterpret_cast<float*>(lane->collective_value), count, from);
    }
  }
  warp_release(t);
}

void tensor_wait_load(Thread& t, float* values, TensorRowState& state, int count) {
  ++t.load_waits;
  if (state.load_group < 0) return;
  state.waited = true;
  const bool inside = tensor_lane(state.address) == 32 * (t.warp->index % 4) &&
                      tensor_column(state.address) + count <= TensorMemory::columns;
  if (state.late && inside) fetch(t, values, count, state.address);
  state.late = false;
}

void tensor_row_set(TensorRowState& state, float* values, int index, float x) {
  state.set[index / 32] |= 1u << index % 32;
  values[index] = x;
}

void tensor_row_touched(const TensorRowState& state, int index, Site site) {
  if (state.set[index / 32] >> index % 32 & 1u) return;
  Thread& t = current();
  if (state.load_group < 0) {
    t.machine->hazard(Hazard::uninitialised_read, site,
                      [&] { return t.label() + ": registers never loaded"; });
  } else if (!state.waited) {
    t.machine->hazard(Hazard::missing_tensor_wait, site, [&] {
      return t.label() + ": registers of a tcgen05.ld are read, and no wait::ld since has named them";
    });
  } else if (state.undefined[index / 32] >> index % 32 & 1u) {
    t.machine->hazard(Hazard::uninitialised_read, site, [&] {
      return t.label() + ": register " + std::to_string(index) + " comes from tensor memory nobody wrote";
    });
  }
}

void tensor_store(Thread& t, const float* values, int count, std::uint32_t to, Site site) {
  t.collective_value = reinterpret_cast<std::uint64_t>(values);
  const std::uint64_t key =
      to | static_cast<std::uint64_t>(count) << 32 | static_cast<std::uint64_t>(t.store_waits) << 42;
  if (!warp_arrive(t, Op::tensor_store, key, site)) return;
  const Epoch stamp(warp_agent(t, t.warp->store_agent), t.store_waits + 1);
  if (warp_access(t, to, count, true, stamp, site)) {
    for (const Thread* lane : t.warp->lanes) {
      std::copy_n(reinterpret_cast<const float*>(lane->collective_value), count,
                  tensor_of(*t.cta).row(tensor_lane(to) + lane->lane) + tensor_column(to));
    }
  }
  warp_release(t);
}

void tensor_wait_store(Thread& t) {
  ++t.store_waits;
}

void tensor_fence_before(Thread& t) {
  if (t.warp->load_agent >= 0) t.clock.set(t.warp->load_agent, t.load_waits);
  if (t.warp->store_agent >= 0) t.clock.set(t.warp->store_agent, t.store_waits);
}

void tensor_fence_after(Thread& t) {
  t.tensor_clock = t.clock;
}

void tensor_cta_ended(Cta& cta) {
  Machine& m = *cta.machine;
  if (cta.tensor && !cta.tensor->allocations().empty()) {
    m.hazard(Hazard::tensor_memory_misuse, Site{}, [&] {
      const TensorMemory::Allocation& a = cta.tensor->allocations().front();
      return "cta " + std::to_string(cta.index) + " ended with " + std::to_string(a.count) +
             " columns of tensor memory allocated (no tcgen05.dealloc)";
    });
  }
  for (const auto& other : cta.cluster->ctas) {
    for (const auto& t : other->threads) {
      if (!t->pipe || !t->pipe->touches(cta)) continue;
      m.hazard(Hazard::exit_while_pending, Site{}, [&] {
        return "cta " + std::to_string(cta.index) + " ended under tcgen05 operations of " + t->label() +
               " that have not completed";
      });
    }
  }
}

std::string tensor_agent_name(const Cta& cta, Epoch e) {
  const WarpAgent w = find_warp(*cta.cluster, e.agent());
  if (w.warp) {
    return std::string(w.load ? "a tcgen05.ld" : "a tcgen05.st") + " of cta " +
           std::to_string(w.warp->cta->index) + " warp " + std::to_string(w.warp->index) + " (before wait " +
           std::to_string(e.counter() - 1) + ")";
  }
  for (const auto& other : cta.cluster->ctas) {
    for (const auto& t : other->threads) {
      if (!t->pipe || t->pipe->agent != e.agent()) continue;
      return "a tcgen05 operation of " + t->label() +
             (e.counter() <= t->pipe->commits ? " (commit " + std::to_string(e.counter() - 1) + ")"
                                              : " (not committed)");
    }
  }
  return {};
}

}  // namespace gemmule::model
