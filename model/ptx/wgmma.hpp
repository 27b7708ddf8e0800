// Asynchronous matrix multiply-accumulate of a warpgroup: D[64][N] += A[64][16] * B[N][16]^T, BF16 operands in shared
// memory (A also in registers), FP32 accumulators and A behind handles that know when they may be touched.
#pragma once

#include "engine/wgmma.hpp"
#include "ptx/shared.hpp"

namespace gemmule::ptx {

/// Shared-memory matrix descriptor of wgmma (PTX ISA, "Matrix Descriptor Format"), byte quantities divided by 16.
struct MatrixDescriptor {
  u64 address : 14;
  u64 : 2;
  u64 leading_bytes : 14;
  u64 : 2;
  u64 stride_bytes : 14;
  u64 : 3;
  u64 base_offset : 3;
  u64 : 10;
  u64 swizzle : 2;  ///< 0 none, 1 128-byte, 2 64-byte, 3 32-byte

  MatrixDescriptor advance(u32 bytes) const {
    const u64 value = __builtin_bit_cast(u64, *this) + (bytes >> 4);
    return __builtin_bit_cast(MatrixDescriptor, value);
  }
};
static_assert(sizeof(MatrixDescriptor) == 8);

inline MatrixDescriptor swizzled_128(Shared<u8> tile, u32 leading_bytes, u32 stride_bytes) {
  MatrixDescriptor d{};
  d.address = tile.address >> 4 & 0x3fff;
  d.leading_bytes = leading_bytes >> 4 & 0x3fff;
  d.stride_bytes = stride_bytes >> 4 & 0x3fff;
  d.swizzle = 1;
  return d;
}

/// FP32 accumulators of a 64 x N tile, N/2 per thread.
template <int N>
class Accumulator {
 public:
  static constexpr int count = N / 2;
  Accumulator() { model::accumulator_created(state_); }
  ~Accumulator() { model::accumulator_destroyed(state_); }
  Accumulator(const Accumulator&) = delete;
  Accumulator& operator=(const Accumulator&) = delete;

  float get(int index, Site site = Site::here()) const {
    model::accumulator_touched(state_, index, site);
    return value_[index];
  }
  void scale(float factor, Site site = Site::here()) {
    model::accumulator_touched(state_, 0, site);
    for (int i = 0; i < state_.width / 2; ++i) value_[i] *= factor;
  }
  void clear(Site site = Site::here()) {
    model::accumulator_cleared(state_, 2 * count, site);
    for (float& value : value_) value = 0;
  }
  /// Elements first .. first + number - 1 become elements 0 .. number - 1; number <= first. The others stay.
  void bring_down(int first, int number, Site site = Site::here()) {
    model::accumulator_brought_down(state_, first, number, site);
    for (int i = 0; i < number; ++i) value_[i] = value_[first + i];
  }
  float* values() { return value_; }
  model::AccumulatorState& state() { return state_; }

 private:
  float value_[count];
  mutable model::AccumulatorState state_;
};

/// One thread's part of A[64][16] in registers, two values each.
class OperandA {
 public:
  OperandA() { model::operand_created(state_); }
  ~OperandA() { model::operand_destroyed(state_); }
  OperandA(const OperandA&) = delete;
  OperandA& operator=(const OperandA&) = delete;

  void set(int index, u32 value, Site site = Site::here()) {
    model::operand_written(state_, site);
    pair_[index] = value;
  }
  u32 get(int index) const { return pair_[index]; }
  const u32* pairs() const { return pair_; }
  model::OperandState& state() const { return state_; }

 private:
  u32 pair_[4] = {};
  mutable model::OperandState state_;
};

inline void fence_accumulators(Site site = Site::here()) {
  if (Entry e = enter(model::Op::wgmma_fence, site)) e.t.fence_sequence = ++e.t.register_sequence;
}
inline void commit_multiplications(Site site = Site::here()) {
  if (Entry e = enter(model::Op::wgmma_commit, site)) model::wgmma_commit(e.t);
}
template <int pending>
void wait_multiplications(Site site = Site::here()) {
  if (Entry e = enter(model::Op::wgmma_wait, site)) model::wgmma_wait(e.t, pending);
}

template <int width, bool b_mn_major, int N>
requires(N >= width) void multiply(Accumulator<N>& d, MatrixDescriptor a, MatrixDescriptor b, bool accumulate,
                                   Site site = Site::here()) {
  if (Entry e = enter(model::Op::wgmma, site)) {
    model::wgmma_issue(e.t, {d.values(), nullptr, false}, d.state(), width, __builtin_bit_cast(u64, a),
                       __builtin_bit_cast(u64, b), accumulate, b_mn_major, site);
  }
}
template <int width, bool fp16, bool b_mn_major, int N>
requires(N >= width) void multiply(Accumulator<N>& d, const OperandA& a, MatrixDescriptor b, bool accumulate,
                                   Site site = Site::here()) {
  if (Entry e = enter(model::Op::wgmma, site)) {
    model::operand_used(e.t, a.state(), site);
    model::wgmma_issue(e.t, {d.values(), a.pairs(), fp16}, d.state(), width, 0, __builtin_bit_cast(u64, b),
                       accumulate, b_mn_major, site);
  }
}

}  // namespace gemmule::ptx
