#include "engine/barriers.hpp"

#include <algorithm>
#include <bit>

namespace gemmule::model {

namespace {

Mbarrier* find(Cta& cta, std::uint32_t offset) {
  for (auto& barrier : cta.mbarriers) {
    if (barrier->address == offset) return barrier.get();
  }
  return nullptr;
}

std::string at(std::uint32_t address) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%x", address);
  return text;
}

/// The barrier at an address, initialised where `t` can know it; null and reported otherwise.
Mbarrier* usable(Thread& t, Cta& cta, std::uint32_t offset, Site site) {
  Mbarrier* barrier = find(cta, offset);
  if (!barrier) {
    t.machine->hazard(Hazard::mbarrier_misuse, site,
                      [&] { return t.label() + ": no mbarrier was initialised at " + at(offset); });
  } else if (!t.clock.sees(barrier->init)) {
    t.machine->hazard(Hazard::mbarrier_misuse, site, [&] {
      return t.label() + ": nothing orders the initialisation of the mbarrier at " + at(offset) + " by " +
             barrier->init_thread->label() + " before this use";
    });
  }
  return barrier;
}

void require_visible(Thread& t, const Mbarrier& b, Site site) {
  if (b.fenced) return;
  t.machine->hazard(Hazard::mbarrier_misuse, site, [&] {
    return t.label() + ": the mbarrier at " + at(b.address) +
           " was not made visible to the cluster (fence.mbarrier_init)";
  });
}

/// Whether the phase in progress takes one more arrival, of a thread or (null) of a tcgen05.commit.
bool room(Machine& m, const Mbarrier& b, const Thread* t, Site site) {
  if (b.pending > 0) return true;
  m.hazard(Hazard::mbarrier_misuse, site, [&] {
    return (t ? t->label() : "tcgen05.commit") + ": more than " + std::to_string(b.expected) +
           " arrivals in phase " + std::to_string(b.phase) + " at " + at(b.address);
  });
  return false;
}

void complete_if_due(Machine& m, Mbarrier& b) {
  if (b.pending != 0 || b.tx != 0) return;
  b.completed.join(b.arriving);
  b.completed.set(b.agent, b.phase + 1);
  ++b.phase;
  b.pending = b.expected;
  m.wake_all(b.waiting);
}

}  // namespace

void mbarrier_init(Thread& t, std::uint32_t address, std::uint32_t count, Site site) {
  Machine& m = *t.machine;
  if (count < 1 || count >= 1u << 20) {
    m.hazard(Hazard::mbarrier_misuse, site, [&] {
      return t.label() + ": arrival count " + std::to_string(count) + " is not in 1..1048575";
    });
    return;
  }
  if (!generic_access(t, address, 8, true, site)) return;
  Mbarrier* b = find(*t.cta, address);
  if (b) {
    m.hazard(Hazard::mbarrier_misuse, site,
             [&] { return t.label() + ": the mbarrier at " + at(address) + " is initialised twice"; });
    return;
  }
  auto fresh = std::make_unique<Mbarrier>();
  b = fresh.get();
  b->cta = t.cta;
  b->address = address;
  b->agent = m.take_agent(*t.cta);
  b->slot = static_cast<int>(t.cta->mbarriers.size());
  b->expected = b->pending = static_cast<int>(count);
  b->init = t.epoch();
  b->init_thread = &t;
  b->arriving.resize(m.agents());
  b->completed.resize(m.agents());
  t.cta->mbarriers.push_back(std::move(fresh));
}

void fence_mbarrier_init(Thread& t) {
  for (auto& b : t.cta->mbarriers) b->fenced = b->fenced || b->init_thread == &t;
}

void mbarrier_arrive(Thread& t, std::uint32_t address, std::int64_t bytes, Site site) {
  Machine& m = *t.machine;
  std::uint32_t offset = 0;
  Cta* cta = resolve(t, address, offset);
  if (!cta || (cta != t.cta && cta->live == 0)) {
    m.hazard(Hazard::out_of_bounds, site, [&] {
      return t.label() + ": arrival at " + at(address) + " of a CTA that is not there (any more)";
    });
    return;
  }
  Mbarrier* b = usable(t, *cta, offset, site);
  if (!b) return;
  if (cta != t.cta) require_visible(t, *b, site);
  if (bytes > 0) b->tx += bytes;
  if (b->tx >= 1 << 20) {
    m.hazard(Hazard::mbarrier_misuse, site,
             [&] { return t.label() + ": more than 2^20 - 1 bytes expected at " + at(offset); });
  }
  if (!room(m, *b, &t, site)) return;
  --b->pending;
  b->arriving.join(t.clock);
  t.released = true;
  complete_if_due(m, *b);
}

Mbarrier* commit_barrier(Thread& t, Cta& cta, std::uint32_t offset, Site site) {
  Mbarrier* b = usable(t, cta, offset, site);
  if (b && &cta != t.cta) require_visible(t, *b, site);
  return b;
}

void async_arrive(Machine& m, Mbarrier& b, const Clock& clock, Site site) {
  if (!room(m, b, nullptr, site)) return;
  --b.pending;
  b.arriving.join(clock);
  complete_if_due(m, b);
}

namespace {

/// The barrier that `t` waits for or tests; null (and reported) if it cannot.
Mbarrier* own_barrier(Thread& t, std::uint32_t address, std::uint32_t parity, std::uint32_t& offset,
                      Site site) {
  Machine& m = *t.machine;
  if (resolve(t, address, offset) != t.cta) {
    m.hazard(Hazard::mbarrier_misuse, site, [&] { return t.label() + ": waits on another CTA's mbarrier"; });
    return nullptr;
  }
  Mbarrier* b = usable(t, *t.cta, offset, site);
  if (b && parity > 1)
    m.hazard(Hazard::wrong_phase, site, [&] { return t.label() + ": parity " + std::to_string(parity); });
  return b;
}

bool completed(const Mbarrier& b, std::uint32_t parity) {
  return (static_cast<std::uint32_t>(b.phase) & 1u) != (parity & 1u);
}

}  // namespace

void mbarrier_wait(Thread& t, std::uint32_t address, std::uint32_t parity, Site site) {
  std::uint32_t offset = 0;
  Mbarrier* b = own_barrier(t, address, parity, offset, site);
  if (!b) return;
  while (!completed(*b, parity)) {
    b->waiting.push_back(&t);
    t.machine->block(t, Wait::mbarrier, offset, parity, site);
  }
  if (t.observed.size() <= static_cast<std::size_t>(b->slot)) t.observed.resize(t.cta->mbarriers.size(), -1);
  std::int32_t& observed = t.observed[static_cast<std::size_t>(b->slot)];
  if (observed == b->phase) {
    t.machine->hazard(Hazard::wrong_phase, site, [&] {
      return t.label() + ": the wait for parity " + std::to_string(parity) + " at " + at(offset) +
             " is satisfied by phase " + std::to_string(b->phase - 1) + ", which it had already waited for";
    });
  }
  observed = b->phase;
  t.clock.join(b->completed);
}

bool mbarrier_test(Thread& t, std::uint32_t address, std::uint32_t parity, Site site) {
  std::uint32_t offset = 0;
  Mbarrier* b = own_barrier(t, address, parity, offset, site);
  if (!b || !completed(*b, parity) || t.machine->random().one_in(4)) return false;
  t.clock.join(b->completed);
  return true;
}

Mbarrier* completion_barrier(Thread& t, Cta& cta, std::uint32_t offset, Site site) {
  Mbarrier* b = usable(t, cta, offset, site);
  if (b && !b->fenced) {
    t.machine->hazard(Hazard::mbarrier_misuse, site, [&] {
      return t.label() + ": the mbarrier at " + at(offset) +
             " was not made visible to the async proxy after its initialisation (fence.mbarrier_init)";
    });
  }
  return b;
}

void complete_bytes(Machine& m, Mbarrier& b, int phase, std::int64_t bytes, Site site) {
  if (b.phase != phase) {
    m.hazard(Hazard::mbarrier_misuse, site, [&] {
      return std::to_string(bytes) + " bytes for phase " + std::to_string(phase) + " of the mbarrier at " +
             at(b.address) + " of cta " + std::to_string(b.cta->index) + " arrive in phase " +
             std::to_string(b.phase) + ": it did not expect them";
    });
  }
  b.tx -= bytes;
  complete_if_due(m, b);
}

void named_barrier(Thread& t, std::uint32_t id, std::uint32_t threads, bool wait, Site site) {
  Machine& m = *t.machine;
  if (id > 15 || threads == 0 || threads % 32 != 0 ||
      threads > static_cast<std::uint32_t>(m.options().threads)) {
    m.hazard(Hazard::named_barrier_misuse, site, [&] {
      return t.label() + ": barrier " + std::to_string(id) + " of " + std::to_string(threads) +
             " threads in a CTA of " + std::to_string(m.options().threads);
    });
    return;
  }
  NamedBarrier& b = t.cta->barriers[id];
  if (b.arrived == 0) {
    b.expected = static_cast<int>(threads);
    b.clock.resize(m.agents());
  } else if (b.expected != static_cast<int>(threads)) {
    m.hazard(Hazard::named_barrier_misuse, site, [&] {
      return t.label() + ": barrier " + std::to_string(id) + " expects " + std::to_string(b.expected) +
             " threads, this one says " + std::to_string(threads);
    });
  }
  ++b.arrived;
  b.clock.join(t.clock);
  t.released = true;
  if (b.arrived < b.expected) {
    if (!wait) return;
    b.waiting.push_back(&t);
    m.block(t, Wait::named_barrier, id, threads, site);
    return;
  }
  b.arrived = 0;
  for (Thread* waiting : b.waiting) waiting->clock.join(b.clock);
  if (wait) t.clock.join(b.clock);
  m.wake_all(b.waiting);
}

namespace {

void complete_cluster_barrier(Machine& m, Cluster& cluster) {
  if (cluster.arrived == 0 || cluster.arrived < cluster.expected) return;
  cluster.arrived = 0;
  cluster.completed.join(cluster.arriving);
  ++cluster.phase;
  m.wake_all(cluster.waiting);
}

}  // namespace

void cluster_arrive(Thread& t) {
  Cluster& cluster = *t.cta->cluster;
  t.cluster_phase = cluster.phase;
  t.cluster_arrived = true;
  cluster.arriving.join(t.clock);
  t.released = true;
  ++cluster.arrived;
  complete_cluster_barrier(*t.machine, cluster);
}

void require_cluster(Thread& t, Site site) {
  if (t.machine->options().cluster > 1) return;
  t.machine->hazard(Hazard::cluster_misuse, site, [&] { return t.label() + ": the launch has no clusters"; });
}

std::vector<Cta*> multicast_targets(Thread& t, std::optional<std::uint32_t> mask, Site site) {
  if (!mask) return {t.cta};
  require_cluster(t, site);
  Machine& m = *t.machine;
  if (!m.enter(Op::multicast_mask, site)) *mask &= ~std::bit_floor(*mask);
  const auto& ctas = t.cta->cluster->ctas;
  const auto refuse = [&](Hazard kind, const std::string& why) {
    m.hazard(kind, site, [&] { return t.label() + ": a multicast " + why; });
  };
  if (*mask == 0) refuse(Hazard::cluster_misuse, "to no CTA");
  std::vector<Cta*> targets;
  for (std::uint32_t rank = 0; rank < 16; ++rank) {
    if ((*mask >> rank & 1u) == 0) continue;
    const std::string to = "to CTA " + std::to_string(rank);
    if (rank >= ctas.size())
      refuse(Hazard::cluster_misuse, to + " of a cluster of " + std::to_string(ctas.size()));
    else if (ctas[rank]->live == 0)
      refuse(Hazard::out_of_bounds, to + ", which is not there any more");
    else
      targets.push_back(ctas[rank].get());
  }
  return targets;
}

void cluster_exit(Thread& t) {
  --t.cta->cluster->expected;
  complete_cluster_barrier(*t.machine, *t.cta->cluster);
}

void cluster_wait(Thread& t, Site site) {
  Cluster& cluster = *t.cta->cluster;
  if (!t.cluster_arrived) {
    t.machine->hazard(Hazard::divergent_collective, site,
                      [&] { return t.label() + ": barrier.cluster.wait without arrive"; });
    return;
  }
  t.cluster_arrived = false;
  while (cluster.phase == t.cluster_phase) {
    cluster.waiting.push_back(&t);
    t.machine->block(t, Wait::cluster, 0, 0, site);
  }
  t.clock.join(cluster.completed);
}

namespace {

void combine(Warp& warp, WarpOp op, std::uint32_t mask, Machine& m) {
  std::uint32_t ballot = 0;
  if (op == WarpOp::ballot) {
    for (Thread* t : warp.lanes) {
      if ((mask >> t->lane & 1u) && t->collective_value) ballot |= 1u << t->lane;
    }
  }
  int elected = static_cast<int>((m.options().seed * 7 + static_cast<std::uint64_t>(warp.index) * 13) % 32);
  while ((mask >> elected & 1u) == 0) elected = (elected + 1) % 32;
  Clock joined;
  if (op == WarpOp::sync) {
    joined = warp.lanes[static_cast<std::size_t>(std::countr_zero(mask))]->clock;
    for (Thread* t : warp.lanes) {
      if (mask >> t->lane & 1u) joined.join(t->clock);
    }
  }
  for (Thread* t : warp.lanes) {
    if ((mask >> t->lane & 1u) == 0) continue;
    const auto value_of = [&](std::uint32_t lane) {
      return mask >> lane & 1u ? warp.lanes[lane]->collective_value : t->collective_value;
    };
    switch (op) {
      case WarpOp::sync:
        t->clock = joined;
        t->released = true;
        break;
      case WarpOp::shuffle_xor:
      case WarpOp::shuffle_index:
        t->collective_result = value_of(t->wait_b & 31u);
        break;
      case WarpOp::ballot:
        t->collective_result = ballot;
        break;
      case WarpOp::elect:
        t->collective_result = t->lane == elected;
        break;
    }
  }
}

}  // namespace

std::uint64_t warp_collective(Thread& t, WarpOp op, std::uint32_t mask, std::uint64_t value,
                              std::uint32_t argument, Site site) {
  static constexpr Op ops[] = {Op::warp_sync, Op::shuffle, Op::shuffle, Op::shuffle, Op::elect};
  const Op kind = ops[static_cast<std::size_t>(op)];
  Machine& m = *t.machine;
  Warp& warp = *t.warp;
  if (warp.lanes.size() < 32) mask &= (1u << warp.lanes.size()) - 1;
  t.collective_value = value;
  const std::uint32_t source =
      op == WarpOp::shuffle_xor ? static_cast<std::uint32_t>(t.lane) ^ argument : argument;
  auto slot = std::find_if(warp.collectives.begin(), warp.collectives.end(), [&](const Collective& c) {
    return c.mask == mask && (c.arrived >> t.lane & 1u) == 0;
  });
  if (slot == warp.collectives.end()) {
    warp.collectives.push_back({kind, mask, 0, site});
    slot = warp.collectives.end() - 1;
  } else if (slot->op != kind || !(slot->site == site)) {
    m.hazard(Hazard::divergent_collective, site, [&] {
      return t.label() + " executes " + name(kind) + ", other lanes " + name(slot->op) + " at " +
             to_string(slot->site);
    });
  }
  slot->arrived |= 1u << t.lane;
  if (slot->arrived != mask) {
    m.block(t, Wait::collective, mask, source, site);
    return t.collective_result;
  }
  warp.collectives.erase(slot);
  t.wait_b = source;
  combine(warp, op, mask, m);
  for (Thread* other : warp.lanes) {
    if (other != &t && (mask >> other->lane & 1u)) m.wake(other);
  }
  return t.collective_result;
}

bool warpgroup_arrive(Thread& t, Op op, std::uint64_t key, Site site) {
  Machine& m = *t.machine;
  Warpgroup& g = *t.group;
  if (g.threads.size() != 128) {
    m.hazard(Hazard::divergent_collective, site,
             [&] { return t.label() + ": " + name(op) + " needs a warpgroup of 128 threads"; });
    return false;
  }
  if (g.arrived == 0) {
    g.op = op;
    g.key = key;
  } else if (g.op != op || g.key != key) {
    m.hazard(Hazard::divergent_collective, site, [&] {
      return t.label() + ": " + name(op) + " with other operands than (or instead of) " + name(g.op) +
             " in other threads of the warpgroup";
    });
  }
  if (++g.arrived == 128) {
    g.arrived = 0;
    return true;
  }
  g.waiting.push_back(&t);
  m.block(t, Wait::warpgroup, static_cast<std::uint32_t>(op), 0, site);
  return false;
}

void warpgroup_release(Thread& t) {
  t.machine->wake_all(t.group->waiting);
}

bool warp_arrive(Thread& t, Op op, std::uint64_t key, Site site) {
  Machine& m = *t.machine;
  Warp& w = *t.warp;
  if (w.lanes.size() != 32) {
    m.hazard(Hazard::divergent_collective, site,
             [&] { return t.label() + ": " + name(op) + " needs a warp of 32 threads"; });
    return false;
  }
  if (w.arrived == 0) {
    w.op = op;
    w.key = key;
  } else if (w.op != op || w.key != key) {
    m.hazard(Hazard::divergent_collective, site, [&] {
      return t.label() + ": " + name(op) + " with other operands than (or instead of) " + name(w.op) +
             " in other lanes";
    });
  }
  if (++w.arrived == 32) {
    w.arrived = 0;
    return true;
  }
  w.waiting.push_back(&t);
  m.block(t, Wait::collective, 0xffffffffu, 0, site);
  return false;
}

void warp_release(Thread& t) {
  t.machine->wake_all(t.warp->waiting);
}

void set_registers(Thread& t, int registers, bool raise, Site site) {
  if (!warpgroup_arrive(t, Op::setmaxnreg, static_cast<std::uint64_t>(registers) * 2 + raise, site)) return;
  Machine& m = *t.machine;
  Warpgroup& g = *t.group;
  const int change = (registers - g.registers) * 128;
  if (registers % 8 != 0 || registers < 24 || registers > 256 || (raise ? change < 0 : change > 0)) {
    m.hazard(Hazard::register_ledger, site, [&] {
      return t.label() + (raise ? ": raises from " : ": lowers from ") + std::to_string(g.registers) +
             " to " + std::to_string(registers) + " registers";
    });
  }
  while (t.cta->free_registers < change) {
    t.cta->waiting_for_registers.push_back(&t);
    m.block(t, Wait::registers, static_cast<std::uint32_t>(registers),
            static_cast<std::uint32_t>(t.cta->free_registers), site);
  }
  t.cta->free_registers -= change;
  g.registers = registers;
  m.wake_all(t.cta->waiting_for_registers);
  warpgroup_release(t);
}

std::string describe_wait(const Thread& t, int lanes) {
  std::string text = t.label();
  if (lanes > 1) text += " and " + std::to_string(lanes - 1) + " more lanes";
  text += " at " + to_string(t.wait_site) + ": ";
  switch (t.wait) {
    case Wait::mbarrier: {
      const Mbarrier* b = find(*t.cta, t.wait_a);
      return text + "phase of parity " + std::to_string(t.wait_b) + " of the mbarrier at " + at(t.wait_a) +
             " (phase " + std::to_string(b->phase) + " in progress, " + std::to_string(b->pending) + " of " +
             std::to_string(b->expected) + " arrivals and " + std::to_string(b->tx) + " bytes outstanding)";
    }
    case Wait::named_barrier: {
      const NamedBarrier& b = t.cta->barriers[t.wait_a];
      return text + "named barrier " + std::to_string(t.wait_a) + " (" + std::to_string(b.arrived) + " of " +
             std::to_string(b.expected) + " threads)";
    }
    case Wait::cluster:
      return text + "cluster barrier (" + std::to_string(t.cta->cluster->arrived) + " of " +
             std::to_string(t.cta->cluster->expected) + " threads)";
    case Wait::collective:
      return text + "the other lanes of mask " + at(t.wait_a);
    case Wait::warpgroup:
      return text + "the rest of the warpgroup (" + name(static_cast<Op>(t.wait_a)) + ")";
    case Wait::registers:
      return text + "registers for setmaxnreg " + std::to_string(t.wait_a);
    case Wait::tensor_memory:
      return text + (t.wait_b ? "the peer CTA's warp (" : "room for (") + name(static_cast<Op>(t.wait_a)) +
             ")";
    case Wait::none:
      break;
  }
  return text + "nothing";
}

}  // namespace gemmule::model
