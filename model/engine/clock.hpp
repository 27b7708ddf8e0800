// Vector clocks: which accesses a thread may rely on having happened.
//
// Every thread and every source of asynchronous completion (an mbarrier, the wgmma groups of a warpgroup, the bulk groups
// of a thread) is an agent with a counter. An access is stamped with an epoch (agent, counter); a thread has observed it
// if its clock holds at least that counter for that agent. Synchronising instructions join clocks. For generic writes a
// second set of counters says which of them a fence.proxy.async has made visible to the async proxy on the way.
#pragma once

#include <cstdint>
#include <vector>

namespace gemmule::model {

/// agent * 2^15 + counter; 0 is "never". Counters start at 1.
struct Epoch {
  std::uint32_t bits = 0;
  Epoch() = default;
  Epoch(int agent, int counter)
      : bits(static_cast<std::uint32_t>(agent) << 15 | static_cast<std::uint32_t>(counter)) {}
  int agent() const { return static_cast<int>(bits >> 15); }
  int counter() const { return static_cast<int>(bits & 0x7fff); }
  explicit operator bool() const { return bits != 0; }
  friend bool operator==(Epoch a, Epoch b) { return a.bits == b.bits; }
};

/// Largest counter; a run that needs more is too long for the model and is stopped with that message.
inline constexpr int max_counter = 0x7fff;

class Clock {
 public:
  void resize(int agents) { seen_.assign(static_cast<std::size_t>(agents) * 2, 0); }
  bool sees(Epoch e) const { return seen_[static_cast<std::size_t>(e.agent())] >= e.counter(); }
  bool sees_fenced(Epoch e) const {
    return seen_[seen_.size() / 2 + static_cast<std::size_t>(e.agent())] >= e.counter();
  }
  int counter(int agent) const { return seen_[static_cast<std::size_t>(agent)]; }
  void set(int agent, int counter);  ///< raises the counter; throws past max_counter
  void join(const Clock& other);
  void fence();  ///< fence.proxy.async: every generic write seen so far counts as fenced
  /// Forgets the agents [first, first + count).
  void forget(int first, int count);
  void clear() { seen_.assign(seen_.size(), 0); }

 private:
  std::vector<std::int16_t> seen_;  ///< [agents] observed, then [agents] observed through a proxy fence
};

}  // namespace gemmule::model
