// Rules about devices, addresses and the values that the host can read.
#include <array>
#include <cmath>
#include <cstdio>
#include <vector>

#include "operators/checks.hpp"
#include "operators/environment.hpp"

namespace gemmule::operators {
namespace {

bool on_host(const Tensor& t) {
  return t.device.type == DeviceType::cpu || t.device.type == DeviceType::cuda_host;
}

bool same_memory(const Tensor& x, const Tensor& y) {
  return on_host(x) ? on_host(y) : x.device == y.device;
}

bool empty(const Tensor& t) {
  for (int i = 0; i < t.rank; ++i)
    if (t.shape[static_cast<std::size_t>(i)] == 0) return true;
  return false;
}

std::string address(const void* data) {
  std::array<char, 32> out{};
  std::snprintf(out.data(), out.size(), "%p", data);
  return out.data();
}

/// Bytes from the first to the last element that the call may touch.
std::int64_t span_bytes(const Arguments& args, Role role, const Extents& e) {
  const Tensor& t = args[role];
  if (empty(t)) return 0;
  std::int64_t last = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(t.rank); ++i) last += (t.shape[i] - 1) * t.strides[i];
  const std::int64_t bytes = (last + 1) * static_cast<std::int64_t>(size_of(t.dtype));
  return t.dtype == DType::uint8 && e.uint8_counts_values ? bytes / 2
                                                          : bytes;  // the second half is never read
}

/// The values of a tensor where they can be read: in host memory, or a copy made on request. Null otherwise.
template <class T>
class Values {
 public:
  Values(const Tensor& t, const Stream* device_reads) {
    if (!t.present() || empty(t)) return;
    if (on_host(t)) {
      data_ = static_cast<const T*>(t.data);
    } else if (device_reads) {
      copy_.resize(static_cast<std::size_t>(t.numel()));
      if (read_device_values(t, copy_.data(), *device_reads)) data_ = copy_.data();
    }
  }
  explicit operator bool() const { return data_; }
  const T& operator[](std::int64_t i) const { return data_[i]; }

 private:
  std::vector<T> copy_;
  const T* data_ = nullptr;
};

void check_offset_values(const Arguments& args, std::int64_t m, int m_aligned, const Stream* device_reads) {
  const Values<std::int32_t> ends(args[Role::padded_offsets], device_reads);
  if (!ends) return;
  const std::int64_t experts = args[Role::padded_offsets].shape[0];
  std::int32_t previous = 0;
  for (std::int64_t g = 0; g < experts; ++g) {
    const std::int32_t end = ends[g];
    if (end >= previous && (end & (m_aligned - 1)) == 0 && end <= m) {  // m_aligned is a power of two
      previous = end;
      continue;
    }
    const std::string value = std::to_string(end) + " for expert " + std::to_string(g);
    if (end < previous)
      reject(args.name(Role::padded_offsets), value,
             "at least " + std::to_string(previous) + ", where its rows begin");
    if (end % m_aligned != 0)
      reject(args.name(Role::padded_offsets), value, "a multiple of " + std::to_string(m_aligned));
    reject(args.name(Role::padded_offsets), value,
           "at most " + std::to_string(m) + ", the rows of " + args.name(Role::a));
  }
}

void check_norm_const_value(const Arguments& args, const Stream* device_reads) {
  const Values<float> value(args[Role::norm_const], device_reads);
  if (value && !(std::isfinite(value[0]) && value[0] > 0))
    reject(args.name(Role::norm_const), std::to_string(value[0]), "a finite value > 0");
}

void check_pointer_values(const Arguments& args, Role role, const Stream* device_reads) {
  const Values<std::int64_t> pointers(args[role], device_reads);
  if (!pointers) return;
  for (std::int64_t g = 0; g < args[role].shape[0]; ++g)
    if (pointers[g] == 0 || pointers[g] % 16 != 0)
      reject(args.name(role), std::to_string(pointers[g]) + " for expert " + std::to_string(g),
             "an address that is a multiple of 16 bytes");
}

}  // namespace

void check_devices(const Arguments& args) {
  const Tensor& a = args[Role::a];
  if (!on_host(a) && a.device.type != DeviceType::cuda)
    reject(args.name(Role::a), "device type " + std::to_string(static_cast<int>(a.device.type)),
           "cpu or cuda");
  for (std::size_t i = 0; i < role_count; ++i) {
    const Role role = role_at(i);
    if (args.has(role) && !same_memory(args[role], a))
      reject(args.name(role), "device " + gemmule::name(args[role].device),
             gemmule::name(a.device) + " as " + args.name(Role::a));
  }
}

void check_addresses(const Arguments& args, Needed needed) {
  for (std::size_t i = 0; i < role_count; ++i) {
    const Role role = role_at(i);
    const Tensor& t = args[role];
    if (!t.present()) continue;
    if (!t.data && !empty(t) &&
        (needed == Needed::all || (needed == Needed::inputs && !is_output(args.op, role))))
      reject(args.name(role), "null data", "an address");
    const unsigned alignment = role == Role::b_ptrs || role == Role::sfb_ptrs ? 8 : 16;
    if (reinterpret_cast<std::uintptr_t>(t.data) % alignment != 0)
      reject(args.name(role), "address " + address(t.data),
             "a multiple of " + std::to_string(alignment) + " bytes");
  }
}

void check_overlap(const Arguments& args, const Extents& e, bool quantize) {
  struct Range {
    std::uintptr_t begin = 0, end = 0;
  };
  std::array<Range, role_count> ranges{};
  for (std::size_t i = 0; i < role_count; ++i) {
    if (!args.has(role_at(i))) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(args[role_at(i)].data);
    ranges[i] = {begin, begin + static_cast<std::uintptr_t>(span_bytes(args, role_at(i), e))};
  }
  for (std::size_t i = 0; i < role_count; ++i) {
    if (!is_output(args.op, role_at(i)) || ranges[i].begin == ranges[i].end) continue;
    for (std::size_t j = 0; j < role_count; ++j) {
      if (i == j || ranges[j].begin >= ranges[i].end || ranges[i].begin >= ranges[j].end) continue;
      const bool copies = !quantize && ((role_at(i) == Role::d && role_at(j) == Role::d_col) ||
                                        (role_at(i) == Role::d_col && role_at(j) == Role::d));
      if (copies && ranges[i].begin == ranges[j].begin) continue;  // d_col gets d's values
      reject(args.name(role_at(i)), "address " + address(args[role_at(i)].data),
             "memory that " + args.name(role_at(j)) + " does not use");
    }
  }
}

void check_rows(const Arguments& args, const Problem& p, std::int64_t m) {
  const bool from_a = p.single_group_runtime_offsets;
  if ((from_a || !p.block_scaled()) && m % p.m_aligned != 0)
    reject(args.name(Role::a), "M = " + std::to_string(m),
           "a multiple of m_aligned = " + std::to_string(p.m_aligned) +
               (from_a ? " with use_single_group_runtime_offsets" : " with BF16"));
}

void check_values(const Arguments& args, const Problem& p, std::int64_t m, const Stream* device_reads) {
  if (!p.single_group_runtime_offsets) check_offset_values(args, m, p.m_aligned, device_reads);
  if (p.quantize) check_norm_const_value(args, device_reads);
  check_pointer_values(args, Role::b_ptrs, device_reads);
  check_pointer_values(args, Role::sfb_ptrs, device_reads);
}

void check_memory(const Arguments& args, const PlanKey& key, Needed needed) {
  check_addresses(args, needed);
  check_values(args, key.problem, args[Role::a].shape[0]);
  check_available(key.problem, key.backend, key.device);
}

Device memory_of(const Tensor& t) {
  return on_host(t) ? Device{} : t.device;
}

Backend check_backend(const Arguments& args, Backend backend) {
  const Tensor& a = args[Role::a];
  const Backend natural = on_host(a) ? Backend::cpu : Backend::cuda;
  if (backend == Backend::automatic) backend = natural;
  if (backend > Backend::cuda) reject("backend", std::to_string(static_cast<int>(backend)), "a Backend");
  if ((backend == Backend::cuda) != (natural == Backend::cuda))
    reject("backend", gemmule::name(backend),
           std::string(gemmule::name(natural)) + " for tensors on " + gemmule::name(a.device));
  if (backend == Backend::cpu) check_thread_environment();
  return backend;
}

}  // namespace gemmule::operators
