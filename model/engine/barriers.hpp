// Synchronisation between threads: mbarriers, named barriers, cluster barriers, warp and warpgroup collectives.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/machine.hpp"

namespace gemmule::model {

// mbarrier. `bytes` < 0: a plain arrival.
void mbarrier_init(Thread& t, std::uint32_t address, std::uint32_t count, Site site);
void mbarrier_arrive(Thread& t, std::uint32_t address, std::int64_t bytes, Site site);
void mbarrier_wait(Thread& t, std::uint32_t address, std::uint32_t parity, Site site);
/// Whether the phase is complete; if so, as mbarrier_wait(). Now and then it answers late: code must cope with either answer.
bool mbarrier_test(Thread& t, std::uint32_t address, std::uint32_t parity, Site site);
void fence_mbarrier_init(Thread& t);
/// The barrier an asynchronous operation of `t` completes on; null (and reported) if it cannot.
Mbarrier* completion_barrier(Thread& t, Cta& cta, std::uint32_t offset, Site site);
/// `bytes` of an operation issued in `phase` have arrived.
void complete_bytes(Machine& m, Mbarrier& barrier, int phase, std::int64_t bytes, Site site);

/// The barrier a tcgen05.commit of `t` arrives on; null (and reported) if it cannot.
Mbarrier* commit_barrier(Thread& t, Cta& cta, std::uint32_t offset, Site site);
/// An arrival that is not a thread's, releasing `clock`.
void async_arrive(Machine& m, Mbarrier& barrier, const Clock& clock, Site site);

void named_barrier(Thread& t, std::uint32_t id, std::uint32_t threads, bool wait, Site site);
/// Cluster barriers and remote operations need a launch with clusters of two or more: reported otherwise.
void require_cluster(Thread& t, Site site);
/// The CTAs of a multicast: bit r of the mask is CTA r of the cluster, without a mask the own. Those that do not exist, and an
/// empty mask, are reported.
std::vector<Cta*> multicast_targets(Thread& t, std::optional<std::uint32_t> mask, Site site);
void cluster_arrive(Thread& t);
void cluster_exit(Thread& t);  ///< an ended thread is no longer waited for
void cluster_wait(Thread& t, Site site);

/// Rendezvous of the lanes in `mask`; returns what `combine` makes of the lanes' values for this lane.
enum class WarpOp : std::uint8_t { sync, shuffle_xor, shuffle_index, ballot, elect };
std::uint64_t warp_collective(Thread& t, WarpOp op, std::uint32_t mask, std::uint64_t value,
                              std::uint32_t argument, Site site);

/// All 128 threads of the warpgroup arrive with the same op and key. True in the last one, which does the work and then
/// calls warpgroup_release; the others return false after that.
bool warpgroup_arrive(Thread& t, Op op, std::uint64_t key, Site site);
void warpgroup_release(Thread& t);

/// The same for the 32 lanes of a warp (.sync.aligned).
bool warp_arrive(Thread& t, Op op, std::uint64_t key, Site site);
void warp_release(Thread& t);

void set_registers(Thread& t, int registers, bool raise, Site site);

}  // namespace gemmule::model
