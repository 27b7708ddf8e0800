// The passes of the baseline; included once by each pipeline_<target>.cpp.
#pragma once

#include "layout/interleave.hpp"
#include "layout/scale_factors.hpp"
#include "numerics/activation.hpp"
#include "numerics/formats.hpp"
#include "numerics/quantization.hpp"
#include "pipeline.hpp"

namespace gemmule::bench::GEMMULE_BENCH_NAMESPACE {
namespace {

using numerics::i32;
using numerics::u16;
using numerics::u32;
using numerics::u8;
constexpr std::int64_t block = 32;

inline __attribute__((always_inline)) std::int64_t width_of(const Problem& p) {
  return p.op == Op::srelu ? p.n : 2 * p.n;
}

/// 32 codes of a row, widened in a loop of their own, which vectorises better.
inline __attribute__((always_inline)) void widen_codes(const u8* codes, std::int64_t k, bool packed,
                                                       u32 (&out)[block]) {
  if (packed) {
    u32 low[block / 2], high[block / 2];
    for (int i = 0; i < block / 2; ++i) low[i] = codes[k / 2 + i];
    for (int i = 0; i < block / 2; ++i) high[i] = low[i] >> 4;
    for (int i = 0; i < block / 2; ++i) low[i] &= 0xF;
    for (int i = 0; i < block / 2; ++i) {
      out[2 * i] = low[i];
      out[2 * i + 1] = high[i];
    }
  } else {
    for (int i = 0; i < block; ++i) out[i] = codes[k + i];
  }
}

/// One row with k contiguous values, each block times its scale.
template <class Decode>
inline __attribute__((always_inline)) void dequantize_blocks(const Problem& p, const u8* codes, bool packed,
                                                             const u8* scales, std::int64_t row, float* out,
                                                             const Decode& decode) {
  const std::int64_t atoms = layout::block_atoms(p.k, p.vec);
  const auto scale_at = [&](std::int64_t k) {
    const u8 code = scales[layout::scale_offset(row, p.vec == 16 ? k / 16 : k / 32, atoms)];
    return p.scale == DType::float8_e4m3fn ? numerics::decode_e4m3(code) : numerics::decode_e8m0(code);
  };
  for (std::int64_t k = 0; k < p.k; k += block) {
    const float first = scale_at(k), second = scale_at(k + 16);
    u32 wide[block];
    widen_codes(codes, k, packed, wide);
    for (int i = 0; i < block; ++i) out[k + i] = decode(wide[i]) * (i < 16 ? first : second);
  }
}

void dequantize_row(const Problem& p, const void* data, const u8* scales, std::int64_t storage_row,
                    std::int64_t scale_row, float* out) {
  const std::int64_t at = storage_row * p.k;
  const u8* bytes = static_cast<const u8*>(data);
  switch (p.ab) {
    case DType::bfloat16: {
      const u16* words = static_cast<const u16*>(data) + at;
      for (std::int64_t i = 0; i < p.k; ++i) out[i] = numerics::decode_bf16(words[i]);
      return;
    }
    case DType::float8_e4m3fn:
      return dequantize_blocks(p, bytes + at, false, scales, scale_row, out, numerics::E4m3::decode);
    case DType::float8_e5m2:
      return dequantize_blocks(p, bytes + at, false, scales, scale_row, out, numerics::E5m2::decode);
    default:
      return dequantize_blocks(p, bytes + at / 2, true, scales, scale_row, out, numerics::E2m1::decode);
  }
}

void dequantize_a(const PipelineCall& call, std::int64_t begin, std::int64_t end) {
  const Problem& p = call.problem;
  for (std::int64_t m = begin; m < end; ++m)
    dequantize_row(p, call.operands.a, static_cast<const u8*>(call.operands.sfa), m, m,
                   &call.buffers.a[0] + m * p.k);
}

void dequantize_b(const PipelineCall& call, std::int64_t begin, std::int64_t end) {
  const Problem& p = call.problem;
  for (std::int64_t row = begin; row < end; ++row) {
    const u8* scales = static_cast<const u8*>(call.operands.sfb);
    if (scales != nullptr) scales += row / p.n * layout::scale_buffer_bytes(p.n, p.k, p.vec);
    dequantize_row(p, call.operands.b, scales, row, row % p.n, &call.buffers.b[0] + row * p.k);
  }
}

void dequantize_c(const PipelineCall& call, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = width_of(call.problem);
  const u16* __restrict c = static_cast<const u16*>(call.operands.c_in);
  float* __restrict out = &call.buffers.c[0];
  for (std::int64_t i = begin * width; i < end * width; ++i) out[i] = numerics::decode_bf16(c[i]);
}

template <class Encode, class Code>
inline __attribute__((always_inline)) void encode_span(const float* in, Code* out, std::int64_t count,
                                                       const Encode& encode) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = encode(in[i]);
}

void encode_values(DType dtype, const float* in, void* base, std::int64_t at, std::int64_t count) {
  if (dtype == DType::bfloat16)
    encode_span(in, static_cast<u16*>(base) + at, count, numerics::encode_bf16);
  else if (dtype == DType::float16)
    encode_span(in, static_cast<u16*>(base) + at, count, numerics::encode_fp16);
  else if (dtype == DType::float8_e4m3fn)
    encode_span(in, static_cast<u8*>(base) + at, count, numerics::encode_e4m3);
  else if (dtype == DType::float8_e5m2)
    encode_span(in, static_cast<u8*>(base) + at, count, numerics::encode_e5m2);
  else
    encode_span(in, static_cast<float*>(base) + at, count, [](float x) { return x; });
}

void srelu_row(const PipelineCall& call, std::int64_t m) {
  const Problem& p = call.problem;
  float* __restrict x = &call.buffers.sum[0] + m * p.n;
  float* __restrict d = &call.buffers.d[0] + m * p.n;
  const float alpha = call.operands.alpha[call.expert], prob = call.operands.prob[m];
  for (std::int64_t n = 0; n < p.n; ++n) x[n] *= alpha;
  encode_values(p.c, x, call.operands.c_out, m * p.n, p.n);
  if (p.tanh_clamp_scale != 0.0f) {
    const float s = p.tanh_clamp_scale, s_rcp = numerics::finite_reciprocal(s);
    for (std::int64_t n = 0; n < p.n; ++n) d[n] = numerics::srelu_clamped(x[n], s, s_rcp) * prob;
  } else {
    for (std::int64_t n = 0; n < p.n; ++n) d[n] = numerics::srelu(x[n]) * prob;
  }
}

/// `gradient`(r, gate, input, prob) over a row; returns the row's sum of dprob, kept in 32 lanes.
template <class Function>
inline __attribute__((always_inline)) float dglu_row(const PipelineCall& call, std::int64_t m,
                                                     const Function& gradient) {
  const Problem& p = call.problem;
  const float* __restrict sum = &call.buffers.sum[0] + m * p.n;
  float* __restrict d = &call.buffers.d[0] + m * 2 * p.n;
  const float* __restrict c = &call.buffers.c[0] + m * 2 * p.n;
  const float alpha = call.operands.alpha[call.expert], beta = call.operands.beta[call.expert];
  const float alpha_squared = alpha * alpha, prob = call.operands.prob[m];
  float lanes[block] = {};
  for (std::int64_t n = 0; n < p.n; n += block) {
    for (int j = 0; j < block; ++j) {
      const float gate = c[2 * n + j] * beta;
      const float input = c[2 * n + block + j] * beta;
      const numerics::Gradient g = gradient(sum[n + j] * alpha_squared, gate, input, prob);
      d[2 * n + j] = g.gate;
      d[2 * n + block + j] = g.input;
      lanes[j] += g.dprob;
    }
  }
  float total = 0;
  for (const float lane : lanes) total += lane;
  return total;
}

void activation(const PipelineCall& call, std::int64_t begin, std::int64_t end) {
  const Problem& p = call.problem;
  const numerics::GegluParams geglu{p.linear_offset, p.geglu_alpha, p.glu_clamp_max, p.glu_clamp_min,
                                    p.geglu_value_filter};
  const numerics::SituParams situ{p.situ_beta1, p.situ_beta2, numerics::finite_reciprocal(p.situ_beta1),
                                  numerics::finite_reciprocal(p.situ_beta2)};
  for (std::int64_t m = begin; m < end; ++m) {
    if (p.op == Op::srelu) {
      srelu_row(call, m);
      continue;
    }
    float dprob = 0;
    if (p.act == ActFunc::dswiglu)
      dprob = dglu_row(call, m, numerics::dswiglu);
    else if (p.act == ActFunc::dgeglu)
      dprob = dglu_row(
          call, m, [&](float r, float g, float u, float prob) __attribute__((always_inline)) {
            return numerics::dgeglu(r, g, u, prob, geglu);
          });
    else
      dprob = dglu_row(
          call, m, [&](float r, float g, float u, float prob) __attribute__((always_inline)) {
            return numerics::dsituglu_packed(r, g, u, prob, situ);
          });
    if (p.has_dprob) call.operands.dprob[m] += dprob;
  }
}

/// Columns [begin, end) of the rows of call.expert.
void reduce_dbias(const PipelineCall& call, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = width_of(call.problem);
  const std::int32_t* offsets = call.operands.padded_offsets;
  float* __restrict sum = &call.buffers.dbias[0];
  for (std::int64_t j = begin; j < end; ++j) sum[j] = 0;
  for (std::int64_t m = call.expert == 0 ? 0 : offsets[call.expert - 1]; m < offsets[call.expert]; ++m) {
    const float* __restrict d = &call.buffers.d[0] + m * width;
    for (std::int64_t j = begin; j < end; ++j) sum[j] += d[j];
  }
  u16* out = call.operands.dbias + call.expert * width;
  for (std::int64_t j = begin; j < end; ++j)
    out[j] = numerics::encode_bf16(numerics::decode_bf16(out[j]) + sum[j]);
}

/// Largest magnitudes of gate (or all) and input columns, combined into bits[2].
void maxima(const PipelineCall& call, std::int64_t begin, std::int64_t end, std::int32_t* bits) {
  const std::int64_t width = width_of(call.problem);
  const int kinds = call.problem.op == Op::srelu ? 1 : 2;
  i32 lanes[2][block] = {};
  for (std::int64_t m = begin; m < end; ++m) {
    const float* d = &call.buffers.d[0] + m * width;
    for (std::int64_t n = 0; n < width; n += block) {
      i32* lane = lanes[n / block % kinds];
      for (int j = 0; j < block; ++j) {
        const i32 value = numerics::amax_bits(d[n + j]);
        lane[j] = value > lane[j] ? value : lane[j];
      }
    }
  }
  for (int kind = 0; kind < 2; ++kind)
    for (const i32 value : lanes[kind]) bits[kind] = value > bits[kind] ? value : bits[kind];
}

void store(const PipelineCall& call, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = width_of(call.problem);
  encode_values(call.problem.d, &call.buffers.d[0] + begin * width, call.operands.d, begin * width,
                (end - begin) * width);
}

/// 32 values times their multipliers.
template <class Multiplier>
inline __attribute__((always_inline)) void encode_e4m3_block(const float* in, u8* out,
                                                             const Multiplier& multiplier) {
  u32 wide[block];
  for (int j = 0; j < block; ++j) wide[j] = numerics::E4m3::encode(in[j] * multiplier(j), 0x7F);
  for (int j = 0; j < block; ++j) out[j] = static_cast<u8>(wide[j]);
}

void quantize_rows(const PipelineCall& call, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = width_of(call.problem), atoms = layout::block_atoms(width, block);
  const float norm_const = call.operands.norm_const[0];
  for (std::int64_t m = begin; m < end; ++m) {
    const float* d = &call.buffers.d[0] + m * width;
    u8* out = static_cast<u8*>(call.operands.d) + m * width;
    for (std::int64_t n = 0; n < width; n += block) {
      i32 amax = 0;
      for (int j = 0; j < block; ++j) {
        const i32 value = numerics::amax_bits(d[n + j]);
        amax = value > amax ? value : amax;
      }
      const u8 code = numerics::encode_e8m0(numerics::row_scale(
          numerics::float_of(static_cast<numerics::u32>(amax)), numerics::rcp_max_e4m3, norm_const));
      const float multiplier = numerics::multiplier(norm_const, code);
      encode_e4m3_block(d + n, out + n, [&](int) { return multiplier; });
      call.operands.sfd_row[layout::scale_offset(m, n / block, atoms)] = code;
    }
  }
}

void quantize_cols(const PipelineCall& call, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = width_of(call.problem);
  const float norm_const = call.operands.norm_const[0];
  for (std::int64_t m = begin; m < end; m += block) {
    for (std::int64_t n = 0; n < width; n += block) {
      const float* d = &call.buffers.d[0] + m * width + n;
      u8* out = static_cast<u8*>(call.operands.d_col) + m * width + n;
      i32 amax[block] = {};
      for (int r = 0; r < block; ++r) {
        for (int j = 0; j < block; ++j) {
          const i32 value = numerics::amax_bits(d[r * width + j]);
          amax[j] = value > amax[j] ? value : amax[j];
        }
      }
      u8 code[block];
      float multiplier[block];
      for (int j = 0; j < block; ++j) {
        code[j] = numerics::encode_e8m0(numerics::col_scale(
            numerics::float_of(static_cast<numerics::u32>(amax[j])), numerics::rcp_max_e4m3, norm_const));
        multiplier[j] = numerics::multiplier(norm_const, code[j]);
      }
      for (int r = 0; r < block; ++r)
        encode_e4m3_block(d + r * width, out + r * width, [&](int j) { return multiplier[j]; });
      for (int j = 0; j < block; ++j)
        call.operands.sfd_col[layout::sfd_col_offset(n + j, m, call.operands.m)] = code[j];
    }
  }
}

}  // namespace

extern const PipelinePasses passes = {dequantize_a, dequantize_b, dequantize_c,  activation,   reduce_dbias,
                                      maxima,       store,        quantize_rows, quantize_cols};

}  // namespace gemmule::bench::GEMMULE_BENCH_NAMESPACE
