// The instructions of the kernels' ptx/ on the host: same files, same functions, the instruction's meaning on the model.
// Each function ends in a defaulted Site, so that a report can name the kernel's line.
#pragma once

#include "engine/machine.hpp"
#include "numerics/config.hpp"

#define GEMMULE_DEVICE inline __attribute__((always_inline))

namespace gemmule::ptx {

using u8 = numerics::u8;
using u16 = numerics::u16;
using u32 = numerics::u32;
using u64 = numerics::u64;
using i32 = numerics::i32;
using i64 = numerics::i64;

struct alignas(8) U32x2 {
  u32 x, y;
};
struct alignas(16) U32x4 {
  u32 x, y, z, w;
};
struct alignas(8) F32x2 {
  float x, y;
};

using model::Site;

/// The device thread and whether the instruction is executed (a mutant may leave it out). Other threads may run first.
struct Entry {
  model::Thread& t;
  bool executed;
  explicit operator bool() const { return executed; }
};
inline Entry enter(model::Op op, Site site, i64 bytes = 0) {
  model::Thread& t = model::current();
  t.machine->preempt(t);
  return {t, t.machine->enter(op, site, bytes)};
}

}  // namespace gemmule::ptx
