// The oracle: for every output one plain loop in double over exactly decoded operands.
#include <algorithm>
#include <atomic>
#include <cfloat>
#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "backends/reference/activation.hpp"
#include "backends/reference/formats.hpp"
#include "backends/reference/layout.hpp"
#include "backends/reference/reference.hpp"

namespace gemmule::reference {
namespace {

constexpr double not_written = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t chunk_rows = 8;  // rows that share one pass over an expert's weights

/// Decoded values, every row padded with zeros to a multiple of 4.
struct Matrix {
  std::int64_t pitch = 0;
  std::vector<double> data;
  Matrix(std::int64_t rows, std::int64_t cols) : pitch(ceil_div(cols, 4) * 4), data(rows * pitch) {}
  double* row(std::int64_t r) { return data.data() + r * pitch; }
  const double* row(std::int64_t r) const { return data.data() + r * pitch; }
};

/// Scale factor of (row, k), 1 without scales.
double input_scale(const Problem& p, const void* scales, std::int64_t row, std::int64_t k) {
  if (!p.block_scaled()) return 1;
  return load(scales, p.scale, scale_index(row, k / p.vec, ceil_div(p.k, p.vec)));
}

void decode_a_row(const Problem& p, const Operands& o, std::int64_t m, double* out) {
  for (std::int64_t k = 0; k < p.k; ++k) out[k] = load(o.a, p.ab, m * p.k + k) * input_scale(p, o.sfa, m, k);
}

/// The weights of one expert as n rows of k values.
Matrix decode_b(const Problem& p, const Operands& o, int expert) {
  const std::int64_t values_before = p.discrete ? 0 : expert * p.n * p.k;
  const void* b = p.discrete ? address(o.b_ptrs[expert]) : o.b;
  const void* scales = nullptr;
  if (p.block_scaled()) {
    scales = p.discrete
                 ? address(o.sfb_ptrs[expert])
                 : static_cast<const char*>(o.sfb) + expert * scale_bytes_of(p.n, ceil_div(p.k, p.vec));
  }
  Matrix out(p.n, p.k);
  for (std::int64_t n = 0; n < p.n; ++n)
    for (std::int64_t k = 0; k < p.k; ++k) {
      const std::int64_t index = values_before + (p.b_n_major ? k * p.n + n : n * p.k + k);
      out.row(n)[k] = load(b, p.ab, index) * input_scale(p, scales, n, k);
    }
  return out;
}

/// sum a*b, and the error decisions allow a float32 accumulation: 2^-22 sqrt(K) sum |a*b|, plus what is lost below
/// float32's smallest step.
Estimate dot(const double* a, const double* b, std::int64_t k) {
  double sum[4] = {}, magnitude[4] = {};  // partial sums that the compiler keeps in two vectors each
  for (std::int64_t i = 0; i < k; i += 4)
    for (int j = 0; j < 4; ++j) {
      const double term = a[i + j] * b[i + j];
      sum[j] += term;
      magnitude[j] += std::fabs(term);
    }
  double total = 0, total_magnitude = 0;
  for (int j = 0; j < 4; ++j) {
    total += sum[j];
    total_magnitude += magnitude[j];
  }
  const double terms = static_cast<double>(k);
  return limited({total, 0x1p-22 * std::sqrt(terms) * total_magnitude + terms * 0x1p-149,
                  total_magnitude > FLT_MAX});  // a partial sum may overflow
}

/// Calls work(i) for 0 <= i < count on every core when there is enough to do.
void parallel_for(std::int64_t count, std::int64_t cost, const std::function<void(std::int64_t)>& work) {
  const std::int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const std::int64_t workers = cost < 10'000'000 ? 1 : std::min(cores, count);
  std::atomic<std::int64_t> next{0};
  const auto loop = [&] {
    for (std::int64_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::thread> threads;
  for (std::int64_t t = 1; t < workers; ++t) threads.emplace_back(loop);
  loop();
  for (std::thread& t : threads) t.join();
}

void put(Values& out, std::int64_t index, Estimate e) {
  out.value[index] = e.value;
  out.bound[index] = e.error;
  out.overflow[index] = e.overflow;
}

Estimate get(const Values& in, std::int64_t index) {
  return {in.value[index], in.bound[index], in.overflow[index] != 0};
}

/// Adds the rounding to an output format.
Estimate rounded_to(DType type, Estimate e) {
  const double reach = std::fabs(e.value) + e.error;
  if (std::isfinite(reach)) e.error += half_ulp(type, reach);
  return e;
}

/// A sum of estimates; float32 accumulation costs 2^-22 sqrt(count) sum |terms|, as in the main loop.
struct Sum {
  Estimate total{-0.0, 0};
  double magnitude = 0;
  void add(Estimate e) {
    total.value += e.value;
    total.error += e.error;
    total.overflow |= e.overflow;
    magnitude += std::fabs(e.value);
  }
  Estimate result(std::int64_t count) const {
    const double accumulation = 0x1p-22 * std::sqrt(static_cast<double>(count)) * magnitude;
    return limited({total.value, total.error + accumulation, total.overflow || magnitude > FLT_MAX});
  }
};

/// The maximum of estimates: between the largest of all lower ends and the largest of all upper ends.
struct Largest {
  double value = -std::numeric_limits<double>::infinity(), lower = value, upper = value;
  bool overflow = false;
  void add(Estimate e) { merge({e.value, e.value - e.error, e.value + e.error, e.overflow}); }
  void merge(const Largest& other) {
    overflow |= other.overflow;
    if (std::isnan(value)) return;
    value = other.value > value || std::isnan(other.value) ? other.value : value;
    lower = std::max(lower, other.lower);
    upper = std::max(upper, other.upper);
  }
  Estimate result() const {
    return limited({value, value == lower ? 0.0 : std::max(upper - value, value - lower), overflow});
  }
};

class Evaluation {
 public:
  Evaluation(const Problem& problem, const Operands& operands) : p(problem), o(operands) {
    const std::int64_t size = o.m * p.width();
    if (p.op == Op::srelu) resize(result.c, size);
    resize(result.d, size);
    if (p.has_dprob) resize(result.dprob, o.m);
    if (p.has_dbias) resize(result.dbias, p.experts * p.width());
    if (p.has_amax) resize(result.amax, p.experts * amax_entries());
    if (p.has_amax) row_amax_.resize(o.m * amax_entries());
    if (p.has_dbias) resize(unprocessed_, size);
  }

  Result run() {
    for (int g = 0; g < p.experts; ++g) {
      const RowRange rows = rows_of(p, o, g);
      if (rows.begin < rows.end) multiply(g, rows);
      if (p.has_amax) reduce_amax(g, rows);
      if (p.has_dbias) reduce_dbias(g, rows);
    }
    return std::move(result);
  }

 private:
  static void resize(Values& v, std::int64_t size) {
    v.value.assign(size, not_written);
    v.bound.assign(size, not_written);
    v.overflow.assign(size, 0);
  }

  int amax_entries() const { return p.op == Op::srelu ? 1 : 2; }

  double prob(std::int64_t m) const { return p.has_prob ? o.prob[m * o.prob_stride] : 1.0; }

  void multiply(int g, RowRange rows) {
    const Matrix b = decode_b(p, o, g);
    const std::int64_t chunks = ceil_div(rows.end - rows.begin, chunk_rows);
    parallel_for(chunks, (rows.end - rows.begin) * p.n * p.k, [&](std::int64_t chunk) {
      const std::int64_t begin = rows.begin + chunk * chunk_rows;
      const std::int64_t count = std::min(chunk_rows, rows.end - begin);
      Matrix a(count, p.k);
      for (std::int64_t i = 0; i < count; ++i) decode_a_row(p, o, begin + i, a.row(i));
      std::vector<Estimate> acc(count * p.n);
      for (std::int64_t n = 0; n < p.n; ++n)
        for (std::int64_t i = 0; i < count; ++i) acc[i * p.n + n] = dot(a.row(i), b.row(n), a.pitch);
      for (std::int64_t i = 0; i < count; ++i) {
        const Estimate* row = acc.data() + i * p.n;
        if (p.op == Op::srelu)
          srelu_row(g, begin + i, row);
        else
          dglu_row(g, begin + i, row);
      }
    });
  }

  void srelu_row(int g, std::int64_t m, const Estimate* acc) {
    const double alpha = o.alpha[g];
    for (std::int64_t n = 0; n < p.n; ++n) {
      const double bias = p.bias == DType::none ? -0.0 : load(o.bias, p.bias, g * p.n + n);
      const double value = alpha * acc[n].value + bias;
      const Estimate x = limited(
          {value, std::fabs(alpha) * acc[n].error + 0x1p-23 * std::fabs(value) + underflow, acc[n].overflow});
      put(result.c, m * p.n + n, rounded_to(p.c, x));
      finish_d(m, n, srelu(p, x, prob(m)));
    }
  }

  void dglu_row(int g, std::int64_t m, const Estimate* acc) {
    const double square = static_cast<double>(o.alpha[g]) * o.alpha[g];
    Sum dprob;
    for (std::int64_t n = 0; n < p.n; ++n) {
      const std::int64_t gate_column = gate_column_of(n), input_column = gate_column + 32;
      // beta * C is one float32 multiplication: the clamps compare its rounded result.
      const float beta = o.beta[g];
      const double gate = beta * static_cast<float>(load(o.c_in, p.c, m * p.width() + gate_column));
      const double input = beta * static_cast<float>(load(o.c_in, p.c, m * p.width() + input_column));
      const Derivatives derivatives = glu(p, gate, input);
      // alpha^2 is a float32 of its own, which may overflow or underflow.
      const Estimate r = limited({acc[n].value * square,
                                  acc[n].error * square + underflow * std::max(1.0, std::fabs(acc[n].value)),
                                  acc[n].overflow || square > FLT_MAX});
      const Estimate r_prob =
          limited({r.value * prob(m), r.error * std::fabs(prob(m)) + underflow, r.overflow});
      finish_d(m, gate_column, product(r_prob, derivatives.gate));
      finish_d(m, input_column, product(r_prob, derivatives.input));
      dprob.add(product(r, derivatives.act));
    }
    if (!p.has_dprob) return;
    dprob.add({o.dprob ? o.dprob[m] : 0.0, 0});
    put(result.dprob, m, rounded_to(DType::float32, dprob.result(p.n)));
  }

  /// Everything that happens to one D value. Only dGLU has dbias and epilogue_op.
  void finish_d(std::int64_t m, std::int64_t column, Estimate d) {
    if (p.has_dbias) put(unprocessed_, m * p.width() + column, d);
    d = post_process(p.epilogue_op, d);
    if (p.has_amax) {
      const std::int64_t entry = p.op == Op::srelu ? 0 : column / 32 % 2;
      row_amax_[m * amax_entries() + entry].add({std::fabs(d.value), d.error, d.overflow});
    }
    put(result.d, m * p.width() + column, output(d));
  }

  /// Without quantization D is rounded to its dtype; with it the rounding depends on the block's scale, see verify.
  Estimate output(Estimate d) const { return p.quantize ? d : rounded_to(p.d, d); }

  /// Largest |D| of the rows before rounding, separately for gate and input columns in dGLU; NaN if any is NaN.
  void reduce_amax(int g, RowRange rows) {
    for (int entry = 0; entry < amax_entries(); ++entry) {
      const std::int64_t at = g * amax_entries() + entry;
      Largest largest;
      largest.add({o.amax ? o.amax[at] : -std::numeric_limits<double>::infinity(), 0});
      for (std::int64_t m = rows.begin; m < rows.end; ++m)
        largest.merge(row_amax_[m * amax_entries() + entry]);
      put(result.amax, at, largest.result());
    }
  }

  /// Sum of D over the expert's rows before rounding and before epilogue_op, added to the BF16 buffer.
  void reduce_dbias(int g, RowRange rows) {
    std::vector<Sum> sums(p.width());
    for (std::int64_t m = rows.begin; m < rows.end; ++m)
      for (std::int64_t column = 0; column < p.width(); ++column)
        sums[column].add(get(unprocessed_, m * p.width() + column));
    for (std::int64_t column = 0; column < p.width(); ++column) {
      const std::int64_t at = g * p.width() + column;
      Sum& sum = sums[column];
      sum.add({o.dbias ? load(o.dbias, DType::bfloat16, at) : 0.0, 0});
      const bool empty = rows.begin >= rows.end;
      put(result.dbias, at,
          empty ? sum.total : rounded_to(DType::bfloat16, sum.result(rows.end - rows.begin)));
    }
  }

  const Problem& p;
  const Operands& o;
  Result result;
  Values unprocessed_;             // D before epilogue_op, for dbias
  std::vector<Largest> row_amax_;  // per row and amax entry
};

}  // namespace

Result evaluate(const Problem& problem, const Operands& operands) {
  return Evaluation(problem, operands).run();
}

}  // namespace gemmule::reference
