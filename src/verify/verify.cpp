#include "verify/verify.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "backends/reference/formats.hpp"
#include "backends/reference/layout.hpp"
#include "backends/reference/quantize.hpp"

namespace gemmule::verify {
namespace {

using reference::ceil_div;
using reference::RowRange;

struct Norms {
  double difference = 0, expected = 0;
  void add(double got, double truth) {
    if (!std::isfinite(got) || !std::isfinite(truth)) return;
    difference += (got - truth) * (got - truth);
    expected += truth * truth;
  }
  double relative() const {
    if (difference == 0) return 0;
    return expected > 0 ? std::sqrt(difference / expected) : std::numeric_limits<double>::infinity();
  }
};

/// What a NaN is stored as: e2m1 has none and uses its largest value.
bool is_nan_code(DType type, std::uint32_t code) {
  return type == DType::float4_e2m1fn_x2 ? code == 7 : std::isnan(reference::decode(type, code));
}

/// Collects the elements of one output.
class Collector {
 public:
  explicit Collector(std::string output) { check_.output = std::move(output); }

  void element(bool good, double error, const Mismatch& m) {
    ++check_.elements;
    norms_.add(m.got, m.expected);
    if (std::isfinite(error)) {
      check_.max_error = std::max(check_.max_error, error);
      const double ratio = error == 0 ? 0 : error / m.bound;
      if (ratio > check_.max_ratio) check_.max_ratio = ratio;
    }
    if (!good) fail(m);
  }

  /// The rule for a value of `type` that should be `expected` within `bound`, or what float32 overflow becomes.
  void value(DType type, Mismatch m, bool overflow) {
    const double largest = reference::max_finite(type);
    const bool saturating = reference::saturates(type);
    if (overflow && (!std::isfinite(m.got) || (saturating && std::fabs(m.got) == largest)))
      return element(true, 0, m);
    if (std::isnan(m.expected)) return element(is_nan_code(type, m.got_code), 0, m);
    if (saturating) m.expected = std::clamp(m.expected, -largest, largest);
    if (std::isinf(m.expected)) return element(m.got == m.expected, 0, m);
    if (std::isinf(m.bound)) return element(true, 0, m);
    // The format's infinity starts half an ulp above its largest value.
    const bool may_overflow = std::fabs(m.expected) + m.bound >= largest;
    if (std::isinf(m.got))
      return element(may_overflow && std::signbit(m.got) == std::signbit(m.expected), 0, m);
    const double error = std::fabs(m.got - m.expected);
    element(error <= m.bound, error, m);
  }

  /// A scale code of a block whose values underflow or overflow in float32, and which that leaves undecided.
  void undecided_scale() { ++check_.elements; }

  void scale(std::uint8_t got, std::uint8_t expected, std::int64_t row, std::int64_t column) {
    ++check_.elements;
    const int steps = std::abs(int{got} - int{expected});
    check_.max_error = std::max(check_.max_error, static_cast<double>(steps));
    if (steps == 0) return;
    ++check_.differing;
    const bool special = got == 0xFF || expected == 0xFF;
    if (steps > 1 || special)
      fail({row, column, double(got), double(expected), 1, got});
    else if (!check_.first)
      check_.first = Mismatch{row, column, double(got), double(expected), 1, got};
  }

  void tail(const void* data, std::int64_t begin, std::int64_t end, std::uint8_t poison) {
    const auto* bytes = static_cast<const std::uint8_t*>(data);
    for (std::int64_t i = begin; i < end; ++i) check_.overwritten += bytes[i] != poison;
  }

  Check finish() {
    check_.relative_error = norms_.relative();
    return check_;
  }

 private:
  void fail(const Mismatch& m) {
    if (check_.out_of_bound++ == 0) check_.first = m;
  }

  Check check_;
  Norms norms_;
};

class Comparison {
 public:
  Comparison(const Problem& problem, const Operands& inputs, const Operands& outputs,
             const reference::Result& result, const Settings& s)
      : p(problem), in(inputs), out(outputs), exact(result), settings(s) {}

  Report run() {
    if (p.op == Op::srelu) matrix("c", exact.c, p.c, out.c_out);
    if (p.quantize) {
      quantized_rows();
      quantized_cols();
      row_scales();
      col_scales();
    } else {
      matrix(p.op == Op::srelu ? "d" : "d_row", exact.d, p.d, out.d);
      if (p.has_d_col) matrix("d_col", exact.d, p.d, out.d_col);
    }
    if (p.has_amax) vector("amax", exact.amax, DType::float32, out.amax, p.op == Op::srelu ? 1 : 2);
    if (p.has_dprob) dprob();
    if (p.has_dbias) vector("dbias", exact.dbias, DType::bfloat16, out.dbias, p.width());
    return report_;
  }

 private:
  std::int64_t rows() const { return reference::rows_written(p, in); }

  void compare_value(Collector& c, const reference::Values& values, DType type, const void* data,
                     std::int64_t index, std::int64_t row, std::int64_t column) {
    c.value(type,
            {row, column, reference::load(data, type, index), values.value[index], values.bound[index],
             reference::load_code(data, type, index)},
            values.overflow[index] != 0);
  }

  void finish(Collector& c) { report_.checks.push_back(c.finish()); }

  /// Rows past the last offset of an output with the row extent of D.
  void tail_rows(Collector& c, const void* data, std::int64_t bits_per_row) {
    if (settings.poison) c.tail(data, rows() * bits_per_row / 8, in.m * bits_per_row / 8, *settings.poison);
  }

  void matrix(const char* output, const reference::Values& values, DType type, const void* data) {
    Collector c(output);
    for (std::int64_t m = 0; m < rows(); ++m)
      for (std::int64_t n = 0; n < p.width(); ++n)
        compare_value(c, values, type, data, m * p.width() + n, m, n);
    tail_rows(c, data, p.width() * reference::bits_of(type));
    finish(c);
  }

  /// One entry per expert and column.
  void vector(const char* output, const reference::Values& values, DType type, const void* data,
              std::int64_t columns) {
    Collector c(output);
    for (std::int64_t g = 0; g < p.experts; ++g)
      for (std::int64_t n = 0; n < columns; ++n) compare_value(c, values, type, data, g * columns + n, g, n);
    finish(c);
  }

  void dprob() {
    Collector c("dprob");
    for (std::int64_t m = 0; m < rows(); ++m)
      compare_value(c, exact.dprob, DType::float32, out.dprob, m, m, 0);
    // dprob is accumulated into: rows past the end keep what the caller put there.
    for (std::int64_t m = rows(); settings.poison && m < in.m; ++m) {
      const float before = in.dprob ? in.dprob[m] : 0.0f;
      const double error = std::fabs(double(out.dprob[m]) - before);
      c.element(error == 0 || (std::isnan(before) && std::isnan(out.dprob[m])), error,
                {m, 0, out.dprob[m], before, 0, 0});
    }
    finish(c);
  }

  /// A quantized value against the exact one, under the scale code that was stored with it. `coarse`: float32 may have
  /// made the scale too small for the value.
  void quantized(Collector& c, const void* data, std::int64_t m, std::int64_t n, std::uint8_t scale,
                 bool coarse) {
    const std::int64_t index = m * p.width() + n;
    const std::uint32_t code = reference::load_code(data, p.d, index);
    const double truth = exact.d.value[index];
    const double magnitude = std::fabs(reference::decode(p.d, code));
    const bool finite = magnitude < reference::max_finite(p.d);  // false for NaN
    if (exact.d.overflow[index] && !finite) return c.element(true, 0, {m, n, truth, truth, 0, code});
    if (scale == 0xFF)  // right only if the block has a NaN, which the check of the scales decides
      return c.element(is_nan_code(p.d, code), 0, {m, n, reference::decode(p.d, code), truth, 0, code});
    // Where it is 0 in float32 every finite value is, too.
    const double multiplier = std::max<double>(reference::multiplier(*in.norm_const, scale), 0x1p-149);
    double scaled = truth * multiplier, value_bound = exact.d.bound[index] * multiplier;
    // Otherwise only at the last scale code may a block be too large for its scale.
    if (scale == 0xFE || coarse) {
      const double largest = reference::max_finite(p.d);
      const auto clipped = [&](double x) { return std::clamp(x, -largest, largest); };
      const double lowest = clipped(scaled - value_bound), highest = clipped(scaled + value_bound);
      scaled = clipped(scaled);
      if (std::isfinite(value_bound)) value_bound = std::max(highest - scaled, scaled - lowest);
    }
    const double rounding = reference::half_ulp(p.d, std::fabs(scaled) + value_bound);
    const double got = reference::decode(p.d, code);
    const double bound = value_bound + rounding;
    const double error = std::fabs(got - scaled);
    const bool good = !std::isnan(truth) && (error <= bound || std::isinf(bound));
    c.element(good, error / multiplier,
              {m, n, got / multiplier, scaled / multiplier, bound / multiplier, code});
  }

  void quantized_rows() {
    Collector c(p.op == Op::srelu ? "d" : "d_row");
    const std::int64_t blocks = ceil_div(p.width(), 32);
    for (std::int64_t m = 0; m < rows(); ++m)
      for (std::int64_t n = 0; n < p.width(); ++n)
        quantized(c, out.d, m, n, out.sfd_row[reference::scale_index(m, n / 32, blocks)],
                  reference::row_scale_is_coarse(
                      static_cast<float>(std::fabs(exact.d.value[m * p.width() + n])), p.d));
    tail_rows(c, out.d, p.width() * reference::bits_of(p.d));
    finish(c);
  }

  void quantized_cols() {
    Collector c("d_col");
    const bool coarse = reference::col_scale_is_coarse(p.d, *in.norm_const);
    for (int g = 0; g < p.experts; ++g) {
      const RowRange range = reference::rows_of(p, in, g);
      for (std::int64_t m = range.begin; m < range.end; ++m)
        for (std::int64_t n = 0; n < p.width(); ++n)
          quantized(c, out.d_col, m, n, out.sfd_col[reference::col_scale_index(p, in, range, n, m)], coarse);
    }
    tail_rows(c, out.d_col, p.width() * reference::bits_of(p.d));
    finish(c);
  }

  /// The largest |D| of up to 32 elements, `step` apart, as float32: exact, and at the ends of the bounds.
  struct Block {
    float exact, lowest, highest;
    bool overflow;
  };
  Block block(std::int64_t index, std::int64_t count, std::int64_t step) const {
    Block b{};
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t at = index + i * step;
      const auto magnitude = static_cast<float>(std::fabs(exact.d.value[at]));
      const double bound = exact.d.bound[at];
      if (std::isnan(magnitude)) return {magnitude, magnitude, magnitude, false};
      b.exact = std::max(b.exact, magnitude);
      b.lowest = std::max(b.lowest, static_cast<float>(magnitude - bound));
      b.highest = std::max(b.highest, static_cast<float>(magnitude + bound));
      b.overflow |= exact.d.overflow[at] != 0;
    }
    return b;
  }

  /// One scale code; `encode` is row_scale_code or col_scale_code.
  template <class Encode>
  void check_scale(Collector& c, std::uint8_t got, const Block& block, Encode encode, std::int64_t row,
                   std::int64_t column) const {
    const auto code = [&](float largest) { return encode(std::span(&largest, 1), p.d, *in.norm_const); };
    const std::uint8_t expected = code(block.exact);
    const std::uint8_t lowest = code(block.lowest), highest = block.overflow ? 0xFF : code(block.highest);
    // A bound of a percent and more comes from underflow, or from sums that cancel in the whole block.
    const bool undecided = block.overflow || (highest != lowest && block.highest > 1.01f * block.lowest);
    if (got != expected && undecided && lowest <= got && got <= highest) return c.undecided_scale();
    c.scale(got, expected, row, column);
  }

  void row_scales() {
    Collector c("sfd_row");
    const std::int64_t width = p.width(), blocks = ceil_div(width, 32);
    for (std::int64_t m = 0; m < rows(); ++m)
      for (std::int64_t b = 0; b < blocks; ++b) {
        const Block values = block(m * width + b * 32, std::min<std::int64_t>(32, width - b * 32), 1);
        check_scale(c, out.sfd_row[reference::scale_index(m, b, blocks)], values, reference::row_scale_code,
                    m, b * 32);
      }
    if (settings.poison)
      for (std::int64_t m = rows(); m < ceil_div(in.m, 128) * 128; ++m)
        for (std::int64_t b = 0; b < blocks; ++b) {
          const std::int64_t at = reference::scale_index(m, b, blocks);
          c.tail(out.sfd_row, at, at + 1, *settings.poison);
        }
    finish(c);
  }

  void col_scales() {
    Collector c("sfd_col");
    const std::int64_t width = p.width();
    const auto code_at = [&](RowRange range, std::int64_t n, std::int64_t m) {
      return reference::col_scale_index(p, in, range, n, m);
    };
    for (int g = 0; g < p.experts; ++g) {
      const RowRange range = reference::rows_of(p, in, g);
      for (std::int64_t m = range.begin; m < range.end; m += 32)
        for (std::int64_t n = 0; n < width; ++n)
          check_scale(c, out.sfd_col[code_at(range, n, m)], block(m * width + n, 32, width),
                      reference::col_scale_code, m, n);
    }
    if (settings.poison) {
      // The rows that no expert owns, as one more expert.
      const RowRange unused{rows(), ceil_div(in.m, 128) * 128};
      for (std::int64_t m = unused.begin; m < unused.end; m += 32)
        for (std::int64_t n = 0; n < width; ++n) {
          const std::int64_t at = code_at(unused, n, m);
          c.tail(out.sfd_col, at, at + 1, *settings.poison);
        }
    }
    finish(c);
  }

  const Problem& p;
  const Operands& in;
  const Operands& out;
  const reference::Result& exact;
  const Settings& settings;
  Report report_;
};

}  // namespace

bool Check::passed() const {
  const std::int64_t budget = std::max<std::int64_t>(1, elements / 500);
  return out_of_bound == 0 && overwritten == 0 && differing <= budget;
}

bool Report::passed() const {
  return std::all_of(checks.begin(), checks.end(), [](const Check& c) { return c.passed(); });
}

const Check* Report::find(const std::string& output) const {
  for (const Check& c : checks)
    if (c.output == output) return &c;
  return nullptr;
}

Report compare(const Problem& problem, const Operands& inputs, const Operands& outputs,
               const Settings& settings) {
  return compare(problem, inputs, outputs, reference::evaluate(problem, inputs), settings);
}

Report compare(const Problem& problem, const Operands& inputs, const Operands& outputs,
               const reference::Result& exact, const Settings& settings) {
  return Comparison(problem, inputs, outputs, exact, settings).run();
}

double relative_frobenius(std::span<const double> got, std::span<const double> expected) {
  if (got.size() != expected.size()) throw InvalidArgument("relative_frobenius: the sizes differ");
  Norms norms;
  for (std::size_t i = 0; i < got.size(); ++i) norms.add(got[i], expected[i]);
  return norms.relative();
}

std::string to_string(const Report& report) {
  std::string text;
  char line[512];
  for (const Check& c : report.checks) {
    std::snprintf(
        line, sizeof line,
        "%-8s %s  elements %lld  max error %.3e  error/bound %.3f  relative error %.2e  out of bound %lld  "
        "differing %lld  overwritten %lld\n",
        c.output.c_str(), c.passed() ? "ok  " : "FAIL", static_cast<long long>(c.elements), c.max_error,
        c.max_ratio, c.relative_error, static_cast<long long>(c.out_of_bound),
        static_cast<long long>(c.differing), static_cast<long long>(c.overwritten));
    text += line;
    if (!c.first) continue;
    std::snprintf(line, sizeof line,
                  "         first at (%lld, %lld): got %.9g (code 0x%X), expected %.9g, bound %.3e\n",
                  static_cast<long long>(c.first->row), static_cast<long long>(c.first->column), c.first->got,
                  c.first->got_code, c.first->expected, c.first->bound);
    text += line;
  }
  return text;
}

}  // namespace gemmule::verify
