#include "backends/captures.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "gemmule/layout.hpp"
#include "gemmule/quantize.hpp"
#include "verify/verify.hpp"

namespace gemmule::test {
namespace {

std::vector<std::int64_t> padded_rows(const std::vector<std::int64_t>& tokens,
                                      std::vector<std::int64_t>& groups) {
  std::vector<std::int64_t> rows;
  std::int32_t begin = 0;
  const std::vector<std::int32_t> ends = pad_offsets(tokens, 256);
  for (std::size_t g = 0; g < tokens.size(); ++g) {
    for (std::int64_t i = 0; i < tokens[g]; ++i) rows.push_back(begin + i);
    groups.push_back(ends[g] - begin);
    begin = ends[g];
  }
  return rows;
}

/// Row i of `values` goes to row rows[i] of a zeroed matrix of m rows.
std::vector<float> scatter(const std::vector<float>& values, const std::vector<std::int64_t>& rows,
                           std::int64_t m) {
  const std::size_t width = values.size() / rows.size();
  std::vector<float> out(static_cast<std::size_t>(m) * width);
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(i * width), width,
                out.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(rows[i]) * width));
  return out;
}

/// Quantizes rows x k values to the problem's operand format and returns the NVFP4 tensor scale (else 1).
float quantize(const Problem& p, std::span<const float> values, std::int64_t rows, std::uint8_t* codes,
               std::uint8_t* scales) {
  if (!p.block_scaled()) {
    convert(values, p.ab, codes);
    return 1;
  }
  const float tensor_scale = p.scale == DType::float8_e4m3fn ? nvfp4_tensor_scale(values) : 1.0f;
  quantize_rows(values, rows, p.k, {p.ab, p.scale, p.vec}, codes, scales, tensor_scale);
  return tensor_scale;
}

/// [experts][k][n] to [experts][n][k].
std::vector<float> transposed(const std::vector<float>& in, std::int64_t experts, std::int64_t n,
                              std::int64_t k) {
  std::vector<float> out(in.size());
  for (std::int64_t g = 0; g < experts; ++g)
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < k; ++j) out[(g * n + i) * k + j] = in[(g * k + j) * n + i];
  return out;
}

Problem configure(const Capture& capture, Format format) {
  const std::string activation = capture.activation();
  const bool forward = capture.forward();
  const auto weights = capture.shape(forward ? "w1" : "w2");
  const std::int64_t n = weights[forward ? 1 : 2], k = weights[forward ? 2 : 1];
  const ActFunc act = activation == "geglu"     ? ActFunc::dgeglu
                      : activation == "situglu" ? ActFunc::dsituglu
                                                : ActFunc::dswiglu;
  Problem p = basic_problem(forward ? Op::srelu : Op::dglu, format, n, k, act);
  p.geglu_value_filter = false;
  if (activation == "srelu_clamp") p.tanh_clamp_scale = 8;
  return p;
}

/// The captured rows of a matrix with the problem's width, gate and input as halves again.
std::vector<double> captured_rows(const Prepared& prepared, std::vector<float> values) {
  const Problem& p = prepared.t.problem;
  if (p.op == Op::dglu) {
    std::vector<float> halves(values.size());
    deinterleave_gate_input(values.data(), halves.data(), prepared.t.m, p.n, 4);
    values = halves;
  }
  std::vector<double> out;
  for (const std::int64_t row : prepared.rows)
    out.insert(out.end(), values.begin() + row * p.width(), values.begin() + (row + 1) * p.width());
  return out;
}

std::vector<double> widen(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

}  // namespace

Capture::Capture(const std::string& path) : reader_(path) {
  const io::HostTensor counts = reader_.read("tokens_per_expert");
  for (const std::int32_t count : counts.as<std::int32_t>()) tokens.push_back(count);
}

std::vector<float> Capture::values(const char* tensor) const {
  const io::HostTensor t = reader_.read(tensor);
  std::vector<float> out(t.numel());
  if (t.dtype == DType::float32)
    std::memcpy(out.data(), t.bytes.data(), t.bytes.size());
  else
    convert(t.bytes.data(), t.dtype, out);
  return out;
}

Prepared prepare(const Capture& capture, Format format) {
  const Problem p = configure(capture, format);
  const bool forward = p.op == Op::srelu;
  std::vector<std::int64_t> groups;
  Prepared out;
  out.rows = padded_rows(capture.tokens, groups);
  TestProblem& t = out.t = make_problem(p, groups, 0, 1);

  const float a_scale = quantize(p, scatter(capture.values(forward ? "x" : "dy"), out.rows, t.m), t.m,
                                 t.a.data(), t.sfa.data());
  std::vector<float> weights = capture.values(forward ? "w1" : "w2");
  if (!forward) weights = transposed(weights, t.problem.experts, p.n, p.k);
  const std::int64_t per_expert = p.n * p.k;
  for (int g = 0; g < t.problem.experts; ++g) {
    const std::span<const float> values(weights.data() + g * per_expert,
                                        static_cast<std::size_t>(per_expert));
    const std::int64_t codes = t.b[0].size() / t.problem.experts;
    const std::int64_t scales = p.block_scaled() ? t.sfb[0].size() / t.problem.experts : 0;
    const float scale = a_scale * quantize(p, values, p.n, t.b[0].data() + g * codes,
                                           p.block_scaled() ? t.sfb[0].data() + g * scales : nullptr);
    t.alpha.as<float>()[g] = forward ? scale : std::sqrt(scale);  // dGLU squares alpha
    if (!forward) t.beta.as<float>()[g] = 1;
  }
  const std::vector<float> prob = scatter(capture.values("prob"), out.rows, t.m);
  std::copy(prob.begin(), prob.end(), t.prob.as<float>());
  if (p.quantize) *t.norm_const.as<float>() = 1;
  if (forward) return out;
  std::vector<float> blocks(static_cast<std::size_t>(t.m * p.width()));
  interleave_gate_input(scatter(capture.values("z"), out.rows, t.m).data(), blocks.data(), t.m, p.n, 4);
  convert(blocks, p.c, t.c_in.data());
  std::memset(t.initial.dprob.data(), 0, t.initial.dprob.size());
  return out;
}

double error_of_d(const Capture& capture, const Prepared& prepared, std::vector<float> d) {
  return verify::relative_frobenius(captured_rows(prepared, std::move(d)),
                                    widen(capture.values(capture.forward() ? "expected_h" : "expected_dz")));
}

double error_of_dprob(const Capture& capture, const Prepared& prepared, const std::vector<double>& dprob) {
  std::vector<double> rows;
  for (const std::int64_t row : prepared.rows) rows.push_back(dprob[static_cast<std::size_t>(row)]);
  return verify::relative_frobenius(rows, widen(capture.values("expected_dprob")));
}

std::vector<float> decoded_d(const Prepared& prepared, const Outputs& out, bool columns) {
  const Problem& p = prepared.t.problem;
  std::vector<float> d(static_cast<std::size_t>(prepared.t.m * p.width()));
  const QuantFormat format{p.d, DType::float8_e8m0fnu, 32};
  if (!p.quantize)
    convert(out.d.data(), p.d, d);
  else if (columns)
    dequantize_cols(out.d_col.data(), out.sfd_col.data(), prepared.t.m, p.width(), format, d);
  else
    dequantize_rows(out.d.data(), out.sfd_row.data(), prepared.t.m, p.width(), format, d);
  return d;
}

double operand_error(Format format, bool forward) {
  switch (format) {
    case Format::bf16:
      return 6e-3;
    case Format::mxfp8:
      return forward ? 0.055 : 0.035;
    case Format::nvfp4:
      return forward ? 0.19 : 0.12;
    default:
      return forward ? 0.26 : 0.15;
  }
}

}  // namespace gemmule::test
