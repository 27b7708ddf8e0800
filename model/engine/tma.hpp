// Bulk copies of boxes between global tensors and shared memory.
#pragma once

#include <cstdint>
#include <optional>

#include "backends/cuda/tensor_map.hpp"
#include "engine/machine.hpp"

namespace gemmule::model {

/// How the model sees the 128 bytes of a tensor map: the plain description, in place of the driver's encoding.
void place_tensor_map(const cuda::TensorMap& map, void* encoded);

struct Box {
  const void* map = nullptr;
  int rank = 0;
  std::int32_t at[5] = {};
};

/// `ctas`: bit r set: into CTA r of the cluster; without it into the own CTA.
void tma_load(Thread& t, std::uint32_t to, const Box& box, std::uint32_t barrier,
              std::optional<std::uint32_t> ctas, Site site);
/// cp.async.bulk without a tensor map: contiguous bytes, in units of 16.
void bulk_load(Thread& t, std::uint32_t to, const void* from, std::uint32_t bytes, std::uint32_t barrier,
               Site site);
/// With .cta_group::2: the barrier is that of either CTA of the destination's pair.
void tma_load_pair(Thread& t, std::uint32_t to, const Box& box, std::uint32_t barrier,
                   std::optional<std::uint32_t> ctas, Site site);
void tma_store(Thread& t, const Box& box, std::uint32_t from, Site site);
void tma_prefetch(Thread& t, const void* map, Site site);
void bulk_commit(Thread& t);
void bulk_wait(Thread& t, int pending, bool read_only);
/// st.async: 16 bytes into another CTA, completed on a barrier there.
void store_async(Thread& t, std::uint32_t to, const void* value, std::uint32_t barrier, Site site);

void replace_map_address(Thread& t, void* map, std::uint64_t address, Site site);
void acquire_map(Thread& t, const void* map);

}  // namespace gemmule::model
