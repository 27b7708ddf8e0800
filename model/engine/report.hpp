// What a run on the model hands back: hazards by name, counters per instruction, and the sites instructions were called from.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace gemmule::model {

/// Where a ptx:: function was called. As a default argument it names the caller's line.
struct Site {
  const char* file = "";
  int line = 0;
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
  friend bool operator==(const Site& a, const Site& b);
};
std::string to_string(const Site& site);  ///< "pipeline.hpp:41": the file without its directories

/// Kinds of instruction: what is counted, and what a mutant can leave out.
enum class Op : std::uint8_t {
  mbarrier_init,
  mbarrier_arrive,
  mbarrier_expect_tx,
  mbarrier_wait,
  fence_mbarrier_init,
  fence_proxy_async,
  fence_tensor_map,
  tma_load,
  tma_store,
  store_async,
  tma_prefetch,
  bulk_commit,
  bulk_wait,
  bulk_wait_read,
  wgmma,
  wgmma_fence,
  wgmma_commit,
  wgmma_wait,
  tensor_alloc,
  tensor_dealloc,
  tensor_relinquish,
  tensor_load,
  tensor_store,
  tensor_wait_load,
  tensor_wait_store,
  tensor_fence_before,
  tensor_fence_after,
  tensor_copy,
  tensor_mma,
  tensor_commit,
  multicast_mask,  ///< of a copy or commit: a mutant loses its highest CTA
  barrier_sync,
  barrier_arrive,
  cluster_sync,
  warp_sync,
  shuffle,
  elect,
  setmaxnreg,
  shared_load,
  shared_store,
  global_load,
  global_store,
  global_atomic,
  grid_wait,
  grid_launch,
  count_
};
const char* name(Op op);

/// Everything the model calls a mistake.
enum class Hazard : std::uint8_t {
  uninitialised_read,      ///< bytes nobody wrote
  read_before_completion,  ///< bytes an asynchronous operation writes, touched before its completion was observed
  write_under_pending_read,  ///< bytes an asynchronous operation still reads
  unordered_access,          ///< two threads, one of them writing, with nothing that orders them
  missing_proxy_fence,    ///< generic writes read or overwritten by the async proxy without fence.proxy.async
  missing_wgmma_fence,    ///< registers touched and then used by wgmma without wgmma.fence
  accumulator_in_flight,  ///< accumulator touched while a wgmma may write it
  operand_in_flight,      ///< operand registers written while a wgmma may read them
  missing_tensor_fence,  ///< tcgen05 operations of two threads without fence::before or fence::after_thread_sync
  missing_tensor_wait,   ///< registers or tensor memory of a tcgen05.ld or st used before its wait
  tensor_memory_misuse,  ///< allocation, leak, lanes or columns that are not the accessing warp's or nobody's
  illegal_instruction,   ///< a tcgen05 form or instruction descriptor that the hardware does not have
  wrong_phase,           ///< a wait satisfied by a phase the thread had already observed
  mbarrier_misuse,       ///< uninitialised, over-arrived, not fenced after init, bytes of a later phase
  named_barrier_misuse,  ///< identifier, count, or too many arrivals
  divergent_collective,  ///< the threads of a warp or warpgroup disagree about a collective
  cluster_misuse,      ///< cluster instructions in a launch without clusters, masks of CTAs it does not have
  register_ledger,     ///< setmaxnreg outside its rules
  out_of_bounds,       ///< shared memory
  misaligned,          ///< address or size
  illegal_descriptor,  ///< shared-memory descriptor of wgmma, tcgen05.mma or tcgen05.cp
  illegal_tensor_map,  ///< tensor map or box outside the encoder's limits
  global_out_of_bounds,     ///< outside every registered allocation, or read-only
  global_unordered_access,  ///< two CTAs, one of them writing plainly, with nothing that orders them
  grid_dependency,          ///< earlier grid's memory touched before griddepcontrol.wait
  exit_while_pending,       ///< a thread ended before its asynchronous operations no longer need it
  deadlock,                 ///< nobody can run
  count_
};
const char* name(Hazard hazard);

struct Finding {
  Hazard kind;
  Site site;
  std::string text;  ///< first occurrence: thread, address, counterpart
  std::int64_t count = 1;
};

struct OpCount {
  std::int64_t calls = 0;  ///< per thread for thread instructions, per operation for asynchronous ones
  std::int64_t bytes = 0;
  std::int64_t fetched = 0;  ///< of loads: bytes read, once for all CTAs of a multicast
};

class Report {
 public:
  bool clean() const { return findings_.empty(); }
  bool has(Hazard kind) const;
  bool only(Hazard kind) const;  ///< at least one finding, and all of this kind
  std::string text() const;      ///< one line per finding; empty if clean
  const std::vector<Finding>& findings() const { return findings_; }
  const OpCount& count(Op op) const { return counts_[static_cast<std::size_t>(op)]; }
  const std::vector<Site>& sites(Op op) const { return sites_[static_cast<std::size_t>(op)]; }

  void add(Hazard kind, Site site, std::string text);
  bool known(Hazard kind, Site site);  ///< counts one more occurrence if the finding is already there
  OpCount& counter(Op op) { return counts_[static_cast<std::size_t>(op)]; }
  void visit(Op op, Site site);

 private:
  std::vector<Finding> findings_;
  std::array<OpCount, static_cast<std::size_t>(Op::count_)> counts_{};
  std::array<std::vector<Site>, static_cast<std::size_t>(Op::count_)> sites_{};
};

}  // namespace gemmule::model
