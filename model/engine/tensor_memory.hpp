// The tensor memory of one CTA: 128 lanes x 512 columns of 32 bits, its allocation, the history of every column of every
// 32 lanes, and the accesses of warps (tcgen05.ld, st, wait). Modelled from the documentation, never run on hardware.
//
// Who may access what comes after which operation. tcgen05.ld and st of a warp are over once each lane has executed the
// wait; other threads know it if a fence::before_thread_sync followed and was released to them. mma and cp are over once
// a commit's mbarrier phase was observed. Either way the observing thread needs fence::after_thread_sync before its own
// tcgen05 operation: Thread::tensor_clock is what it knew at the last one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/machine.hpp"

namespace gemmule::model {

class TensorMemory {
 public:
  static constexpr int lanes = 128, columns = 512, quarters = 4;

  /// History of one column of the 32 lanes that one warp may access.
  struct Cell {
    Epoch write;                 ///< last writer
    std::uint32_t written = 0;   ///< lanes written since the allocation
    std::vector<Epoch> readers;  ///< since the last write
  };
  struct Allocation {
    int first = 0, count = 0;
  };

  explicit TensorMemory(std::uint32_t poison);
  float* row(int lane) { return words_.data() + static_cast<std::ptrdiff_t>(lane) * columns; }
  Cell& cell(int quarter, int column) { return cells_[static_cast<std::size_t>(quarter * columns + column)]; }
  bool allocated(int first, int count) const;
  bool free(int first, int count) const;
  std::vector<int> places(int count) const;  ///< where `count` columns fit
  void add(int first, int count) { allocations_.push_back({first, count}); }
  /// Forgets the allocation and what was in it; false if there is none.
  bool remove(int first, int count);
  const std::vector<Allocation>& allocations() const { return allocations_; }

  int last_count = columns;  ///< of the allocation before: none may ask for more
  bool relinquished = false;
  std::vector<Thread*> waiting;  ///< for columns to become free
  // A warp of this CTA that waits for the peer's in an instruction of a pair.
  Thread* pair_thread = nullptr;
  Op pair_op = Op::count_;
  int pair_count = 0, pair_first = 0;

 private:
  std::uint32_t poison_;
  std::vector<float> words_;
  std::vector<Cell> cells_;
  std::vector<Allocation> allocations_;
};

/// Lane in bits 31..16, column in bits 15..0.
inline int tensor_lane(std::uint32_t address) {
  return static_cast<int>(address >> 16);
}
inline int tensor_column(std::uint32_t address) {
  return static_cast<int>(address & 0xffff);
}

TensorMemory& tensor_of(Cta& cta);
/// The other CTA of the pair (ranks that differ in bit 0); null if the cluster has none.
Cta* peer_of(Cta& cta);
/// Every tcgen05 instruction of a kernel has the same .cta_group; a pair needs two live CTAs. False and reported if not.
bool check_group(Thread& t, int ctas, Site site);

/// Columns [first, first + count) of the lanes in `lane_masks` (one mask per quarter) are accessed on behalf of `t`.
struct TensorAccess {
  int first = 0, count = 0;
  std::uint32_t lane_masks[TensorMemory::quarters] = {};
  bool read = false, write = false;
};
/// Allocation, initialisation and order of an access stamped `stamp`; remembers it. False if it cannot be done.
bool tensor_access(Thread& t, Cta& cta, const TensorAccess& access, Epoch stamp, Site site);

// Warp-wide instructions. `ctas`: 1 or 2, the .cta_group.
void tensor_allocate(Thread& t, std::uint32_t to, std::uint32_t count, int ctas, Site site);
void tensor_free(Thread& t, std::uint32_t address, std::uint32_t count, int ctas, Site site);
void tensor_relinquish(Thread& t, int ctas, Site site);

/// What the model knows about the registers of one thread that tcgen05.ld fills.
struct TensorRowState {
  Thread* owner = nullptr;
  std::uint32_t address = 0;
  int load_group = -1;              ///< Thread::load_waits at the load; -1: not loaded
  bool waited = false;              ///< a wait named these registers
  bool late = false;                ///< the values are fetched by the wait
  std::uint32_t undefined[4] = {};  ///< a bit per element: not loaded, or from a column nobody wrote
  std::uint32_t set[4] = {};        ///< a bit per element: written by the thread since the load
};
/// 32x32b: element i of the calling lane is column i. The values are those of a moment between the load and its wait.
void tensor_load(Thread& t, float* values, TensorRowState& state, int count, std::uint32_t from, Site site);
void tensor_wait_load(Thread& t, float* values, TensorRowState& state, int count);
/// Element `index` is written by the thread itself.
void tensor_row_set(TensorRowState& state, float* values, int index, float x);
void tensor_row_touched(const TensorRowState& state, int index, Site site);
void tensor_store(Thread& t, const float* values, int count, std::uint32_t to, Site site);
void tensor_wait_store(Thread& t);
void tensor_fence_before(Thread& t);
void tensor_fence_after(Thread& t);

/// Called when the last thread of a CTA has ended.
void tensor_cta_ended(Cta& cta);
/// What an agent of tensor memory is, for reports; empty if it is none of them.
std::string tensor_agent_name(const Cta& cta, Epoch e);

}  // namespace gemmule::model
