#include "engine/tma.hpp"

#include <algorithm>
#include <cstring>

#include "engine/barriers.hpp"
#include "engine/wgmma.hpp"

namespace gemmule::model {

void place_tensor_map(const cuda::TensorMap& map, void* encoded) {
  static_assert(sizeof(cuda::TensorMap) <= 128);
  std::memset(encoded, 0, 128);
  std::memcpy(encoded, &map, sizeof map);
}

namespace {

cuda::TensorMap read_map(const void* encoded) {
  cuda::TensorMap map;
  std::memcpy(&map, encoded, sizeof map);
  return map;
}

std::uint32_t swizzle_span(cuda::Swizzle swizzle) {
  static constexpr std::uint32_t spans[] = {16, 32, 64, 128};
  return spans[static_cast<std::size_t>(swizzle)];
}

/// A box of a map at a place: its rows of contiguous bytes, and where each goes in shared memory.
class Transfer {
 public:
  Transfer(const cuda::TensorMap& map, const std::int32_t* at) : map_(map) {
    std::copy_n(at, map.rank, at_);
    element_ = static_cast<std::uint32_t>(cuda::element_bits(map.element)) / 8;
    row_bytes_ = map.box[0] * element_;
    for (int d = 1; d < map.rank; ++d) rows_ *= map.box[d];
  }
  std::uint32_t bytes() const { return row_bytes_ * rows_; }
  std::uint32_t row_bytes() const { return row_bytes_; }
  std::uint32_t rows() const { return rows_; }

  struct Row {
    const std::uint8_t* global = nullptr;  ///< first byte inside the tensor
    std::uint32_t first = 0, count = 0;    ///< bytes of the row inside the tensor
  };
  Row row(std::uint32_t index) const {
    std::uint64_t address = map_.base;
    for (int d = 1; d < map_.rank; ++d) {
      const std::int64_t x = at_[d] + static_cast<std::int64_t>(index % map_.box[d]);
      index /= map_.box[d];
      if (x < 0 || x >= static_cast<std::int64_t>(map_.extent[d])) return {};
      address += static_cast<std::uint64_t>(x) * map_.stride[d - 1];
    }
    const std::int64_t begin = std::max<std::int64_t>(at_[0], 0);
    const std::int64_t end = std::min<std::int64_t>(static_cast<std::int64_t>(at_[0]) + map_.box[0],
                                                    static_cast<std::int64_t>(map_.extent[0]));
    if (begin >= end) return {};
    return {reinterpret_cast<const std::uint8_t*>(address) + begin * element_,
            static_cast<std::uint32_t>(begin - at_[0]) * element_,
            static_cast<std::uint32_t>(end - begin) * element_};
  }
  /// Shared address of a 16-byte chunk of a row, for a box at `to`.
  std::uint32_t chunk(std::uint32_t to, std::uint32_t row_index, std::uint32_t chunk_index) const {
    return swizzle_address(to + row_index * row_bytes_ + chunk_index * 16, swizzle_span(map_.swizzle));
  }
  /// Out-of-bounds elements: zeros, or NaN.
  void fill(std::uint8_t* row) const {
    std::memset(row, map_.fill == cuda::Fill::nan ? 0xff : 0, row_bytes_);
  }

 private:
  cuda::TensorMap map_;
  std::int32_t at_[5] = {};
  std::uint32_t element_ = 0, row_bytes_ = 0, rows_ = 1;
};

bool legal(Thread& t, const Box& box, std::uint32_t shared, Site site) {
  Machine& m = *t.machine;
  const auto refuse = [&](Hazard kind, const std::string& why) {
    m.hazard(kind, site, [&] { return t.label() + ": " + why; });
    return false;
  };
  if (reinterpret_cast<std::uintptr_t>(box.map) % 64 != 0) {
    return refuse(Hazard::misaligned, "the tensor map is not 64-byte aligned");
  }
  const cuda::TensorMap map = read_map(box.map);
  const std::string rule = cuda::illegal(map);
  if (!rule.empty()) return refuse(Hazard::illegal_tensor_map, rule);
  if (map.rank != box.rank) {
    return refuse(Hazard::illegal_tensor_map, "a tensor of rank " + std::to_string(map.rank) +
                                                  " copied with " + std::to_string(box.rank) +
                                                  " coordinates");
  }
  if (cuda::element_bits(map.element) < 8)
    return refuse(Hazard::illegal_tensor_map, "4-bit elements are not modelled");
  const std::uint32_t span = swizzle_span(map.swizzle);
  const Transfer transfer(map, box.at);
  if (span > 16 && transfer.row_bytes() != span) {
    return refuse(Hazard::illegal_tensor_map, "rows of " + std::to_string(transfer.row_bytes()) +
                                                  " bytes under a swizzle of " + std::to_string(span) +
                                                  " are not modelled");
  }
  const std::uint32_t alignment = span > 16 ? 8 * span : 128;
  if (shared % alignment != 0) {
    return refuse(Hazard::misaligned, "shared address " + std::to_string(shared) + " is not a multiple of " +
                                          std::to_string(alignment));
  }
  if (m.memory().contains(box.map, 128) && !m.map_acquired(t, box.map)) {
    return refuse(
        Hazard::missing_proxy_fence,
        "a tensor map in global memory is used without fence.proxy.tensormap acquire by this thread");
  }
  return true;
}

/// Checks every global byte the transfer touches.
void check_global(Thread& t, const Transfer& transfer, GlobalUse use, Site site) {
  for (std::uint32_t r = 0; r < transfer.rows(); ++r) {
    const Transfer::Row row = transfer.row(r);
    if (row.count > 0 && !t.machine->memory().check(t, row.global, row.count, 1, use, site)) return;
  }
}

/// A load into one CTA: the bytes land and the barrier there counts them.
class Load : public AsyncOp {
 public:
  Load(const Transfer& transfer, Cta& cta, std::uint32_t to, Mbarrier& barrier, Site site)
      : transfer_(transfer), cta_(cta), to_(to), barrier_(barrier), phase_(barrier.phase), site_(site) {}

 protected:
  void run(Machine& m) override {
    std::vector<std::uint8_t> bytes(transfer_.row_bytes());
    for (std::uint32_t r = 0; r < transfer_.rows(); ++r) {
      const Transfer::Row row = transfer_.row(r);
      if (row.count < bytes.size()) transfer_.fill(bytes.data());
      if (row.count > 0 && m.memory().contains(row.global, row.count)) {
        std::memcpy(bytes.data() + row.first, row.global, row.count);
      }
      for (std::uint32_t c = 0; c * 16 < bytes.size(); ++c) {
        std::memcpy(cta_.shared.at(transfer_.chunk(to_, r, c)), bytes.data() + c * 16, 16);
      }
    }
    complete_bytes(m, barrier_, phase_, transfer_.bytes(), site_);
  }

 private:
  Transfer transfer_;
  Cta& cta_;
  std::uint32_t to_;
  Mbarrier& barrier_;
  int phase_;
  Site site_;
};

/// The second half of a store: the bytes read from shared memory reach global memory.
class StoreWrite : public AsyncOp {
 public:
  StoreWrite(const Transfer& transfer, std::vector<std::uint8_t> bytes)
      : transfer_(transfer), bytes_(std::move(bytes)) {}

 protected:
  void run(Machine& m) override {
    for (std::uint32_t r = 0; r < transfer_.rows(); ++r) {
      const Transfer::Row row = transfer_.row(r);
      if (row.count == 0 || !m.memory().contains(row.global, row.count)) continue;
      std::memcpy(const_cast<std::uint8_t*>(row.global),
                  bytes_.data() + r * transfer_.row_bytes() + row.first, row.count);
    }
  }

 private:
  Transfer transfer_;
  std::vector<std::uint8_t> bytes_;
};

class StoreRead : public AsyncOp {
 public:
  StoreRead(const Transfer& transfer, Cta& cta, std::uint32_t from)
      : transfer_(transfer), cta_(cta), from_(from) {}
  AsyncOpPtr write;  ///< set once the bytes are read

 protected:
  void run(Machine& m) override {
    std::vector<std::uint8_t> bytes(transfer_.bytes());
    for (std::uint32_t r = 0; r < transfer_.rows(); ++r) {
      for (std::uint32_t c = 0; c * 16 < transfer_.row_bytes(); ++c) {
        std::memcpy(bytes.data() + r * transfer_.row_bytes() + c * 16,
                    cta_.shared.at(transfer_.chunk(from_, r, c)), 16);
      }
    }
    write = std::make_shared<StoreWrite>(transfer_, std::move(bytes));
    m.submit(write);
  }

 private:
  Transfer transfer_;
  Cta& cta_;
  std::uint32_t from_;
};

/// Contiguous bytes into the own CTA.
class BulkLoad : public AsyncOp {
 public:
  BulkLoad(Cta& cta, std::uint32_t to, const void* from, std::uint32_t bytes, Mbarrier& barrier, Site site)
      : cta_(cta),
        to_(to),
        from_(from),
        bytes_(bytes),
        barrier_(barrier),
        phase_(barrier.phase),
        site_(site) {}

 protected:
  void run(Machine& m) override {
    std::memcpy(cta_.shared.at(to_), from_, bytes_);
    complete_bytes(m, barrier_, phase_, bytes_, site_);
  }

 private:
  Cta& cta_;
  std::uint32_t to_;
  const void* from_;
  std::uint32_t bytes_;
  Mbarrier& barrier_;
  int phase_;
  Site site_;
};

/// st.async.
class RemoteStore : public AsyncOp {
 public:
  RemoteStore(Cta& cta, std::uint32_t to, const void* value, Mbarrier& barrier, Site site)
      : cta_(cta), to_(to), barrier_(barrier), phase_(barrier.phase), site_(site) {
    std::memcpy(value_, value, 16);
  }

 protected:
  void run(Machine& m) override {
    std::memcpy(cta_.shared.at(to_), value_, 16);
    complete_bytes(m, barrier_, phase_, 16, site_);
  }

 private:
  Cta& cta_;
  std::uint32_t to_;
  std::uint8_t value_[16];
  Mbarrier& barrier_;
  int phase_;
  Site site_;
};

BulkGroups& bulk_of(Thread& t) {
  if (!t.bulk) {
    t.bulk = std::make_unique<BulkGroups>();
    t.bulk->agent = t.machine->take_agent(*t.cta);
  }
  return *t.bulk;
}

}  // namespace

namespace {

/// One CTA's part of a load: writes there, completes on `barrier`.
void load_into(Thread& t, Cta& cta, std::uint32_t offset, const Transfer& transfer, Mbarrier& barrier,
               Site site) {
  Machine& m = *t.machine;
  const Epoch stamp(barrier.agent, barrier.phase + 1);
  if (!async_write(m, t, cta, offset, transfer.bytes(), stamp, site)) return;
  cta.shared.poison(offset, transfer.bytes());
  OpCount& counter = m.report().counter(Op::tma_load);
  ++counter.calls;
  counter.bytes += transfer.bytes();
  m.submit(std::make_shared<Load>(transfer, cta, offset, barrier, site));
}

void count_fetched(Machine& m, const Transfer& transfer) {
  m.report().counter(Op::tma_load).fetched += transfer.bytes();
}

}  // namespace

void tma_load(Thread& t, std::uint32_t to, const Box& box, std::uint32_t barrier_address,
              std::optional<std::uint32_t> ctas, Site site) {
  Machine& m = *t.machine;
  std::uint32_t offset = 0, barrier_offset = 0;
  if (resolve(t, to, offset) != t.cta || resolve(t, barrier_address, barrier_offset) != t.cta) {
    m.hazard(Hazard::out_of_bounds, site,
             [&] { return t.label() + ": destination or mbarrier outside the own CTA"; });
    return;
  }
  if (!legal(t, box, offset, site)) return;
  const Transfer transfer(read_map(box.map), box.at);
  check_global(t, transfer, GlobalUse::read, site);
  count_fetched(m, transfer);
  for (Cta* cta : multicast_targets(t, ctas, site)) {
    if (Mbarrier* barrier = completion_barrier(t, *cta, barrier_offset, site)) {
      load_into(t, *cta, offset, transfer, *barrier, site);
    }
  }
}

void tma_load_pair(Thread& t, std::uint32_t to, const Box& box, std::uint32_t barrier_address,
                   std::optional<std::uint32_t> ctas, Site site) {
  Machine& m = *t.machine;
  std::uint32_t offset = 0, barrier_offset = 0;
  const Cta* named = resolve(t, barrier_address, barrier_offset);
  if (resolve(t, to, offset) != t.cta || !named || named->rank / 2 != t.cta->rank / 2) {
    m.hazard(Hazard::out_of_bounds, site,
             [&] { return t.label() + ": destination outside the own CTA, or mbarrier outside the pair"; });
    return;
  }
  if (!legal(t, box, offset, site)) return;
  const Transfer transfer(read_map(box.map), box.at);
  check_global(t, transfer, GlobalUse::read, site);
  count_fetched(m, transfer);
  for (Cta* cta : multicast_targets(t, ctas, site)) {
    // The barrier of each destination's pair that lies on the same side as the one named.
    const std::size_t signalled = static_cast<std::size_t>((cta->rank & ~1) | (named->rank & 1));
    if (signalled >= t.cta->cluster->ctas.size() || t.cta->cluster->ctas[signalled]->live == 0) {
      m.hazard(Hazard::out_of_bounds, site, [&] {
        return t.label() + ": load into CTA " + std::to_string(cta->rank) + " with a barrier of CTA " +
               std::to_string(signalled) + ", which is not there (any more)";
      });
      continue;
    }
    if (Mbarrier* barrier = completion_barrier(t, *t.cta->cluster->ctas[signalled], barrier_offset, site)) {
      load_into(t, *cta, offset, transfer, *barrier, site);
    }
  }
}

void bulk_load(Thread& t, std::uint32_t to, const void* from, std::uint32_t bytes,
               std::uint32_t barrier_address, Site site) {
  Machine& m = *t.machine;
  std::uint32_t offset = 0, barrier_offset = 0;
  if (resolve(t, to, offset) != t.cta || resolve(t, barrier_address, barrier_offset) != t.cta) {
    m.hazard(Hazard::out_of_bounds, site,
             [&] { return t.label() + ": destination or mbarrier outside the own CTA"; });
    return;
  }
  if (offset % 16 != 0 || bytes % 16 != 0 || bytes == 0) {
    m.hazard(Hazard::misaligned, site, [&] {
      return t.label() + ": bulk copy of " + std::to_string(bytes) + " bytes to " + std::to_string(offset);
    });
    return;
  }
  if (!m.memory().check(t, from, bytes, 16, GlobalUse::read, site)) return;
  Mbarrier* barrier = completion_barrier(t, *t.cta, barrier_offset, site);
  if (!barrier || !async_write(m, t, *t.cta, offset, bytes, Epoch(barrier->agent, barrier->phase + 1), site))
    return;
  t.cta->shared.poison(offset, bytes);
  OpCount& counter = m.report().counter(Op::tma_load);
  ++counter.calls;
  counter.bytes += bytes;
  counter.fetched += bytes;
  m.submit(std::make_shared<BulkLoad>(*t.cta, offset, from, bytes, *barrier, site));
}

void tma_store(Thread& t, const Box& box, std::uint32_t from, Site site) {
  Machine& m = *t.machine;
  std::uint32_t offset = 0;
  if (resolve(t, from, offset) != t.cta) {
    m.hazard(Hazard::out_of_bounds, site, [&] { return t.label() + ": source outside the own CTA"; });
    return;
  }
  if (!legal(t, box, offset, site)) return;
  for (int d = 0; d < box.rank; ++d) {
    if (box.at[d] >= 0) continue;
    m.hazard(Hazard::global_out_of_bounds, site, [&] {
      return t.label() + ": a box is stored from coordinate " + std::to_string(box.at[d]) +
             " on, before the tensor: an illegal instruction on the device";
    });
    return;
  }
  const Transfer transfer(read_map(box.map), box.at);
  check_global(t, transfer, GlobalUse::write, site);
  BulkGroups& bulk = bulk_of(t);
  Thread* issuer = &t;
  const Epoch stamp(bulk.agent, bulk.committed() + 1);
  // Elements outside the tensor are not stored, so what lies there does not matter.
  std::vector<std::uint32_t> chunks;
  for (std::uint32_t r = 0; r < transfer.rows(); ++r) {
    const Transfer::Row row = transfer.row(r);
    for (std::uint32_t c = row.first / 16; row.count > 0 && c * 16 < row.first + row.count; ++c) {
      chunks.push_back(transfer.chunk(offset, r, c));
    }
  }
  if (!async_read_chunks(m, &issuer, 1, *t.cta, chunks, stamp, site)) return;
  if (!t.cta->shared.contains(offset, transfer.bytes())) return;
  OpCount& counter = m.report().counter(Op::tma_store);
  ++counter.calls;
  counter.bytes += transfer.bytes();
  auto op = std::make_shared<StoreRead>(transfer, *t.cta, offset);
  bulk.open.push_back(op);
  m.submit(std::move(op));
}

void tma_prefetch(Thread& t, const void* map, Site site) {
  if (reinterpret_cast<std::uintptr_t>(map) % 64 == 0) return;
  t.machine->hazard(Hazard::misaligned, site,
                    [&] { return t.label() + ": the tensor map is not 64-byte aligned"; });
}

void bulk_commit(Thread& t) {
  BulkGroups& bulk = bulk_of(t);
  bulk.groups.push_back(std::move(bulk.open));
  bulk.open.clear();
}

void bulk_wait(Thread& t, int pending, bool read_only) {
  if (!t.bulk) return;
  BulkGroups& bulk = *t.bulk;
  while (bulk.groups.size() > static_cast<std::size_t>(pending)) {
    for (const AsyncOpPtr& op : bulk.groups.front()) {
      op->finish(*t.machine);
      bulk.writes.push_back(static_cast<StoreRead&>(*op).write);
    }
    bulk.groups.pop_front();
    ++bulk.retired;
  }
  t.clock.set(bulk.agent, bulk.retired);
  if (read_only) return;
  for (const AsyncOpPtr& op : bulk.writes) op->finish(*t.machine);
  bulk.writes.clear();
}

void store_async(Thread& t, std::uint32_t to, const void* value, std::uint32_t barrier_address, Site site) {
  Machine& m = *t.machine;
  std::uint32_t offset = 0, barrier_offset = 0;
  Cta* cta = resolve(t, to, offset);
  if (!cta || cta->live == 0 || resolve(t, barrier_address, barrier_offset) != cta) {
    m.hazard(Hazard::out_of_bounds, site,
             [&] { return t.label() + ": destination and mbarrier must be in one live CTA"; });
    return;
  }
  if (offset % 16 != 0) {
    m.hazard(Hazard::misaligned, site, [&] { return t.label() + ": st.async to " + std::to_string(offset); });
    return;
  }
  Mbarrier* barrier = completion_barrier(t, *cta, barrier_offset, site);
  if (!barrier || !async_write(m, t, *cta, offset, 16, Epoch(barrier->agent, barrier->phase + 1), site))
    return;
  cta->shared.poison(offset, 16);
  m.submit(std::make_shared<RemoteStore>(*cta, offset, value, *barrier, site));
}

void replace_map_address(Thread& t, void* encoded, std::uint64_t address, Site site) {
  if (!t.machine->memory().check(t, encoded, 128, 128, GlobalUse::write, site)) return;
  cuda::TensorMap map = read_map(encoded);
  map.base = address;
  std::memcpy(encoded, &map, sizeof map);
  t.machine->map_changed(encoded);
}

void acquire_map(Thread& t, const void* map) {
  t.machine->acquire_map(t, map);
}

}  // namespace gemmule::model
