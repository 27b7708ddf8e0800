// The shared memory of one CTA and the history of every few bytes of it: who wrote them last, who has read them since.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/clock.hpp"
#include "engine/report.hpp"

namespace gemmule::model {

struct Thread;
struct Cta;
class Machine;

/// Shared addresses are 32 bits: offset in the low 24, and above them 0 for the own CTA or 1 + rank in the cluster.
/// The first kilobyte belongs to the system, so address 0 is never valid.
inline constexpr std::uint32_t shared_base = 1024;
inline constexpr std::uint32_t rank_shift = 24;

class SharedMemory {
 public:
  struct Cell {
    Epoch write;    ///< last writer; none: uninitialised
    Epoch read[2];  ///< readers since
    int more = -1;  ///< further readers: index into overflow_
  };

  void resize(std::uint32_t bytes, int granule, std::uint64_t poison);
  std::uint32_t end() const { return shared_base + size_; }
  bool contains(std::uint32_t offset, std::uint32_t bytes) const {
    return offset >= shared_base && bytes <= size_ && offset - shared_base <= size_ - bytes;
  }
  std::uint8_t* at(std::uint32_t offset) { return bytes_.data() + (offset - shared_base); }
  void poison(std::uint32_t offset, std::uint32_t bytes);

  std::uint32_t first_cell(std::uint32_t offset) const { return (offset - shared_base) >> shift_; }
  std::uint32_t last_cell(std::uint32_t offset, std::uint32_t bytes) const {
    return (offset - shared_base + bytes - 1) >> shift_;
  }
  Cell& cell(std::uint32_t index) { return cells_[index]; }
  std::uint32_t address_of_cell(std::uint32_t index) const { return shared_base + (index << shift_); }
  /// Remembers a reader. Readers `clock` has observed are dropped: whoever is ordered after this read is after them.
  void add_reader(Cell& cell, Epoch reader, const Clock& clock);
  void set_writer(Cell& cell, Epoch writer) {
    if (cell.more >= 0) release(cell);
    cell.write = writer;
    cell.read[0] = cell.read[1] = Epoch();
  }
  template <typename F>
  void each_reader(const Cell& cell, F&& f) const {
    if (cell.read[0]) f(cell.read[0]);
    if (cell.read[1]) f(cell.read[1]);
    if (cell.more >= 0) {
      for (Epoch e : overflow_[static_cast<std::size_t>(cell.more)]) f(e);
    }
  }

 private:
  void release(Cell& cell);

  std::uint32_t size_ = 0;
  int shift_ = 2;
  std::uint64_t poison_ = 0;
  std::vector<std::uint8_t> bytes_;
  std::vector<Cell> cells_;
  std::vector<std::vector<Epoch>> overflow_;
  std::vector<int> free_overflow_;
};

/// The CTA and offset an address names for a thread; null if there is no such CTA in the cluster.
Cta* resolve(Thread& t, std::uint32_t address, std::uint32_t& offset);
std::uint32_t map_rank(std::uint32_t address, std::uint32_t rank);  ///< mapa

/// A generic load or store of `bytes` at `address`: bounds, alignment, order. Null if the access cannot be done.
std::uint8_t* generic_access(Thread& t, std::uint32_t address, std::uint32_t bytes, bool write, Site site);

/// Reads of 16-byte chunks by the async proxy on behalf of `issuers` (all of them must have observed what it depends on), stamped
/// `stamp`. The bytes themselves are moved by the caller when the operation takes effect.
bool async_read_chunks(Machine& m, Thread* const* issuers, int count, Cta& cta,
                       const std::vector<std::uint32_t>& chunks, Epoch stamp, Site site);
/// A write by the async proxy.
bool async_write(Machine& m, Thread& issuer, Cta& cta, std::uint32_t offset, std::uint32_t bytes, Epoch stamp,
                 Site site);

}  // namespace gemmule::model
