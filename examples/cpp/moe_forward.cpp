// An MoE layer's first projection, forward: quantize activations and weights to MXFP8, run grouped GEMM + sReLU for
// three experts (one of them empty), and compare one value with the same sum in double.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <new>
#include <random>
#include <vector>

#include "gemmule/gemmule.hpp"

namespace gm = gemmule;

namespace {

/// Outputs and scratch come from wherever the caller likes; here from the C++ heap.
class HeapAllocator : public gm::Allocator {
 public:
  void* allocate(std::size_t bytes, gm::Device, gm::Stream) override {
    return ::operator new (std::max<std::size_t>(bytes, 1), std::align_val_t{256});
  }
  void deallocate(void* data, std::size_t, gm::Device, gm::Stream) noexcept override {
    ::operator delete (data, std::align_val_t{256});
  }
};

}  // namespace

int main() try {
  const std::int64_t n = 96, k = 160, experts = 3;
  const std::vector<std::int64_t> tokens{200, 0, 300};  // routed tokens per expert
  const std::vector<std::int32_t> offsets = gm::pad_offsets(tokens);
  const std::int64_t m = offsets.back();

  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(m * k), w(experts * n * k), prob(m, 0.0f), alpha(experts, 1.0f);
  for (std::int64_t g = 0, start = 0; g < experts; start = offsets[g++])
    for (std::int64_t t = 0; t < tokens[g]; ++t) {
      prob[start + t] = 0.5f;
      for (std::int64_t i = 0; i < k; ++i) x[(start + t) * k + i] = normal(random);
    }
  for (float& value : w) value = normal(random) / std::sqrt(static_cast<float>(k));

  // Codes, and scale factors in the swizzled layout the kernels read.
  const gm::QuantFormat mx = gm::QuantFormat::mxfp8();
  std::vector<std::uint8_t> a(m * k), sfa(gm::scale_bytes(m, k, 32));
  gm::quantize_rows(x, m, k, mx, a.data(), sfa.data());
  const std::int64_t slab = gm::scale_bytes(n, k, 32);
  std::vector<std::uint8_t> b(experts * n * k), sfb(experts * slab);
  for (std::int64_t g = 0; g < experts; ++g)
    gm::quantize_rows({w.data() + g * n * k, static_cast<std::size_t>(n * k)}, n, k, mx, b.data() + g * n * k,
                      sfb.data() + g * slab);

  auto scales = [&](std::vector<std::uint8_t>& bytes, std::int64_t rows, std::int64_t count) {
    gm::Tensor t(bytes.data(), gm::DType::float8_e8m0fnu, {});
    t.rank = 6;
    t.shape = gm::scale_shape(rows, k, 32, count);
    t.strides = gm::scale_strides(rows, k, 32);
    return t;
  };
  gm::SreluTensors in;
  in.a = gm::Tensor(a.data(), gm::DType::float8_e4m3fn, {m, k, 1}, {k, 1, m * k});
  in.b = gm::Tensor(b.data(), gm::DType::float8_e4m3fn, {n, k, experts}, {k, 1, n * k});
  in.sfa = scales(sfa, m, 1);
  in.sfb = scales(sfb, n, experts);
  in.padded_offsets = gm::Tensor(const_cast<std::int32_t*>(offsets.data()), gm::DType::int32, {experts});
  in.alpha = gm::Tensor(alpha.data(), gm::DType::float32, {experts});
  in.prob = gm::Tensor(prob.data(), gm::DType::float32, {m, 1, 1});
  gm::SreluOptions options;
  options.sf_vec_size = 32;

  HeapAllocator heap;
  const gm::SreluResult out = gm::grouped_gemm_srelu(
      in, options, {.c_dtype = gm::DType::float32, .d_dtype = gm::DType::bfloat16}, heap);

  std::vector<float> dx(m * k), dw(n * k), d(m * n);
  gm::dequantize_rows(a.data(), sfa.data(), m, k, mx, dx);
  gm::dequantize_rows(b.data(), sfb.data(), n, k, mx, dw);
  gm::convert(out.d.data, gm::DType::bfloat16, d);
  double worst = 0;
  for (std::int64_t row = 0; row < tokens[0]; ++row)
    for (std::int64_t col = 0; col < n; ++col) {
      double sum = 0;
      for (std::int64_t i = 0; i < k; ++i) sum += static_cast<double>(dx[row * k + i]) * dw[col * k + i];
      const double expected = prob[row] * std::max(sum, 0.0) * std::max(sum, 0.0);
      worst = std::max(worst, std::abs(d[row * n + col] - expected) / std::max(1e-3, expected));
    }
  std::printf("gemmule %s: %lld rows, expert 0 agrees with double within %.2e (bf16 rounds at %.2e)\n",
              gm::version(), static_cast<long long>(m), worst, std::ldexp(1.0, -8));
  for (const gm::Tensor& t : {out.c, out.d, out.amax})
    if (t) heap.deallocate(t.data, t.bytes(), t.device, {});
  return worst < 5e-3 ? EXIT_SUCCESS : EXIT_FAILURE;
} catch (const gm::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return EXIT_FAILURE;
}
