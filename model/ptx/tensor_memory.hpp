// Tensor memory of sm_100: 128 lanes x 512 columns of 32 bits per CTA. Modelled, never run on hardware.
#pragma once

#include "engine/tensor_memory.hpp"
#include "ptx/shared.hpp"

namespace gemmule::ptx {

inline constexpr u32 tensor_columns = 512;

/// Lane in bits 31..16, column in bits 15..0.
struct TensorAddress {
  u32 value;

  TensorAddress columns(u32 count) const { return {value + count}; }
  TensorAddress lanes(u32 count) const { return {value + (count << 16)}; }
};

template <u32 ctas>
void allocate_tensor(Shared<u32> to, u32 columns, Site site = Site::here()) {
  static_assert(ctas == 1 || ctas == 2);
  if (Entry e = enter(model::Op::tensor_alloc, site))
    model::tensor_allocate(e.t, to.address, columns, ctas, site);
}
template <u32 ctas>
void relinquish_tensor_allocation(Site site = Site::here()) {
  static_assert(ctas == 1 || ctas == 2);
  if (Entry e = enter(model::Op::tensor_relinquish, site)) model::tensor_relinquish(e.t, ctas, site);
}
template <u32 ctas>
void free_tensor(TensorAddress address, u32 columns, Site site = Site::here()) {
  static_assert(ctas == 1 || ctas == 2);
  if (Entry e = enter(model::Op::tensor_dealloc, site))
    model::tensor_free(e.t, address.value, columns, ctas, site);
}

/// Registers that a load fills: element i is column i of the lane of this thread.
template <int N>
class TensorRow {
 public:
  float get(int index, Site site = Site::here()) const {
    model::tensor_row_touched(state_, index, site);
    return value_[index];
  }
  void set(int index, float x) { model::tensor_row_set(state_, value_, index, x); }
  float* values() { return value_; }
  const float* values() const { return value_; }
  model::TensorRowState& state() { return state_; }

 private:
  float value_[N];
  model::TensorRowState state_;
};

inline void load_tensor(TensorRow<32>& r, TensorAddress from, Site site = Site::here()) {
  if (Entry e = enter(model::Op::tensor_load, site, 32 * 4)) {
    model::tensor_load(e.t, r.values(), r.state(), 32, from.value, site);
  }
}
inline void wait_tensor_load(TensorRow<32>& r, Site site = Site::here()) {
  if (Entry e = enter(model::Op::tensor_wait_load, site))
    model::tensor_wait_load(e.t, r.values(), r.state(), 32);
}
inline void store_tensor(TensorAddress to, const TensorRow<32>& r, Site site = Site::here()) {
  for (int i = 0; i < 32; ++i) r.get(i, site);
  if (Entry e = enter(model::Op::tensor_store, site, 32 * 4))
    model::tensor_store(e.t, r.values(), 32, to.value, site);
}
inline void wait_tensor_store(Site site = Site::here()) {
  if (Entry e = enter(model::Op::tensor_wait_store, site)) model::tensor_wait_store(e.t);
}

inline void fence_tensor_before_sync(Site site = Site::here()) {
  if (Entry e = enter(model::Op::tensor_fence_before, site)) model::tensor_fence_before(e.t);
}
inline void fence_tensor_after_sync(Site site = Site::here()) {
  if (Entry e = enter(model::Op::tensor_fence_after, site)) model::tensor_fence_after(e.t);
}

}  // namespace gemmule::ptx
