// Global memory.
#pragma once

#include <cstring>

#include "ptx/types.hpp"

namespace gemmule::ptx {

template <class T>
T global_load(const T* from, Site site) {
  Entry e = enter(model::Op::global_load, site, sizeof(T));
  T value{};
  if (e && e.t.machine->memory().check(e.t, from, sizeof(T), sizeof(T), model::GlobalUse::read, site)) {
    std::memcpy(&value, from, sizeof(T));
  }
  return value;
}
template <class T>
void global_store(T* to, T value, Site site) {
  Entry e = enter(model::Op::global_store, site, sizeof(T));
  if (e && e.t.machine->memory().check(e.t, to, sizeof(T), sizeof(T), model::GlobalUse::write, site)) {
    std::memcpy(to, &value, sizeof(T));
  }
}
template <class T>
T global_add(T* to, T value, Site site) {
  Entry e = enter(model::Op::global_atomic, site, sizeof(T));
  T old{};
  if (e && e.t.machine->memory().check(e.t, to, sizeof(T), sizeof(T), model::GlobalUse::atomic, site)) {
    old = *to;
    *to = old + value;
  }
  return old;
}

inline float load(const float* from, Site site = Site::here()) {
  return global_load(from, site);
}
inline i32 load(const i32* from, Site site = Site::here()) {
  return global_load(from, site);
}
inline u16 load(const u16* from, Site site = Site::here()) {
  return global_load(from, site);
}
inline i64 load(const i64* from, Site site = Site::here()) {
  return global_load(from, site);
}
inline u64 load(const u64* from, Site site = Site::here()) {
  return global_load(from, site);
}
inline U32x4 load(const U32x4* from, Site site = Site::here()) {
  return global_load(from, site);
}
inline void store(float* to, float value, Site site = Site::here()) {
  global_store(to, value, site);
}
inline void store(u32* to, u32 value, Site site = Site::here()) {
  global_store(to, value, site);
}
inline void store(u16* to, u16 value, Site site = Site::here()) {
  global_store(to, value, site);
}
inline void store(u8* to, u8 value, Site site = Site::here()) {
  global_store(to, value, site);
}
inline void store(u64* to, u64 value, Site site = Site::here()) {
  global_store(to, value, site);
}
inline void store(U32x4* to, U32x4 value, Site site = Site::here()) {
  global_store(to, value, site);
}
inline void reduce_max(i32* to, i32 value, Site site = Site::here()) {
  Entry e = enter(model::Op::global_atomic, site, sizeof(i32));
  if (e && e.t.machine->memory().check(e.t, to, sizeof(i32), sizeof(i32), model::GlobalUse::atomic, site))
    *to = *to > value ? *to : value;
}
inline void reduce_add(float* to, float value, Site site = Site::here()) {
  global_add(to, value, site);
}
inline u32 fetch_add(u32* to, u32 value, Site site = Site::here()) {
  return global_add(to, value, site);
}

}  // namespace gemmule::ptx
