#include "engine/machine.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "engine/barriers.hpp"
#include "engine/tcgen05.hpp"
#include "engine/tensor_memory.hpp"
#include "engine/wgmma.hpp"

namespace gemmule::model {

namespace {

thread_local Thread* current_thread = nullptr;

StackPool& stacks() {
  static thread_local StackPool pool;
  return pool;
}

void run_thread(void* argument) {
  Thread& t = *static_cast<Thread*>(argument);
  try {
    t.machine->kernel()();
    t.machine->thread_ended(t);
  } catch (const Stopped&) {
    t.machine->stop();
    t.done = true;
  } catch (...) {
    t.machine->fail(std::current_exception());
    t.done = true;
  }
}

}  // namespace

Thread& current() {
  return *current_thread;
}

std::string Thread::label() const {
  return "cta " + std::to_string(cta->index) + " warp " + std::to_string(warp->index) + " lane " +
         std::to_string(lane);
}

Report launch(const LaunchOptions& options, GlobalMemory& memory, const std::function<void()>& kernel) {
  Machine machine(options, memory, kernel);
  machine.run();
  return machine.report();
}

Machine::Machine(const LaunchOptions& options, GlobalMemory& memory, const std::function<void()>& kernel)
    : options_(options), memory_(memory), kernel_(kernel), random_(options.seed) {
  if (options.cluster < 1 || options.cluster > 16 || options.grid < 1 ||
      options.grid % options.cluster != 0 || options.threads < 1 || options.threads > 1024 ||
      options.shared_bytes > 232448 || options.resident < options.cluster) {
    throw std::invalid_argument("model: the launch is not one the device accepts");
  }
  agents_ = options.cluster * (options.threads + async_agents) + 1;
  timing_ = options.timing ? *options.timing : static_cast<Timing>(random_.below(3));
  by_priority_ = random_.one_in(2);
  static constexpr std::uint32_t rates[] = {8, 64, 1024};
  preempt_every_ = rates[random_.below(3)];
  memory.begin_launch();
}

Machine::~Machine() {
  for (auto& cluster : clusters_) {
    for (auto& cta : cluster->ctas) {
      for (auto& t : cta->threads) {
        if (t->stack) stacks().give(t->stack);
      }
    }
  }
}

bool Machine::enter(Op op, Site site, std::int64_t bytes) {
  if (stopped_) throw Stopped{};
  report_.visit(op, site);
  if (++executed_ > options_.instruction_limit) {
    report_.add(Hazard::deadlock, site,
                "still running after " + std::to_string(options_.instruction_limit) + " instructions");
    throw Stopped{};
  }
  if (options_.drop && options_.drop->first == op && options_.drop->second == site) return false;
  if (op == Op::wgmma || op == Op::tma_load || op == Op::tma_store || op == Op::tensor_copy ||
      op == Op::tensor_mma)
    return true;  // counted once per operation
  OpCount& counter = report_.counter(op);
  ++counter.calls;
  counter.bytes += bytes;
  return true;
}

void Machine::start_cluster() {
  auto cluster = std::make_unique<Cluster>();
  cluster->index = next_cta_ / options_.cluster;
  cluster->live = cluster->expected = options_.cluster * options_.threads;
  cluster->arriving.resize(agents_);
  cluster->completed.resize(agents_);
  const int warps = (options_.threads + 31) / 32, groups = (options_.threads + 127) / 128;
  int registers = options_.registers ? options_.registers : std::min(255, 65536 / options_.threads / 8 * 8);
  for (int rank = 0; rank < options_.cluster; ++rank) {
    auto cta = std::make_unique<Cta>();
    cta->machine = this;
    cta->cluster = cluster.get();
    cta->index = next_cta_++;
    cta->rank = rank;
    cta->live = options_.threads;
    cta->agent_base = rank * (options_.threads + async_agents);
    cta->next_agent = cta->agent_base + options_.threads;
    cta->shared.resize(options_.shared_bytes, options_.granule, random_.next());
    cta->barriers.resize(16);
    for (int i = 0; i < groups; ++i) {
      auto group = std::make_unique<Warpgroup>();
      group->cta = cta.get();
      group->index = i;
      group->agent = take_agent(*cta);
      group->registers = registers;
      cta->groups.push_back(std::move(group));
    }
    for (int i = 0; i < warps; ++i) {
      auto warp = std::make_unique<Warp>();
      warp->cta = cta.get();
      warp->index = i;
      warp->priority = random_.next();
      cta->warps.push_back(std::move(warp));
    }
    for (int i = 0; i < options_.threads; ++i) {
      auto t = std::make_unique<Thread>();
      t->machine = this;
      t->cta = cta.get();
      t->warp = cta->warps[static_cast<std::size_t>(i / 32)].get();
      t->group = cta->groups[static_cast<std::size_t>(i / 128)].get();
      t->index = i;
      t->lane = i % 32;
      t->agent = cta->agent_base + i;
      t->clock.resize(agents_);
      t->clock.set(t->agent, 1);
      t->tensor_clock.resize(agents_);
      t->stack = stacks().take();
      t->fiber.start(t->stack, StackPool::stack_bytes, &run_thread, t.get());
      t->warp->lanes.push_back(t.get());
      t->warp->runnable |= 1u << t->lane;
      t->group->threads.push_back(t.get());
      cta->threads.push_back(std::move(t));
    }
    for (auto& warp : cta->warps) make_ready(*warp);
    cluster->ctas.push_back(std::move(cta));
  }
  clusters_.push_back(std::move(cluster));
}

/// Nothing of an ended cluster can be reached any more, except by operations that are pending: those still hold it.
void Machine::retire(Cluster& cluster) {
  for (auto& cta : cluster.ctas) {
    for (auto& t : cta->threads) {
      stacks().give(t->stack);
      t->stack = nullptr;
    }
  }
}

void Machine::run() {
  const std::size_t resident = static_cast<std::size_t>(options_.resident / options_.cluster);
  std::size_t running = 0;
  std::size_t retired = 0;
  while (!error_ && !stopped_) {
    while (running < resident && next_cta_ < options_.grid) {
      start_cluster();
      ++running;
    }
    if (!pending_.empty() && (ready_.empty() || (timing_ == Timing::random && random_.one_in(4)))) {
      finish_one();
      continue;
    }
    if (ready_.empty()) {
      if (running == 0) break;
      report_deadlock();
      break;
    }
    run_warp(*pick());
    for (std::size_t i = retired; i < clusters_.size(); ++i) {
      if (clusters_[i]->live == 0) {
        retire(*clusters_[i]);
        std::swap(clusters_[i], clusters_[retired]);
        ++retired;
        --running;
      }
    }
  }
  if (error_) std::rethrow_exception(error_);
}

Warp* Machine::pick() {
  if (!by_priority_) return ready_[static_cast<std::size_t>(random_.below(ready_.size()))];
  Warp* best = ready_[0];
  for (Warp* warp : ready_) {
    if (warp->priority > best->priority) best = warp;
  }
  if (random_.one_in(64)) best->priority = random_.next() >> 1;  // now and then the favourite falls back
  return best;
}

void Machine::run_warp(Warp& warp) {
  const int first = random_.below(32);
  std::uint32_t remaining = std::rotr(warp.runnable, first);
  while (remaining != 0) {
    const int lane = (std::countr_zero(remaining) + first) & 31;
    remaining &= remaining - 1;
    if ((warp.runnable >> lane & 1u) == 0) continue;
    Thread& t = *warp.lanes[static_cast<std::size_t>(lane)];
    current_thread = &t;
    t.fiber.resume();
    current_thread = nullptr;
    if (t.done) warp.runnable &= ~(1u << lane);
    if (error_ || stopped_) return;
  }
  if (warp.runnable == 0) unready(warp);
}

void Machine::make_ready(Warp& warp) {
  if (warp.ready_slot >= 0) return;
  warp.ready_slot = static_cast<int>(ready_.size());
  ready_.push_back(&warp);
}

void Machine::unready(Warp& warp) {
  if (warp.ready_slot < 0) return;
  Warp* last = ready_.back();
  ready_[static_cast<std::size_t>(warp.ready_slot)] = last;
  last->ready_slot = warp.ready_slot;
  ready_.pop_back();
  warp.ready_slot = -1;
}

void Machine::block(Thread& t, Wait wait, std::uint32_t a, std::uint32_t b, Site site) {
  t.wait = wait;
  t.wait_a = a;
  t.wait_b = b;
  t.wait_site = site;
  t.warp->runnable &= ~(1u << t.lane);
  t.fiber.suspend();
  t.wait = Wait::none;
}

void Machine::wake(Thread* t) {
  t->warp->runnable |= 1u << t->lane;
  make_ready(*t->warp);
}

void Machine::wake_all(std::vector<Thread*>& waiting) {
  for (Thread* t : waiting) wake(t);
  waiting.clear();
}

void Machine::preempt(Thread& t) {
  if (--preempt_in_ > 0) return;
  preempt_in_ = 1 + random_.below(2 * preempt_every_);
  t.fiber.suspend();
}

void Machine::submit(AsyncOpPtr op) {
  if (timing_ == Timing::early) {
    op->finish(*this);
  } else {
    pending_.push_back(std::move(op));
  }
}

void Machine::finish_one() {
  const std::size_t i = static_cast<std::size_t>(random_.below(pending_.size()));
  AsyncOpPtr op = std::move(pending_[i]);
  pending_[i] = std::move(pending_.back());
  pending_.pop_back();
  op->finish(*this);
}

int Machine::take_agent(Cta& cta) {
  if (cta.next_agent == cta.agent_base + options_.threads + async_agents) {
    throw std::length_error("model: too many mbarriers and storing threads in one CTA");
  }
  return cta.next_agent++;
}

void Machine::acquire_map(Thread& t, const void* map) {
  for (auto& [acquired, generation] : t.acquired_maps) {
    if (acquired == map) {
      generation = map_generation_[map];
      return;
    }
  }
  t.acquired_maps.emplace_back(map, map_generation_[map]);
}

bool Machine::map_acquired(const Thread& t, const void* map) {
  for (const auto& [acquired, generation] : t.acquired_maps) {
    if (acquired == map) return generation == map_generation_[map];
  }
  return false;
}

void Machine::thread_ended(Thread& t) {
  if (t.bulk) {
    bool reading = !t.bulk->open.empty();
    for (const auto& group : t.bulk->groups) reading = reading || !group.empty();
    if (reading) {
      hazard(Hazard::exit_while_pending, Site{}, [&] {
        return t.label() +
               " ended while its bulk stores may still read shared memory (no cp.async.bulk.wait_group)";
      });
    }
  }
  t.done = true;
  --t.cta->live;
  --t.cta->cluster->live;
  cluster_exit(t);
  if (t.cta->live > 0) return;
  tensor_cta_ended(*t.cta);
  for (const auto& b : t.cta->mbarriers) {
    if (b->on_the_way != 0) {
      hazard(Hazard::exit_while_pending, Site{}, [&] {
        return "cta " + std::to_string(t.cta->index) + " ended while " + std::to_string(b->on_the_way) +
               " arrivals of tcgen05.commit were on their way to an mbarrier of it";
      });
    }
    if (b->tx != 0) {
      hazard(Hazard::exit_while_pending, Site{}, [&] {
        return "cta " + std::to_string(t.cta->index) +
               " ended while copies are on their way into its shared memory (" + std::to_string(b->tx) +
               " bytes outstanding at an mbarrier)";
      });
    }
  }
}

void Machine::report_deadlock() {
  struct Group {
    const Thread* first;
    int count;
  };
  std::vector<Group> waits;
  for (const auto& cluster : clusters_) {
    for (const auto& cta : cluster->ctas) {
      for (const auto& t : cta->threads) {
        if (t->done || t->wait == Wait::none) continue;
        auto same = std::find_if(waits.begin(), waits.end(), [&](const Group& g) {
          return g.first->warp == t->warp && g.first->wait == t->wait && g.first->wait_a == t->wait_a &&
                 g.first->wait_b == t->wait_b && g.first->wait_site == t->wait_site;
        });
        if (same == waits.end()) {
          waits.push_back({t.get(), 1});
        } else {
          ++same->count;
        }
      }
    }
  }
  std::string text = "nobody can run:";
  for (const Group& g : waits) text += "\n    " + describe_wait(*g.first, g.count);
  report_.add(Hazard::deadlock, waits.empty() ? Site{} : waits.front().first->wait_site, text);
}

}  // namespace gemmule::model
