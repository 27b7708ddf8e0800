#include "model/tensor_kernel.hpp"

#include <algorithm>
#include <cstring>
#include <random>

#include "numerics/formats.hpp"

namespace gemmule::test {

namespace {

using ptx::Shared;
using ptx::u32;
using ptx::u64;
using ptx::u8;

constexpr u32 row_bytes = 128;
constexpr u32 a_offset = 0, b_offset = 16384, a_scale_offset = b_offset + 32768,
              b_scale_offset = a_scale_offset + 4096, barrier_offset = b_scale_offset + 8192,
              shared_bytes = barrier_offset + 64;
constexpr u32 epilogue_threads = 128, threads = 160;
constexpr u32 a_scale_column = 256,
              b_scale_column = a_scale_column + 16;  // 4 words of 4; 4 words of 8 columns

u32 b_rows(const TensorCase& c) {
  return c.n / c.ctas;
}
u32 a_rows(const TensorCase& c) {
  return c.m / c.ctas;
}
u32 scale_tiles(u32 rows) {
  return (rows + 127) / 128;
}

/// Where byte `column` of row `row` lies in rows of 128 bytes under the 128-byte swizzle.
u32 swizzled(u32 row, u32 column) {
  return row * row_bytes + ((column / 16) ^ (row % 8)) * 16 + column % 16;
}
/// Element (n, k) of an n-major tile: spans of 128 bytes of n, each with its rows of k (64 spans of k deep at most).
u32 n_major(u32 n, u32 k, u32 depth, u32 element_bytes) {
  const u32 per_span = row_bytes / element_bytes;
  return n / per_span * depth * row_bytes + swizzled(k, n % per_span * element_bytes);
}

struct Codec {
  TensorType type;
  u32 draw(std::mt19937& random) const {
    static constexpr float values[] = {0, 1, -1, 2, -2, 0.5f, -0.5f, 3, -3, 4, 1.5f};
    const float v = values[random() % 11];
    switch (type) {
      case TensorType::bf16:
        return numerics::encode_bf16(v);
      case TensorType::e4m3:
        return numerics::encode_e4m3(v);
      case TensorType::e5m2:
        return numerics::encode_e5m2(v);
      default:
        return numerics::encode_e2m1(v);
    }
  }
  float decode(u32 code) const {
    switch (type) {
      case TensorType::bf16:
        return numerics::decode_bf16(static_cast<std::uint16_t>(code));
      case TensorType::e4m3:
        return numerics::decode_e4m3(static_cast<u8>(code));
      case TensorType::e5m2:
        return numerics::decode_e5m2(static_cast<u8>(code));
      default:
        return numerics::decode_e2m1(static_cast<u8>(code));
    }
  }
  bool e4m3_scales() const { return type == TensorType::nvf4; }
  u8 draw_scale(std::mt19937& random) const {
    if (e4m3_scales()) return numerics::encode_e4m3(0.5f * static_cast<float>(1 + random() % 5));
    return static_cast<u8>(125 + random() % 5);
  }
  float decode_scale(u8 code) const {
    return e4m3_scales() ? numerics::decode_e4m3(code) : numerics::decode_e8m0(code);
  }
};

void put(std::vector<u8>& bytes, std::size_t base, u32 byte, u32 code, u32 bits, u32 nibble) {
  if (bits == 16) {
    const auto value = static_cast<std::uint16_t>(code);
    std::memcpy(bytes.data() + base + byte, &value, 2);
  } else if (bits == 8) {
    bytes[base + byte] = static_cast<u8>(code);
  } else {
    bytes[base + byte] = static_cast<u8>(bytes[base + byte] | code << 4 * nibble);
  }
}

}  // namespace

TensorData::TensorData(const TensorCase& c, std::uint32_t seed) : test(c) {
  std::mt19937 random(seed);
  const Codec codec{c.type};
  const u32 k = c.k(), bits = c.element_bits();
  std::vector<float> a_values(c.m * k), b_values(c.n * k);
  a.assign(std::size_t{2} * 16384, 0);
  b.assign(std::size_t{2} * 32768, 0);
  const auto fill = [&](std::vector<u8>& bytes, std::size_t per_cta, std::vector<float>& values, u32 rows,
                        u32 split, bool mn_major) {
    for (u32 row = 0; row < rows; ++row) {
      for (u32 i = 0; i < k; ++i) {
        const u32 code = codec.draw(random), local = row % split;
        values[row * k + i] = codec.decode(code);
        const u32 byte = mn_major ? n_major(local, i, k, bits / 8) : swizzled(local, i * bits / 8);
        put(bytes, row / split * per_cta, byte, code, bits, i % 2);
      }
    }
  };
  fill(a, 16384, a_values, c.m, a_rows(c), false);
  fill(b, 32768, b_values, c.n, b_rows(c), c.b_n_major);
  const u32 words = c.scaled() ? c.scale_words() : 0;
  a_scales.assign(std::size_t{2} * 2 * 2048, 0);
  b_scales.assign(std::size_t{2} * 2 * 4096, 0);
  expected.resize(std::size_t{c.tiles} * c.m * c.n);
  std::vector<float> a_scale(c.m * words * 4 * 2, 1.0f), b_scale(c.n * words * 4 * 2, 1.0f);
  for (u32 set = 0; set < 2; ++set) {
    for (u32 s = 0; s < words * 4; ++s) {
      for (u32 row = 0; row < c.m; ++row) {
        const u8 code = codec.draw_scale(random);
        const u32 local = row % a_rows(c);
        a_scale[(set * c.m + row) * words * 4 + s] = codec.decode_scale(code);
        a_scales[(set * 2 + row / a_rows(c)) * 2048 + s / 4 * 512 + local % 32 * 16 + local / 32 * 4 +
                 s % 4] = code;
      }
      for (u32 row = 0; row < c.n; ++row) {
        const u8 code = codec.draw_scale(random);
        b_scale[(set * c.n + row) * words * 4 + s] = codec.decode_scale(code);
        const u32 byte = (s / 4 * 2 + row / 128) * 512 + row % 32 * 16 + row % 128 / 32 * 4 + s % 4;
        for (u32 cta = 0; cta < 2; ++cta) b_scales[(set * 2 + cta) * 4096 + byte] = code;
      }
    }
  }
  for (u32 tile = 0; tile < c.tiles; ++tile) {
    if (tile >= 2) {  // the same scale factors, the same values
      std::copy_n(expected.begin() + (tile - 2) * c.m * c.n, c.m * c.n, expected.begin() + tile * c.m * c.n);
      continue;
    }
    for (u32 row = 0; row < c.m; ++row) {
      for (u32 column = 0; column < c.n; ++column) {
        float sum = 0;
        for (u32 i = 0; i < k; ++i) {
          const u32 set = tile % 2, s = words ? i / c.block() : 0;
          const float x = a_values[row * k + i] * (words ? a_scale[(set * c.m + row) * words * 4 + s] : 1.0f);
          const float y =
              b_values[column * k + i] * (words ? b_scale[(set * c.n + column) * words * 4 + s] : 1.0f);
          sum += x * y;
        }
        expected[(std::size_t{tile} * c.m + row) * c.n + column] = sum;
      }
    }
  }
}

namespace {

struct Params {
  const TensorData* data;
  TensorChange change;
  float* out;
};

Shared<u8> at(u32 offset) {
  return ptx::dynamic_shared().bytes(offset);
}

void copy_in(const std::vector<u8>& bytes, std::size_t from, u32 offset, u32 count) {
  for (u32 i = ptx::thread_index() * 16; i < count; i += threads * 16) {
    ptx::U32x4 value;
    std::memcpy(&value, bytes.data() + from + i, 16);
    ptx::store(at(offset + i).as<ptx::U32x4>(), value);
  }
}

template <u32 ctas>
void sync_all() {
  if constexpr (ctas == 2)
    ptx::sync_cluster();
  else
    ptx::sync_cta();
}

template <u32 ctas>
void multiply_step(const TensorCase& c, const TensorChange& change, ptx::TensorAddress d, u32 step) {
  const u32 k_step = c.b_n_major ? step * (256 / c.element_bits()) * row_bytes : step * 32;
  const u32 span_bytes = c.k() * row_bytes;  // from one span of n to the next
  const ptx::OperandDescriptor a =
      ptx::OperandDescriptor::of(at(a_offset), 16, change.a_stride, ptx::OperandSwizzle::b128)
          .advance(step * 32);
  const ptx::OperandDescriptor b = ptx::OperandDescriptor::of(at(b_offset), c.b_n_major ? span_bytes : 16,
                                                              change.b_stride, ptx::OperandSwizzle::b128)
                                       .advance(k_step);
  const bool accumulate = step > 0;
  if (!c.scaled()) {
    ptx::multiply_f16<ctas>(d, a, b, ptx::InstructionDescriptor::bf16(c.m, c.n, c.b_n_major), accumulate);
    return;
  }
  const u32 per_step = 256 / c.element_bits() / c.block();
  const u32 word = step * per_step / 4, id = (step * per_step + change.scale_id) % 4;
  const u32 format = c.element_bits() == 4 ? 1 : c.type == TensorType::e5m2 ? 1 : 0;
  const auto instruction = ptx::ScaledInstructionDescriptor::of(format, c.type == TensorType::nvf4 ? 0 : 1,
                                                                c.m, c.n, c.b_n_major, id);
  const ptx::TensorAddress base{d.value + change.scale_column};
  const ptx::TensorAddress a_scales = base.columns(a_scale_column + word * 4);
  const ptx::TensorAddress b_scales = base.columns(b_scale_column + word * 8);
  switch (c.type) {
    case TensorType::mxf4:
      ptx::multiply_scaled<ptx::ScaledKind::mxf4, 32, ctas>(d, a, b, instruction, a_scales, b_scales,
                                                            accumulate);
      break;
    case TensorType::nvf4:
    case TensorType::nvf4_e8m0:
      ptx::multiply_scaled<ptx::ScaledKind::mxf4nvf4, 16, ctas>(d, a, b, instruction, a_scales, b_scales,
                                                                accumulate);
      break;
    default:
      ptx::multiply_scaled<ptx::ScaledKind::mxf8f6f4, 32, ctas>(d, a, b, instruction, a_scales, b_scales,
                                                                accumulate);
  }
}

template <u32 ctas>
void issue(const Params& p, ptx::TensorAddress d, ptx::Barrier full, ptx::Barrier empty) {
  const TensorCase& c = p.data->test;
  for (u32 tile = 0; tile < c.tiles; ++tile) {
    ptx::wait(empty, (tile & 1) ^ 1);
    ptx::fence_tensor_after_sync();
    const bool copy = c.scaled() && !(p.change.stale && tile > 0);
    for (u32 word = 0; copy && word < c.scale_words(); ++word) {
      const auto from = [&](u32 offset) {
        return ptx::OperandDescriptor::of(at(offset), 0, p.change.scale_stride, ptx::OperandSwizzle::none);
      };
      ptx::copy_scales<ctas>(d.columns(a_scale_column + word * 4),
                             from(a_scale_offset + tile % 2 * 2048 + word * 512));
      for (u32 i = 0; i < scale_tiles(c.n); ++i) {
        ptx::copy_scales<ctas>(d.columns(b_scale_column + word * 8 + i * 4),
                               from(b_scale_offset + tile % 2 * 4096 + (word * 2 + i) * 512));
      }
    }
    for (u32 step = 0; step < 4; ++step) multiply_step<ctas>(c, p.change, d, step);
    if constexpr (ctas == 2)
      ptx::commit_tensor_work_multicast<ctas>(full, 3);
    else
      ptx::commit_tensor_work<ctas>(full);
  }
}

/// Row and first column that column `j` of the thread's lane holds.
void read_out(const Params& p, ptx::TensorAddress d, u32 tile) {
  const TensorCase& c = p.data->test;
  const u32 warp = ptx::warp_index(), lane = ptx::lane_index(), rows = a_rows(c);
  const bool halves = c.ctas == 2 && c.m == 128, quarter = c.ctas == 1 && c.m == 64;
  const u32 width = halves ? c.n / 2 : c.n;
  const u32 row = halves ? warp % 2 * 32 + lane : quarter ? warp * 16 + lane : warp * 32 + lane;
  const u32 first = halves ? warp / 2 * width : 0;
  ptx::TensorRow<32> r;
  for (u32 column = 0; column < width; column += 32) {
    ptx::load_tensor(r, d.lanes(warp * 32 + p.change.lanes).columns(column));
    ptx::wait_tensor_load(r);
    if (quarter && lane >= 16) continue;
    const u64 at = (u64{tile} * c.m + ptx::cluster_cta_rank() * rows + row) * c.n + first + column;
    for (u32 i = 0; i < 32 && column + i < width; ++i) ptx::store(p.out + at + i, r.get(static_cast<int>(i)));
  }
}

template <u32 ctas>
void kernel(const Params& p) {
  const TensorCase& c = p.data->test;
  const u32 rank = ctas == 2 ? ptx::cluster_cta_rank() : 0;
  const ptx::Barrier full = at(barrier_offset).as<ptx::Mbarrier>(), empty = full + 1;
  const Shared<u32> address = at(barrier_offset + 32).as<u32>();
  if (ptx::warp_index() == 4) ptx::allocate_tensor<ctas>(address, p.change.columns);
  if (ptx::thread_index() == 0) {
    ptx::init(full, 1);
    ptx::init(empty, ctas * epilogue_threads);
    ptx::fence_barrier_init();
  }
  copy_in(p.data->a, rank * 16384, a_offset, a_rows(c) * row_bytes);
  copy_in(p.data->b, rank * 32768, b_offset, b_rows(c) * row_bytes);
  for (u32 set = 0; c.scaled() && set < 2; ++set) {
    copy_in(p.data->a_scales, (set * 2 + rank) * 2048, a_scale_offset + set * 2048, 2048);
    copy_in(p.data->b_scales, (set * 2 + rank) * 4096, b_scale_offset + set * 4096, 4096);
  }
  ptx::fence_async_shared();
  sync_all<ctas>();
  const ptx::TensorAddress d{ptx::load(address)};
  if (ptx::warp_index() == 4) {
    if (rank == 0 && ptx::elect_one()) issue<ctas>(p, d, full, empty);
  } else {
    for (u32 tile = 0; tile < c.tiles; ++tile) {
      ptx::wait(full, tile & 1);
      ptx::fence_tensor_after_sync();
      read_out(p, d, tile);
      ptx::fence_tensor_before_sync();
      if constexpr (ctas == 2)
        ptx::arrive_remote(empty, 0);
      else
        ptx::arrive(empty);
    }
  }
  sync_all<ctas>();
  if (ptx::warp_index() == 4 && p.change.free) {
    ptx::relinquish_tensor_allocation<ctas>();
    ptx::free_tensor<ctas>(d, p.change.columns);
  }
}

}  // namespace

TensorOutcome run_tensor_kernel(const TensorData& data, model::LaunchOptions options,
                                const TensorChange& change) {
  const TensorCase& c = data.test;
  std::vector<float> out(data.expected.size(), -1.0f);
  model::GlobalMemory memory;
  memory.add(out, "out", model::Access::write_once);
  options.grid = options.cluster = static_cast<int>(c.ctas);
  options.threads = threads;
  options.shared_bytes = shared_bytes;
  options.granule = 16;
  const Params params{&data, change, out.data()};
  TensorOutcome result;
  result.report = model::launch(options, memory, [&] {
    if (c.ctas == 2)
      kernel<2>(params);
    else
      kernel<1>(params);
  });
  result.correct = std::memcmp(out.data(), data.expected.data(), out.size() * 4) == 0;
  return result;
}

}  // namespace gemmule::test
