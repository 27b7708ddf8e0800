#include "model/litmus/tensor_data.hpp"

#include <algorithm>
#include <cstring>
#include <random>

#include "numerics/formats.hpp"

namespace gemmule::litmus {

namespace {

using numerics::u8;

constexpr u32 row_bytes = 128;

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

TensorData::TensorData(const TensorCase& c, u32 seed) : test(c) {
  std::mt19937 random(seed);
  const Codec codec{c.type};
  const u32 k = c.k(), bits = c.element_bits();
  std::vector<float> a_values(c.m * k), b_values(c.n * k);
  a.assign(std::size_t{2} * a_bytes, 0);
  b.assign(std::size_t{2} * b_bytes, 0);
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
  fill(a, a_bytes, a_values, c.m, c.a_rows(), false);
  fill(b, b_bytes, b_values, c.n, c.b_rows(), c.b_n_major);
  const u32 words = c.scaled() ? c.scale_words() : 0;
  a_scales.assign(std::size_t{2} * 2 * a_scale_bytes, 0);
  b_scales.assign(std::size_t{2} * 2 * b_scale_bytes, 0);
  expected.resize(std::size_t{c.tiles} * c.m * c.n);
  std::vector<float> a_scale(c.m * words * 4 * 2, 1.0f), b_scale(c.n * words * 4 * 2, 1.0f);
  for (u32 set = 0; set < 2; ++set) {
    for (u32 s = 0; s < words * 4; ++s) {
      for (u32 row = 0; row < c.m; ++row) {
        const u8 code = codec.draw_scale(random);
        const u32 local = row % c.a_rows();
        a_scale[(set * c.m + row) * words * 4 + s] = codec.decode_scale(code);
        a_scales[(set * 2 + row / c.a_rows()) * a_scale_bytes + s / 4 * 512 + local % 32 * 16 +
                 local / 32 * 4 + s % 4] = code;
      }
      for (u32 row = 0; row < c.n; ++row) {
        const u8 code = codec.draw_scale(random);
        b_scale[(set * c.n + row) * words * 4 + s] = codec.decode_scale(code);
        const u32 byte = (s / 4 * 2 + row / 128) * 512 + row % 32 * 16 + row % 128 / 32 * 4 + s % 4;
        for (u32 cta = 0; cta < 2; ++cta) b_scales[(set * 2 + cta) * b_scale_bytes + byte] = code;
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

std::vector<TensorCase> tensor_cases() {
  using enum TensorType;
  return {
      {.type = bf16, .ctas = 1, .m = 128, .n = 64},
      {.type = bf16, .ctas = 1, .m = 128, .n = 256},
      {.type = bf16, .ctas = 1, .m = 128, .n = 128, .b_n_major = true},
      {.type = bf16, .ctas = 1, .m = 64, .n = 32},
      {.type = bf16, .ctas = 2, .m = 256, .n = 128},
      {.type = bf16, .ctas = 2, .m = 128, .n = 128},
      {.type = bf16, .ctas = 2, .m = 256, .n = 256, .b_n_major = true},
      {.type = e4m3, .ctas = 1, .m = 128, .n = 64},
      {.type = e5m2, .ctas = 1, .m = 128, .n = 192},
      {.type = e4m3, .ctas = 1, .m = 128, .n = 256, .b_n_major = true},
      {.type = e4m3, .ctas = 2, .m = 256, .n = 256},
      {.type = mxf4, .ctas = 1, .m = 128, .n = 128},
      {.type = mxf4, .ctas = 2, .m = 256, .n = 64},
      {.type = nvf4, .ctas = 1, .m = 128, .n = 160},
      {.type = nvf4_e8m0, .ctas = 1, .m = 128, .n = 64},
      {.type = nvf4, .ctas = 2, .m = 256, .n = 128},
  };
}

std::string name_of(const TensorCase& c) {
  static constexpr const char* types[] = {"bf16", "e4m3", "e5m2", "mxf4", "nvf4", "nvf4 with e8m0"};
  return std::string(types[static_cast<int>(c.type)]) + ", " + std::to_string(c.ctas) + " CTAs, " +
         std::to_string(c.m) + " x " + std::to_string(c.n) + (c.b_n_major ? ", B n-major" : "");
}

}  // namespace gemmule::litmus
