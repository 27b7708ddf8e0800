#include "selfcheck_cases.hpp"

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "random.hpp"
#include "text.hpp"
#include "values.hpp"

namespace gemmule::cli {
namespace {

struct Combination {
  Op op;
  const char *format, *activation, *weights;
};

const std::vector<Combination>& combinations() {
  static const std::vector<Combination> all = [] {
    std::vector<Combination> out;
    for (const char* weights : {"dense", "discrete"}) {
      for (const char* act : {"dswiglu", "dgeglu"}) out.push_back({Op::dglu, "bf16", act, weights});
      for (const char* format : {"mxfp8", "nvfp4", "mxfp8_e5m2", "mxfp4"}) {
        for (const char* act : {"srelu", "clamped"}) out.push_back({Op::srelu, format, act, weights});
        for (const char* act : {"dswiglu", "dgeglu", "dsituglu"})
          out.push_back({Op::dglu, format, act, weights});
      }
    }
    return out;
  }();
  return all;
}

/// Draws in order.
class Draw {
 public:
  Draw(std::uint64_t seed, std::size_t index) : random_(seed, 0x73656c66 + index) {}
  std::uint64_t bits() { return random_.bits(next_++); }
  std::int64_t below(std::int64_t limit) {
    return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(limit));
  }
  bool one_in(std::int64_t count) { return below(count) == 0; }
  const char* pick(std::initializer_list<const char*> choices) {
    return choices.begin()[below(static_cast<std::int64_t>(choices.size()))];
  }

 private:
  Random random_;
  std::uint64_t next_ = 0;
};

class Case {
 public:
  Case(std::uint64_t seed, std::size_t index)
      : draw_(seed, index), combination_(combinations()[index / 2 % combinations().size()]) {
    out_.seed = draw_.bits() % 1'000'000;
    const std::size_t round = index / selfcheck_round();
    out_.exact = (index + round) % 2 == 1;
    out_.spec.op = combination_.op;
    out_.spec.format = combination_.format;
    large_ = index % 11 == 10;
  }

  SelfcheckCase take() {
    if (combination_.weights == std::string("discrete")) set("weight_mode", "discrete");
    if (out_.spec.op == Op::srelu)
      draw_srelu();
    else
      draw_dglu();
    draw_shared();
    draw_extents();
    draw_cluster();
    return std::move(out_);
  }

 private:
  bool fp8() const { return out_.spec.format.starts_with("mxfp8"); }
  bool fp4() const { return out_.spec.format.ends_with("fp4"); }
  void set(const char* key, const std::string& value) { out_.spec.options[key] = value; }

  void draw_srelu() {
    set("c_dtype",
        draw_.pick({"bfloat16", "float16", "float32", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn_x2"}));
    d_ = fp4() ? draw_.pick({"bfloat16", "float16", "float32"})
               : draw_.pick({"float8_e4m3fn", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn_x2", "bfloat16",
                             "float16"});
    if (combination_.activation == std::string("clamped"))
      set("tanh_clamp_scale", out_.exact ? "0.0000152587890625" : draw_.pick({"0.5", "8", "16"}));
    if (draw_.one_in(3)) set("bias", draw_.pick({"bfloat16", "float16", "float32"}));
  }

  void draw_dglu() {
    const std::string act = combination_.activation;
    const bool scaled = fp8() || fp4();
    set("act_func", act);
    set("c_dtype",
        scaled ? draw_.pick({"bfloat16", "bfloat16", "float16", "float32", "float8_e4m3fn", "float8_e5m2"})
               : draw_.pick({"bfloat16", "float16", "float32"}));
    d_ =
        fp8() ? draw_.pick({"float8_e4m3fn", "float8_e5m2"}) : draw_.pick({"bfloat16", "float16", "float32"});
    if (draw_.one_in(2)) set("generate_dbias", "true");
    if (act == "dgeglu") set("geglu_filter", draw_.pick({"mask", "value"}));
    if (act == "dsituglu") {
      set("situ_beta1", draw_.pick({"4", "4", "2"}));
      set("situ_beta2", out_.exact ? "8" : "25");
    }
    if (scaled && draw_.one_in(4)) set("epilogue_op", draw_.pick({"relu", "srelu"}));
  }

  void draw_shared() {
    set("d_dtype", d_);
    quantized_ = fp8() && d_.starts_with("float8") | d_.starts_with("float4");
    if (quantized_ && draw_.one_in(2)) set("discrete_col_sfd", "true");
    if (quantized_ && !out_.exact) set("norm_const", draw_.pick({"1", "0.1", "30"}));
    if (out_.spec.format == "mxfp4" && draw_.one_in(2)) set("sf_vec_size", "16");
    const bool discrete_bf16 = !fp8() && !fp4() && out_.spec.options.contains("weight_mode");
    if ((fp8() || discrete_bf16) && draw_.one_in(2)) set("b_major", "n");
    if (draw_.one_in(2)) set("deterministic", "true");
    if (draw_.one_in(2)) set("use_dynamic_sched", "true");
    if (!draw_.one_in(3)) return;
    set("m_aligned", "128");
    set("mma_tiler_mn", "128,256");
    set("cluster_shape_mn", "1,1");
  }

  /// Now and then a cluster of several tiles side by side: other code on compute capability 10.x.
  void draw_cluster() {
    if (!draw_.one_in(4)) return;
    const bool bf16 = !fp8() && !fp4();
    const std::string rows = out_.spec.options.contains("cluster_shape_mn") ? "1," : "2,";
    set("cluster_shape_mn", rows + (bf16 ? draw_.pick({"2", "4", "8"}) : draw_.pick({"2", "4"})));
  }

  /// Experts without rows, with a few, with several tiles, and a hot one. Rows of every operand are multiples of 16 bytes;
  /// exact data with output scale factors has no padding among them, so that whole files can be compared.
  void draw_extents() {
    std::vector<std::int64_t>& rows = out_.spec.rows;
    const std::int64_t most = large_ ? 1500 : 600;
    rows = {0, 1 + draw_.below(250), most / 2 + draw_.below(most / 2), draw_.below(most)};
    while (large_ && rows.size() < 8) rows.push_back(draw_.below(most));
    for (std::size_t i = rows.size() - 1; i > 0; --i)
      std::swap(rows[i], rows[static_cast<std::size_t>(draw_.below(static_cast<std::int64_t>(i) + 1))]);
    const std::int64_t n_step = out_.exact && quantized_ ? (out_.spec.op == Op::srelu ? 128 : 64) : 32;
    const std::int64_t k_step = fp4() ? 32 : fp8() ? 16 : 8;
    out_.spec.n = n_step * (1 + draw_.below((large_ ? 384 : 256) / n_step));
    out_.spec.k = k_step * (1 + draw_.below((large_ ? 512 : 256) / k_step));
  }

  SelfcheckCase out_;
  Draw draw_;
  Combination combination_;
  std::string d_;
  bool large_ = false, quantized_ = false;
};

/// Values for a problem that is only described.
class Zeros final : public Values {
 public:
  void a(std::int64_t, std::span<float> out) const override { clear(out); }
  void b(std::int64_t, std::int64_t, std::span<float> out) const override { clear(out); }
  void c(std::int64_t, std::span<float> out) const override { clear(out); }
  float prob(std::int64_t) const override { return 0; }
  void bias(std::int64_t, std::span<float> out) const override { clear(out); }

 private:
  static void clear(std::span<float> out) { std::fill(out.begin(), out.end(), 0.0f); }
};

}  // namespace

std::size_t selfcheck_round() {
  return 2 * combinations().size();
}

SelfcheckCase selfcheck_case(std::uint64_t seed, std::size_t index) {
  return Case(seed, index).take();
}

io::LoadedProblem SelfcheckCase::build() const {
  return build_problem(spec,
                       *(exact ? exact_values(seed, spec) : random_values(seed, spec.op, spec.n, spec.k)));
}

Problem SelfcheckCase::problem() const {
  ProblemSpec empty = spec;
  empty.rows.assign(spec.rows.size(), 0);
  return io::check_problem(build_problem(empty, Zeros{}));
}

std::string SelfcheckCase::command() const {
  std::string text = std::string("gemmule make --op ") + (spec.op == Op::srelu ? "srelu" : "dglu") +
                     " --format " + spec.format + " --rows " + joined(spec.rows) + " --n " +
                     std::to_string(spec.n) + " --k " + std::to_string(spec.k) + " --seed " +
                     std::to_string(seed);
  if (exact) text += " --exact";
  for (const auto& [key, value] : spec.options) text += " " + key + "=" + value;
  return text;
}

}  // namespace gemmule::cli
