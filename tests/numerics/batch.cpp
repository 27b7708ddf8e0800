// Compiled several times with different flags; GEMMULE_BATCH names the function of this build.
#include "numerics/batch.hpp"

#include "numerics/activation.hpp"
#include "numerics/formats.hpp"
#include "numerics/quantization.hpp"

namespace gemmule::batch {

using namespace numerics;

void GEMMULE_BATCH(const Arrays& arrays) {
  const std::int64_t n = arrays.count;
  const float* __restrict x = arrays.x;
  std::uint32_t* __restrict out = arrays.out;
  const auto next = [&] {
    std::uint32_t* __restrict now = out;
    out += n;
    return now;
  };
  const auto unary = [&](auto f) {
    std::uint32_t* __restrict y = next();
    for (std::int64_t i = 0; i < n; ++i) y[i] = f(x[i]);
  };
  const auto low_byte = [](float v) { return static_cast<u8>(bits_of(v)); };
  const auto low_half = [](float v) { return static_cast<u16>(bits_of(v)); };
  unary([](float v) { return u32{encode_e2m1(v)}; });
  unary([](float v) { return u32{encode_e4m3(v)}; });
  unary([](float v) { return u32{encode_e5m2(v)}; });
  unary([](float v) { return u32{encode_e8m0(v)}; });
  unary([](float v) { return u32{encode_fp16(v)}; });
  unary([](float v) { return u32{encode_bf16(v)}; });
  unary([&](float v) { return bits_of(decode_e2m1(low_byte(v))); });
  unary([&](float v) { return bits_of(decode_e4m3(low_byte(v))); });
  unary([&](float v) { return bits_of(decode_e5m2(low_byte(v))); });
  unary([&](float v) { return bits_of(decode_e8m0(low_byte(v))); });
  unary([&](float v) { return bits_of(decode_fp16(low_half(v))); });
  unary([](float v) { return bits_of(numerics::exp(v)); });
  unary([](float v) { return bits_of(sigmoid(v)); });
  unary([](float v) { return bits_of(numerics::tanh(v)); });
  unary([](float v) { return bits_of(srelu_clamped(v, 16.0f, 0.0625f)); });

  const auto gradient = [&](auto f) {
    std::uint32_t* __restrict gate = next();
    std::uint32_t* __restrict input = next();
    std::uint32_t* __restrict dprob = next();
    for (std::int64_t i = 0; i < n; ++i) {
      const Gradient g = f(x[n - 1 - i], x[i], x[(i + n / 3) % n]);
      gate[i] = bits_of(g.gate);
      input[i] = bits_of(g.input);
      dprob[i] = bits_of(g.dprob);
    }
  };
  gradient([](float r, float g, float u) { return dswiglu(r, g, u, 0.75f); });
  gradient([](float r, float g, float u) {
    return dgeglu(r, g, u, -0.3f, GegluParams{1.0f, 1.702f, 7.0f, -7.0f, true});
  });
  gradient([](float r, float g, float u) {
    return dsituglu_packed(r, g, u, 0.3f, SituParams{4.0f, 25.0f, 0.25f, 0.04f});
  });
}

}  // namespace gemmule::batch
