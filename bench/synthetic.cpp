#include "synthetic.hpp"

#include <algorithm>
#include <limits>

#include "layout/scale_factors.hpp"
#include "numerics/formats.hpp"

namespace gemmule::bench {
namespace {

/// xorshift: fast enough to fill gigabytes.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  std::uint64_t bits() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }
  /// Uniform in [-1, 1).
  float real() { return static_cast<float>(static_cast<std::int64_t>(bits()) >> 40) * 0x1p-23f; }

 private:
  std::uint64_t state_;
};

void fill_values(Random& random, DType dtype, void* out, std::int64_t values) {
  auto* bytes = static_cast<std::uint8_t*>(out);
  auto* words = static_cast<std::uint16_t*>(out);
  for (std::int64_t i = 0; i < values; ++i) {
    switch (dtype) {
      case DType::bfloat16:
        words[i] = numerics::encode_bf16(random.real());
        break;
      case DType::float8_e4m3fn:
        bytes[i] = numerics::encode_e4m3(random.real() * 8);
        break;
      case DType::float8_e5m2:
        bytes[i] = numerics::encode_e5m2(random.real() * 8);
        break;
      default:  // two e2m1 codes
        if (i % 2 == 0) bytes[i / 2] = static_cast<std::uint8_t>(random.bits() >> 20);
    }
  }
}

void fill_scales(Random& random, DType scale, std::uint8_t* out, std::int64_t count) {
  const int base = scale == DType::float8_e4m3fn ? 0x28 : 120;  // 0.25; 2^-7
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = static_cast<std::uint8_t>(base + static_cast<int>(random.bits() >> 62));
}

std::int64_t values_in(DType dtype, std::int64_t bytes) {
  return dtype == DType::float4_e2m1fn_x2 ? 2 * bytes : bytes / static_cast<std::int64_t>(size_of(dtype));
}

}  // namespace

void* HostMemory::allocate(std::int64_t bytes) {
  // 64 bytes more than needed, to start on a cache line.
  blocks_.push_back(std::make_unique<std::uint8_t[]>(static_cast<std::size_t>(bytes) + 64));
  std::uint8_t* data = blocks_.back().get();
  return data + (64 - reinterpret_cast<std::uintptr_t>(data) % 64) % 64;
}

std::int64_t storage_bytes(DType dtype, std::int64_t values) {
  return dtype == DType::float4_e2m1fn_x2 ? values / 2 : values * static_cast<std::int64_t>(size_of(dtype));
}

void fill_random(Memory& memory, DType dtype, void* to, std::int64_t values, std::uint64_t seed) {
  Random random(seed);
  memory.fill(to, storage_bytes(dtype, values), [&](void* host, std::int64_t bytes) {
    fill_values(random, dtype, host, values_in(dtype, bytes));
  });
}

template <class T>
T* Synthetic::allocate(std::int64_t count) {
  const std::int64_t bytes = count * static_cast<std::int64_t>(sizeof(T));
  bytes_ += static_cast<double>(bytes);
  return static_cast<T*>(memory_.allocate(bytes));
}

Synthetic::Synthetic(const Problem& p, const std::vector<std::int64_t>& rows, std::uint64_t seed,
                     Memory& memory)
    : memory_(memory) {
  Random random(seed);
  auto* offsets = allocate<std::int32_t>(p.experts);
  std::int64_t m = 0;
  memory.fill(offsets, p.experts * 4, [&](void* host, std::int64_t) {
    for (int g = 0; g < p.experts; ++g)
      static_cast<std::int32_t*>(host)[g] = static_cast<std::int32_t>(m += rows[g]);
  });
  Operands& o = operands_;
  o.m = m;
  o.padded_offsets = offsets;

  const auto values = [&](DType dtype, std::int64_t count) {
    auto* data = allocate(storage_bytes(dtype, count));
    fill_random(memory, dtype, data, count, random.bits());
    return data;
  };
  const auto scales = [&](std::int64_t copies, std::int64_t outer) {
    const std::int64_t count = copies * layout::scale_buffer_bytes(outer, p.k, p.vec);
    auto* data = allocate(count);
    memory.fill(data, count, [&](void* host, std::int64_t bytes) {
      fill_scales(random, p.scale, static_cast<std::uint8_t*>(host), bytes);
    });
    return data;
  };
  const auto floats = [&](std::int64_t count, float low, float high) {
    auto* data = allocate<float>(count);
    memory.fill(data, count * 4, [&](void* host, std::int64_t bytes) {
      for (std::int64_t i = 0; i < bytes / 4; ++i)
        static_cast<float*>(host)[i] = low + (high - low) * (random.real() * 0.5f + 0.5f);
    });
    return data;
  };
  o.a = values(p.ab, m * p.k);
  o.b = values(p.ab, p.experts * p.n * p.k);
  if (p.scale != DType::none) {
    o.sfa = scales(1, m);
    o.sfb = scales(p.experts, p.n);
  }
  o.alpha = floats(p.experts, 0.01f, 0.1f);
  o.beta = floats(p.experts, 0.5f, 1.5f);
  o.prob = floats(m, 0, 1);
  o.norm_const = floats(1, 1, 1);

  const std::int64_t width = p.op == Op::srelu ? p.n : 2 * p.n;
  auto* c = p.op == Op::srelu ? allocate(storage_bytes(p.c, m * width)) : values(p.c, m * width);
  o.c_out = c;
  o.c_in = c;
  o.d = allocate(storage_bytes(p.d, m * width));
  if (p.quantize) {
    o.d_col = allocate(storage_bytes(p.d, m * width));
    o.sfd_row = allocate(layout::scale_buffer_bytes(m, width, 32));
    o.sfd_col = allocate(layout::scale_buffer_bytes(width, m, 32));
  }
  const std::int64_t maxima = p.experts * (p.op == Op::srelu ? 1 : 2);
  o.amax = allocate<float>(maxima);
  memory.fill(o.amax, maxima * 4, [](void* host, std::int64_t bytes) {
    std::fill_n(static_cast<float*>(host), bytes / 4, -std::numeric_limits<float>::infinity());
  });
  o.dprob = allocate<float>(m);
  o.dbias = allocate<std::uint16_t>(p.experts * width);
}

}  // namespace gemmule::bench
