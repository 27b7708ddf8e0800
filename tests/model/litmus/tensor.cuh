// A small kernel around tcgen05 for the model and for a device of compute capability 10.x: shared memory is filled by its
// threads, one thread multiplies several tiles into one accumulator, four warps read it. Every synchronising line is needed.
#pragma once

#include "model/litmus/tensor_case.hpp"
#include "ptx/fence.hpp"
#include "ptx/global.hpp"
#include "ptx/identity.hpp"
#include "ptx/tcgen05.hpp"
#include "ptx/warp.hpp"

namespace gemmule::litmus {

using numerics::u64;
using numerics::u8;
using ptx::Shared;

inline constexpr u32 row_bytes = 128;
inline constexpr u32 a_offset = 0, b_offset = a_offset + a_bytes, a_scale_offset = b_offset + b_bytes,
                     b_scale_offset = a_scale_offset + 2 * a_scale_bytes,
                     barrier_offset = b_scale_offset + 2 * b_scale_bytes,
                     tensor_shared_bytes = barrier_offset + 64;
inline constexpr u32 epilogue_threads = 128, tensor_threads = 160;
inline constexpr u32 a_scale_column = 256,
                     b_scale_column = a_scale_column + 16;  // 4 words of 4; 4 words of 8 columns

/// Inputs as litmus::TensorData has them.
struct TensorParams {
  TensorCase test;
  TensorChange change;
  const u64 *a = nullptr, *b = nullptr, *a_scales = nullptr, *b_scales = nullptr;
  float* out = nullptr;
};

GEMMULE_DEVICE Shared<u8> at(u32 offset) {
  return ptx::dynamic_shared().bytes(offset);
}

GEMMULE_DEVICE void copy_in(const u64* bytes, u32 from, u32 offset, u32 count) {
  for (u32 i = ptx::thread_index() * 16; i < count; i += tensor_threads * 16) {
    const u64 low = ptx::load(bytes + (from + i) / 8), high = ptx::load(bytes + (from + i) / 8 + 1);
    const ptx::U32x4 value = {static_cast<u32>(low), static_cast<u32>(low >> 32), static_cast<u32>(high),
                              static_cast<u32>(high >> 32)};
    ptx::store(at(offset + i).as<ptx::U32x4>(), value);
  }
}

template <u32 ctas>
GEMMULE_DEVICE void sync_all() {
  if constexpr (ctas == 2)
    ptx::sync_cluster();
  else
    ptx::sync_cta();
}

template <u32 ctas>
GEMMULE_DEVICE void multiply_step(const TensorCase& c, const TensorChange& change, ptx::TensorAddress d,
                                  u32 step) {
  const u32 k_step = c.b_n_major ? step * (256 / c.element_bits()) * row_bytes : step * 32;
  const u32 span_bytes = c.k() * row_bytes;  // from one span of n to the next
  const ptx::OperandDescriptor a =
      ptx::OperandDescriptor::of(at(a_offset), 16, change.a_stride, ptx::OperandSwizzle::b128)
          .advance(step * 32);
  const ptx::OperandDescriptor b = ptx::OperandDescriptor::of(at(b_offset), c.b_n_major ? span_bytes : 16,
                                                              change.b_stride, ptx::OperandSwizzle::b128)
                                       .advance(k_step);
  const bool accumulate = step > 0;
  if (!c.scaled()) {
    ptx::multiply_f16<ctas>(d, a, b, ptx::InstructionDescriptor::bf16(c.m, c.n, c.b_n_major), accumulate);
    return;
  }
  const u32 per_step = 256 / c.element_bits() / c.block();
  const u32 word = step * per_step / 4, id = (step * per_step + change.scale_id) % 4;
  const u32 format = c.element_bits() == 4 ? 1 : c.type == TensorType::e5m2 ? 1 : 0;
  const auto instruction = ptx::ScaledInstructionDescriptor::of(format, c.type == TensorType::nvf4 ? 0 : 1,
                                                                c.m, c.n, c.b_n_major, id);
  const ptx::TensorAddress base{d.value + change.scale_column};
  const ptx::TensorAddress a_scales = base.columns(a_scale_column + word * 4);
  const ptx::TensorAddress b_scales = base.columns(b_scale_column + word * 8);
  switch (c.type) {
    case TensorType::mxf4:
      ptx::multiply_scaled<ptx::ScaledKind::mxf4, 32, ctas>(d, a, b, instruction, a_scales, b_scales,
                                                            accumulate);
      break;
    case TensorType::nvf4:
    case TensorType::nvf4_e8m0:
      ptx::multiply_scaled<ptx::ScaledKind::mxf4nvf4, 16, ctas>(d, a, b, instruction, a_scales, b_scales,
                                                                accumulate);
      break;
    default:
      ptx::multiply_scaled<ptx::ScaledKind::mxf8f6f4, 32, ctas>(d, a, b, instruction, a_scales, b_scales,
                                                                accumulate);
  }
}

template <u32 ctas>
GEMMULE_DEVICE void issue(const TensorParams& p, ptx::TensorAddress d, ptx::Barrier full,
                          ptx::Barrier empty) {
  const TensorCase& c = p.test;
  for (u32 tile = 0; tile < c.tiles; ++tile) {
    ptx::wait(empty, (tile & 1) ^ 1);
    ptx::fence_tensor_after_sync();
    const bool copy = c.scaled() && !(p.change.stale && tile > 0);
    for (u32 word = 0; copy && word < c.scale_words(); ++word) {
      const auto from = [&](u32 offset) {
        return ptx::OperandDescriptor::of(at(offset), 0, p.change.scale_stride, ptx::OperandSwizzle::none);
      };
      ptx::copy_scales<ctas>(d.columns(a_scale_column + word * 4),
                             from(a_scale_offset + tile % 2 * a_scale_bytes + word * 512));
      for (u32 i = 0; i < (c.n + 127) / 128; ++i) {
        ptx::copy_scales<ctas>(d.columns(b_scale_column + word * 8 + i * 4),
                               from(b_scale_offset + tile % 2 * b_scale_bytes + (word * 2 + i) * 512));
      }
    }
    for (u32 step = 0; step < 4; ++step) multiply_step<ctas>(c, p.change, d, step);
    if constexpr (ctas == 2)
      ptx::commit_tensor_work_multicast<ctas>(full, 3);
    else
      ptx::commit_tensor_work<ctas>(full);
  }
}

/// Row and first column that column `j` of the thread's lane holds.
GEMMULE_DEVICE void read_out(const TensorParams& p, ptx::TensorAddress d, u32 tile) {
  const TensorCase& c = p.test;
  const u32 warp = ptx::warp_index(), lane = ptx::lane_index(), rows = c.a_rows();
  const bool halves = c.ctas == 2 && c.m == 128, quarter = c.ctas == 1 && c.m == 64;
  const u32 width = halves ? c.n / 2 : c.n;
  const u32 row = halves ? warp % 2 * 32 + lane : quarter ? warp * 16 + lane : warp * 32 + lane;
  const u32 first = halves ? warp / 2 * width : 0;
  ptx::TensorRow<32> r;
  for (u32 column = 0; column < width; column += 32) {
    ptx::load_tensor(r, d.lanes(warp * 32 + p.change.lanes).columns(column));
    ptx::wait_tensor_load(r);
    const u64 first_out = (u64{tile} * c.m + ptx::cluster_cta_rank() * rows + row) * c.n + first + column;
#pragma unroll
    for (u32 i = 0; i < 32; ++i) {
      if (column + i < width && !(quarter && lane >= 16))
        ptx::store(p.out + first_out + i, r.get(static_cast<int>(i)));
    }
  }
}

template <u32 ctas>
GEMMULE_DEVICE void tensor(const TensorParams& p) {
  const TensorCase& c = p.test;
  const u32 rank = ctas == 2 ? ptx::cluster_cta_rank() : 0;
  const ptx::Barrier full = at(barrier_offset).as<ptx::Mbarrier>(), empty = full + 1;
  const Shared<u32> address = at(barrier_offset + 32).as<u32>();
  if (ptx::warp_index() == 4) ptx::allocate_tensor<ctas>(address, p.change.columns);
  if (ptx::thread_index() == 0) {
    ptx::init(full, 1);
    ptx::init(empty, ctas * epilogue_threads);
    ptx::fence_barrier_init();
  }
  copy_in(p.a, rank * a_bytes, a_offset, c.a_rows() * row_bytes);
  copy_in(p.b, rank * b_bytes, b_offset, c.b_rows() * row_bytes);
  for (u32 set = 0; c.scaled() && set < 2; ++set) {
    copy_in(p.a_scales, (set * 2 + rank) * a_scale_bytes, a_scale_offset + set * a_scale_bytes,
            a_scale_bytes);
    copy_in(p.b_scales, (set * 2 + rank) * b_scale_bytes, b_scale_offset + set * b_scale_bytes,
            b_scale_bytes);
  }
  ptx::fence_async_shared();
  sync_all<ctas>();
  const ptx::TensorAddress d{ptx::load(address)};
  if (ptx::warp_index() == 4) {
    if (rank == 0 && ptx::elect_one()) issue<ctas>(p, d, full, empty);
  } else {
    for (u32 tile = 0; tile < c.tiles; ++tile) {
      ptx::wait(full, tile & 1);
      ptx::fence_tensor_after_sync();
      read_out(p, d, tile);
      ptx::fence_tensor_before_sync();
      if constexpr (ctas == 2)
        ptx::arrive_remote(empty, 0);
      else
        ptx::arrive(empty);
    }
  }
  ptx::sync_warp();  // the lanes that did not issue wait for the one that did
  sync_all<ctas>();
  if (ptx::warp_index() == 4 && p.change.free) {
    ptx::relinquish_tensor_allocation<ctas>();
    ptx::free_tensor<ctas>(d, p.change.columns);
  }
}

}  // namespace gemmule::litmus
