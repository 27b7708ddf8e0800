// Shared memory, reached only through typed 32-bit handles (byte addresses in the shared window of this CTA).
#pragma once

#include <cstring>

#include "ptx/types.hpp"

namespace gemmule::ptx {

template <class T>
struct Shared {
  u32 address;

  Shared operator+(u32 index) const { return {address + index * u32(sizeof(T))}; }
  template <class U>
  Shared<U> as() const {
    return {address};
  }
  Shared bytes(u32 offset) const { return {address + offset}; }
};

inline Shared<u8> dynamic_shared() {
  return {model::shared_base};
}

template <class T>
T shared_load(Shared<T> from, Site site) {
  model::Thread& t = model::current();
  T value{};
  if (!t.machine->enter(model::Op::shared_load, site, sizeof(T))) return value;
  if (const u8* p = model::generic_access(t, from.address, sizeof(T), false, site))
    std::memcpy(&value, p, sizeof(T));
  return value;
}

template <class T>
void shared_store(Shared<T> to, T value, Site site) {
  model::Thread& t = model::current();
  if (!t.machine->enter(model::Op::shared_store, site, sizeof(T))) return;
  if (u8* p = model::generic_access(t, to.address, sizeof(T), true, site)) std::memcpy(p, &value, sizeof(T));
}

inline u32 load(Shared<u32> from, Site site = Site::here()) {
  return shared_load(from, site);
}
inline i32 load(Shared<i32> from, Site site = Site::here()) {
  return shared_load(from, site);
}
inline float load(Shared<float> from, Site site = Site::here()) {
  return shared_load(from, site);
}
inline F32x2 load(Shared<F32x2> from, Site site = Site::here()) {
  return shared_load(from, site);
}
inline U32x4 load(Shared<U32x4> from, Site site = Site::here()) {
  return shared_load(from, site);
}
inline U32x2 load(Shared<U32x2> from, Site site = Site::here()) {
  return shared_load(from, site);
}
inline void store(Shared<u8> to, u8 value, Site site = Site::here()) {
  shared_store(to, value, site);
}
inline void store(Shared<U32x2> to, U32x2 value, Site site = Site::here()) {
  shared_store(to, value, site);
}
inline void store(Shared<u32> to, u32 value, Site site = Site::here()) {
  shared_store(to, value, site);
}
inline void store(Shared<float> to, float value, Site site = Site::here()) {
  shared_store(to, value, site);
}
inline void store(Shared<F32x2> to, F32x2 value, Site site = Site::here()) {
  shared_store(to, value, site);
}
inline void store(Shared<U32x4> to, U32x4 value, Site site = Site::here()) {
  shared_store(to, value, site);
}

}  // namespace gemmule::ptx
