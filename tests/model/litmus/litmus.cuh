// Small kernels that each show one rule of the instructions. The same source runs on the device (litmus_device.cu) and on
// the host model (litmus_test.cpp); litmus_cases.hpp says what must come out.
#pragma once

#include "ptx/fence.hpp"
#include "ptx/global.hpp"
#include "ptx/identity.hpp"
#include "ptx/mbarrier.hpp"
#include "ptx/tma.hpp"
#include "ptx/warp.hpp"
#include "ptx/wgmma.hpp"

namespace gemmule::litmus {

using ptx::Barrier;
using ptx::i32;
using ptx::Shared;
using ptx::u32;
using ptx::u8;

inline constexpr u32 threads = 128;
inline constexpr u32 barrier_offset = 49152;
inline constexpr u32 shared_bytes = 50176;

struct Params {
  ptx::TensorMap a, b;
  const u8* bytes_at = nullptr;  ///< load_bytes: the tensor of map a
  u32* out = nullptr;
  i32 x = 0, y = 0;
  u32 bytes = 0;    ///< of the box, whether inside the tensor or not
  u32 n_major = 0;  ///< multiply: B is [K][N] in memory
};

GEMMULE_DEVICE Barrier prepare_barrier(u32 arrivals) {
  const Barrier barrier = ptx::dynamic_shared().bytes(barrier_offset).as<ptx::Mbarrier>();
  if (ptx::thread_index() == 0) {
    ptx::init(barrier, arrivals);
    ptx::fence_barrier_init();
  }
  ptx::sync_cta();
  return barrier;
}

/// A box lands swizzled, elements outside the tensor are zero, all bytes of the box count, and they may be counted before
/// they are expected.
GEMMULE_DEVICE void load(const Params& p) {
  const Shared<u8> box = ptx::dynamic_shared();
  const Barrier barrier = prepare_barrier(1);
  if (ptx::thread_index() == 0) {
    ptx::load_box(box, &p.a, p.x, p.y, barrier, ptx::CachePolicy::normal);
    ptx::arrive_expect_bytes(barrier, p.bytes);
  }
  ptx::wait(barrier, 0);
  for (u32 i = ptx::thread_index(); i < p.bytes / 4; i += threads)
    ptx::store(p.out + i, ptx::load(box.as<u32>() + i));
}

/// A box is stored from shared memory, clipped to the tensor; after wait_group.read its shared memory may be overwritten.
GEMMULE_DEVICE void store(const Params& p) {
  const Shared<u8> box = ptx::dynamic_shared();
  for (u32 i = ptx::thread_index(); i < p.bytes / 4; i += threads) ptx::store(box.as<u32>() + i, 0x10000 + i);
  ptx::fence_async_shared();
  ptx::sync_cta();
  if (ptx::thread_index() == 0) {
    ptx::store_box(&p.a, p.x, p.y, box, ptx::CachePolicy::normal);
    ptx::commit_stores();
    ptx::wait_stores_read<0>();
  }
  ptx::sync_cta();
  for (u32 i = ptx::thread_index(); i < p.bytes / 4; i += threads) ptx::store(box.as<u32>() + i, 0xFFFFFFFFu);
  if (ptx::thread_index() == 0) ptx::wait_stores<0>();
}

/// D[64][128] = A[64][64] B[128][64]^T through descriptors of swizzled tiles; out[thread][64] are its registers.
GEMMULE_DEVICE void multiply(const Params& p) {
  const Shared<u8> a = ptx::dynamic_shared();
  const Shared<u8> b = a.bytes(64 * 128);
  const Barrier barrier = prepare_barrier(1);
  if (ptx::thread_index() == 0) {
    ptx::arrive_expect_bytes(barrier, (64 + 128) * 128);
    ptx::load_box(a, &p.a, 0, 0, barrier, ptx::CachePolicy::normal);
    ptx::load_box(b, &p.b, 0, 0, barrier, ptx::CachePolicy::normal);
    if (p.n_major != 0) ptx::load_box(b.bytes(64 * 128), &p.b, 64, 0, barrier, ptx::CachePolicy::normal);
  }
  ptx::wait(barrier, 0);
  ptx::Accumulator<128> d;
  const ptx::MatrixDescriptor a_tile = ptx::swizzled_128(a, 16, 1024);
  const ptx::MatrixDescriptor b_tile = ptx::swizzled_128(b, p.n_major != 0 ? 64 * 128 : 16, 1024);
  ptx::fence_accumulators();
#pragma unroll
  for (u32 slice = 0; slice < 4; ++slice) {
    if (p.n_major != 0)
      ptx::multiply<128, true>(d, a_tile.advance(slice * 32), b_tile.advance(slice * 16 * 128), slice != 0);
    else
      ptx::multiply<128, false>(d, a_tile.advance(slice * 32), b_tile.advance(slice * 32), slice != 0);
  }
  ptx::commit_multiplications();
  ptx::wait_multiplications<0>();
#pragma unroll
  for (int i = 0; i < 64; ++i)
    ptx::store(p.out + (ptx::thread_index() * 64 + static_cast<u32>(i)), numerics::bits_of(d.get(i)));
}

/// The same with A in registers, one slice of 16 k after the other in the same registers (B k-major).
GEMMULE_DEVICE void multiply_registers(const Params& p) {
  const Shared<u8> a = ptx::dynamic_shared();
  const Shared<u8> b = a.bytes(64 * 128);
  const Barrier barrier = prepare_barrier(1);
  if (ptx::thread_index() == 0) {
    ptx::arrive_expect_bytes(barrier, (64 + 128) * 128);
    ptx::load_box(a, &p.a, 0, 0, barrier, ptx::CachePolicy::normal);
    ptx::load_box(b, &p.b, 0, 0, barrier, ptx::CachePolicy::normal);
  }
  ptx::wait(barrier, 0);
  ptx::Accumulator<128> d;
  ptx::OperandA operand;
  const ptx::MatrixDescriptor b_tile = ptx::swizzled_128(b, 16, 1024);
  const u32 row = ptx::warp_index() * 16 + ptx::lane_index() / 4;
#pragma unroll
  for (u32 slice = 0; slice < 4; ++slice) {
#pragma unroll
    for (u32 pair = 0; pair < 4; ++pair) {
      const u32 chunk = slice * 2 + pair / 2;
      const u32 at = (row + pair % 2 * 8) * 128 + ((chunk ^ row % 8) << 4) + ptx::lane_index() % 4 * 4;
      operand.set(static_cast<int>(pair), ptx::load(a.bytes(at).as<u32>()));
    }
    ptx::fence_accumulators();
    ptx::multiply<128, false, false>(d, operand, b_tile.advance(slice * 32), slice != 0);
    ptx::commit_multiplications();
    ptx::wait_multiplications<0>();
  }
#pragma unroll
  for (int i = 0; i < 64; ++i)
    ptx::store(p.out + (ptx::thread_index() * 64 + static_cast<u32>(i)), numerics::bits_of(d.get(i)));
}

/// Contiguous bytes without a tensor map.
GEMMULE_DEVICE void load_bytes(const Params& p) {
  const Shared<u8> to = ptx::dynamic_shared();
  const Barrier barrier = prepare_barrier(1);
  if (ptx::thread_index() == 0) {
    ptx::arrive_expect_bytes(barrier, p.bytes);
    ptx::load_bytes(to, p.bytes_at, p.bytes, barrier);
  }
  ptx::wait(barrier, 0);
  for (u32 i = ptx::thread_index(); i < p.bytes / 4; i += threads)
    ptx::store(p.out + i, ptx::load(to.as<u32>() + i));
}

/// Phases alternate in parity; arrive publishes, wait observes. Two warps hand a word to and fro.
GEMMULE_DEVICE void phases(const Params& p) {
  const Barrier full = prepare_barrier(32);
  const Barrier empty = full + 1;
  if (ptx::thread_index() == 0) ptx::init(empty, 32);
  ptx::sync_cta();
  const Shared<u32> words = ptx::dynamic_shared().as<u32>();
  const u32 lane = ptx::lane_index();
  for (u32 round = 0; round < 6; ++round) {
    if (ptx::warp_index() == 0) {
      ptx::wait(empty, (round & 1) ^ 1);  // passes at once in round 0
      ptx::store(words + lane, round * 100 + lane);
      ptx::arrive(full);
    } else if (ptx::warp_index() == 1) {
      ptx::wait(full, round & 1);
      ptx::store(p.out + (round * 32 + lane), ptx::load(words + (31 - lane)));
      ptx::arrive(empty);
    }
  }
}

/// A cluster of two: each CTA sends 16 bytes to the other, which counts them; elect_one names the same lane every time.
GEMMULE_DEVICE void cluster(const Params& p) {
  const Barrier barrier = prepare_barrier(1);
  ptx::sync_cluster();
  const u32 rank = ptx::cluster_cta_rank();
  const Shared<ptx::U32x4> record = ptx::dynamic_shared().as<ptx::U32x4>();
  if (ptx::thread_index() == 0) {
    ptx::arrive_expect_bytes_remote(barrier, rank ^ 1, 16);
    ptx::store_remote(record, {rank + 10, rank + 20, rank + 30, rank + 40}, barrier, rank ^ 1);
  }
  ptx::wait(barrier, 0);
  if (ptx::warp_index() == 0) {
    const bool first = ptx::elect_one();
    const bool second = ptx::elect_one();
    const u32 same = ptx::warp_ballot(first) == ptx::warp_ballot(second) ? 1 : 0;
    const u32 elected = ptx::population_count(ptx::warp_ballot(first));
    if (ptx::lane_index() == 0) {
      ptx::store(p.out + rank * 3, ptx::load(record.as<u32>()));
      ptx::store(p.out + (rank * 3 + 1), same);
      ptx::store(p.out + (rank * 3 + 2), elected);
    }
  }
  ptx::sync_cluster();
}

}  // namespace gemmule::litmus
