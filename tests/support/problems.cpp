#include "support/problems.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <string>
#include <utility>

#include "backends/reference/formats.hpp"
#include "backends/reference/layout.hpp"

namespace gemmule::test {
namespace {

constexpr std::align_val_t alignment{256};

using reference::ceil_div;
using reference::scale_index;

}  // namespace

Buffer::Buffer(std::int64_t bytes, std::uint8_t fill) : size_(bytes) {
  if (bytes == 0) return;
  data_ = static_cast<std::uint8_t*>(::operator new(static_cast<std::size_t>(bytes), alignment));
  std::memset(data_, fill, static_cast<std::size_t>(bytes));
}

Buffer::Buffer(const Buffer& other) : Buffer(other.size_) {
  if (size_) std::memcpy(data_, other.data_, static_cast<std::size_t>(size_));
}

Buffer::Buffer(Buffer&& other) noexcept
    : size_(std::exchange(other.size_, 0)), data_(std::exchange(other.data_, nullptr)) {}

Buffer& Buffer::operator=(Buffer other) noexcept {
  std::swap(size_, other.size_);
  std::swap(data_, other.data_);
  return *this;
}

Buffer::~Buffer() {
  if (data_) ::operator delete(data_, alignment);
}

bool operator==(const Buffer& a, const Buffer& b) {
  return a.size_ == b.size_ && std::equal(a.data_, a.data_ + a.size_, b.data_);
}

const char* name(Format format) {
  constexpr const char* names[] = {"bf16", "mxfp8", "mxfp8_e5m2", "mxfp4", "mxfp4_16", "nvfp4"};
  return names[static_cast<int>(format)];
}

std::int64_t Random::integer(std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
}

double Random::real(double low, double high) {
  return low + (high - low) * static_cast<double>(engine_() >> 11) * 0x1p-53;
}

Operands TestProblem::inputs() const {
  Operands o;
  o.m = m;
  o.a = a.data();
  o.sfa = sfa.data();
  if (problem.discrete) {
    o.b_ptrs = b_ptrs.data();
    o.sfb_ptrs = problem.block_scaled() ? sfb_ptrs.data() : nullptr;
  } else {
    o.b = b[0].data();
    o.sfb = problem.block_scaled() ? sfb[0].data() : nullptr;
  }
  o.padded_offsets = padded_offsets.data();
  o.alpha = alpha.as<float>();
  o.beta = beta.as<float>();
  o.prob = prob.as<float>();
  o.norm_const = norm_const.as<float>();
  o.bias = bias.data();
  o.c_in = c_in.data();
  o.amax = initial.amax.as<float>();
  o.dprob = initial.dprob.as<float>();
  o.dbias = initial.dbias.as<std::uint16_t>();
  return o;
}

Operands TestProblem::operands(const Outputs& out) const {
  Operands o = inputs();
  o.c_out = out.c.data();
  o.d = out.d.data();
  o.d_col = out.d_col.data();
  o.sfd_row = out.sfd_row.data();
  o.sfd_col = out.sfd_col.data();
  o.amax = out.amax.as<float>();
  o.dprob = out.dprob.as<float>();
  o.dbias = out.dbias.as<std::uint16_t>();
  return o;
}

std::int64_t TestProblem::rows_written() const {
  return problem.single_group_runtime_offsets ? m : std::int64_t{padded_offsets.back()};
}

Problem basic_problem(Op op, Format format, std::int64_t n, std::int64_t k, ActFunc act) {
  Problem p;
  p.op = op;
  p.n = n;
  p.k = k;
  p.c = DType::bfloat16;
  p.d = DType::bfloat16;
  p.has_prob = true;
  p.has_dprob = op == Op::dglu;
  switch (format) {
    case Format::bf16:
      p.ab = DType::bfloat16;
      break;
    case Format::mxfp8:
    case Format::mxfp8_e5m2:
      p.ab = format == Format::mxfp8 ? DType::float8_e4m3fn : DType::float8_e5m2;
      p.vec = 32;
      p.d = DType::float8_e4m3fn;
      p.quantize = p.has_d_col = true;
      break;
    default:
      p.ab = DType::float4_e2m1fn_x2;
      p.vec = format == Format::mxfp4 ? 32 : 16;
      p.has_amax = true;
  }
  if (p.block_scaled()) p.scale = format == Format::nvfp4 ? DType::float8_e4m3fn : DType::float8_e8m0fnu;
  p.act = act;
  p.linear_offset = act == ActFunc::dgeglu ? 1.0f : 0.0f;
  p.geglu_value_filter = act == ActFunc::dgeglu && format == Format::bf16;
  p.geglu_alpha = 1.702f;
  p.glu_clamp_max = 7;
  p.glu_clamp_min = -7;
  p.situ_beta1 = 4;
  p.situ_beta2 = 25;
  p.cluster = {2, 1};
  return p;
}

std::string describe(const TestProblem& t) {
  const Problem& p = t.problem;
  std::string text = p.op == Op::srelu ? "srelu" : "dglu";
  const auto add = [&](const char* key, auto value) {
    text += std::string(" ") + key + "=" + std::to_string(value);
  };
  const auto add_type = [&](const char* key, DType type) {
    text += std::string(" ") + key + "=" + gemmule::name(type);
  };
  const auto add_flag = [&](const char* key, bool on) {
    if (on) text += std::string(" ") + key;
  };
  add("seed", t.seed);
  add_flag("exact", t.data == Data::exact);
  add("m", t.m);
  add("n", p.n);
  add("k", p.k);
  text += " offsets=";
  for (const std::int32_t end : t.padded_offsets) text += std::to_string(end) + ",";
  add_type("ab", p.ab);
  add_type("scale", p.scale);
  add("vec", p.vec);
  add_type("c", p.c);
  add_type("d", p.d);
  add_type("bias", p.bias);
  add_flag("discrete", p.discrete);
  add_flag("n_major", p.b_n_major);
  add_flag("quantize", p.quantize);
  add_flag("discrete_col_sfd", p.discrete_col_sfd);
  add_flag("prob", p.has_prob);
  add_flag("dprob", p.has_dprob);
  add_flag("dbias", p.has_dbias);
  add_flag("amax", p.has_amax);
  add_flag("d_col", p.has_d_col);
  add_flag("single_group", p.single_group_runtime_offsets);
  if (p.op == Op::srelu) {
    add("clamp", p.tanh_clamp_scale);
  } else {
    add("act", static_cast<int>(p.act));
    add_flag("value_filter", p.geglu_value_filter);
    add("offset", p.linear_offset);
    add("beta1", p.situ_beta1);
    add("epilogue_op", static_cast<int>(p.epilogue_op));
  }
  return text;
}

namespace {

/// First index at which two buffers of one size differ, -1 if none.
std::int64_t mismatch(const Buffer& got, const Buffer& expected) {
  for (std::int64_t i = 0; i < got.size(); ++i)
    if (got.data()[i] != expected.data()[i]) return i;
  return -1;
}

std::string report(const char* output, std::int64_t at, const Buffer& got, const Buffer& expected) {
  char text[160];
  std::snprintf(text, sizeof text, "%s: byte %lld is 0x%02X, expected 0x%02X", output,
                static_cast<long long>(at), got.data()[at], expected.data()[at]);
  return text;
}

/// The scale bytes a call writes, as indices into the buffer.
std::vector<std::int64_t> written_scales(const TestProblem& t, bool columns) {
  const Problem& p = t.problem;
  const Operands o = t.inputs();
  std::vector<std::int64_t> at;
  const std::int64_t blocks = ceil_div(p.width(), 32);
  for (int g = 0; g < p.experts; ++g) {
    const reference::RowRange rows = reference::rows_of(p, o, g);
    if (columns) {
      for (std::int64_t m = rows.begin; m < rows.end; m += 32)
        for (std::int64_t n = 0; n < p.width(); ++n)
          at.push_back(reference::col_scale_index(p, o, rows, n, m));
    } else {
      for (std::int64_t m = rows.begin; m < rows.end; ++m)
        for (std::int64_t b = 0; b < blocks; ++b) at.push_back(scale_index(m, b, blocks));
    }
  }
  return at;
}

}  // namespace

std::string first_difference(const TestProblem& t, const Outputs& got, const Outputs& expected) {
  const std::pair<const char*, std::pair<const Buffer*, const Buffer*>> plain[] = {
      {"c", {&got.c, &expected.c}},
      {"d", {&got.d, &expected.d}},
      {"d_col", {&got.d_col, &expected.d_col}},
      {"amax", {&got.amax, &expected.amax}},
      {"dprob", {&got.dprob, &expected.dprob}},
      {"dbias", {&got.dbias, &expected.dbias}}};
  for (const auto& [output, buffers] : plain) {
    const auto& [g, e] = buffers;
    if (g->size() != e->size()) return std::string(output) + ": sizes differ";
    const std::int64_t at = mismatch(*g, *e);
    if (at >= 0) return report(output, at, *g, *e);
  }
  if (!t.problem.quantize) return "";
  for (const bool columns : {false, true}) {
    const Buffer& g = columns ? got.sfd_col : got.sfd_row;
    const Buffer& e = columns ? expected.sfd_col : expected.sfd_row;
    for (const std::int64_t at : written_scales(t, columns))
      if (g.data()[at] != e.data()[at]) return report(columns ? "sfd_col" : "sfd_row", at, g, e);
  }
  return "";
}

}  // namespace gemmule::test
