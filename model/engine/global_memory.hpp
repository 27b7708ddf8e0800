// Global memory: the allocations a kernel may touch, and which CTA last touched every two bytes of them in this launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/report.hpp"

namespace gemmule::model {

struct Thread;

enum class Access : std::uint8_t {
  read_only,
  read_write,
  write_once,  ///< each byte at most once in a launch: an output whose tiles must not overlap
};
enum class GlobalUse : std::uint8_t { read, write, atomic };

class GlobalMemory {
 public:
  /// Registers host memory as device memory. `initialised`: reading it before writing it is fine. `constant`: no earlier
  /// grid writes it, so it may be read before griddepcontrol.wait.
  void add(const void* base, std::size_t bytes, std::string name, Access access, bool initialised = true,
           bool constant = false);
  template <typename T>
  void add(std::vector<T>& values, std::string name, Access access, bool initialised = true,
           bool constant = false) {
    add(values.data(), values.size() * sizeof(T), std::move(name), access, initialised, constant);
  }
  void begin_launch();

  /// Checks one access of a thread, made by itself or by an asynchronous operation it issued. True: go ahead.
  bool check(Thread& t, const void* address, std::size_t bytes, std::size_t alignment, GlobalUse use,
             Site site);
  bool contains(const void* address, std::size_t bytes) { return find(address, bytes) != nullptr; }

 private:
  struct Cell {
    std::uint16_t writer = 0;  ///< 1 + CTA; top bit: by an atomic
    std::uint16_t reader = 0;  ///< 1 + CTA; 0xffff: several
  };
  struct Allocation {
    const std::uint8_t* base;
    std::size_t bytes;
    std::string name;
    Access access;
    bool constant;
    std::vector<Cell> cells;
    std::vector<bool> initialised;  ///< per cell; empty: all
  };
  Allocation* find(const void* address, std::size_t bytes);

  std::vector<Allocation> allocations_;
  std::size_t last_ = 0;
};

}  // namespace gemmule::model
