// The small kernels around the main one: tensor maps of discrete weights before it, fixed-order sums after it.
#pragma once

#include "numerics/formats.hpp"
#include "ptx/global.hpp"
#include "ptx/grid.hpp"
#include "ptx/identity.hpp"
#include "ptx/tma.hpp"
#include "sm90/bf16_dglu_params.hpp"

namespace gemmule::kernels {

/// One thread per expert.
GEMMULE_DEVICE void dglu_prepare(const DgluPrepareParams& params) {
  ptx::launch_next_grid();
  ptx::wait_for_previous_grid();
  const u32 index = ptx::cta_index() * ptx::thread_count() + ptx::thread_index();
  if (index == 0 && params.next_tile != nullptr) ptx::store(params.next_tile, 0u);
  if (index == 0 && params.offset != nullptr) ptx::store(params.offset, params.end);
  if (params.b_maps == nullptr || index >= params.experts) return;
  ptx::TensorMap* map = params.b_maps + index;
#pragma unroll
  for (u32 word = 0; word < 16; ++word) ptx::store(map->words + word, params.pattern.words[word]);
  ptx::replace_address(map, static_cast<u64>(ptx::load(params.b_ptrs + index)));
  ptx::fence_tensor_map_release();
}

GEMMULE_DEVICE void finish_dbias(const DgluFinishParams& params, u32 cta) {
  const u32 ctas_per_expert = (params.columns + finish_threads - 1) / finish_threads;
  const u32 expert = cta / ctas_per_expert;
  const u32 column = cta % ctas_per_expert * finish_threads + ptx::thread_index();
  if (column >= params.columns) return;
  const u32 first = expert == 0 ? 0 : static_cast<u32>(ptx::load(params.offsets + (expert - 1))) / 128;
  const u32 last = static_cast<u32>(ptx::load(params.offsets + expert)) / 128;
  if (first >= last) return;
  const float* sums = params.column_sums + column;
  float total = 0;
#pragma unroll 8
  for (u32 tile = first; tile < last; ++tile) total += ptx::load(sums + i64{tile} * params.columns);
  u16* to = params.dbias + (i64{expert} * params.columns + column);
  ptx::store(to, numerics::encode_bf16(numerics::decode_bf16(ptx::load(const_cast<const u16*>(to))) + total));
}

GEMMULE_DEVICE void finish_dprob(const DgluFinishParams& params, u32 cta) {
  const i64 row = i64{cta} * finish_threads + ptx::thread_index();
  if (row >= ptx::load(params.offsets + (params.experts - 1))) return;
  float total = 0;
#pragma unroll 8
  for (u32 tile = 0; tile < params.column_tiles; ++tile)
    total += ptx::load(params.dprob_tiles + (tile * params.m + row));
  float* to = params.dprob + row;
  ptx::store(to, ptx::load(const_cast<const float*>(to)) + total);
}

GEMMULE_DEVICE void dglu_finish(const DgluFinishParams& params) {
  ptx::launch_next_grid();
  ptx::wait_for_previous_grid();
  const u32 bias_ctas = static_cast<u32>(finish_bias_ctas(params));
  const u32 cta = ptx::cta_index();
  if (cta < bias_ctas)
    finish_dbias(params, cta);
  else
    finish_dprob(params, cta - bias_ctas);
}

}  // namespace gemmule::kernels
