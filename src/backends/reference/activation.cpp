#include "backends/reference/activation.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>

namespace gemmule::reference {
namespace {

constexpr double formula_error = 4e-6;         // relative error of a float32 formula
constexpr double situ_error = 4e-5;            // the same for dSiTU-GLU
constexpr double situ_floor = 0x1p-40;         // product of two factors that float32 takes for 0 within 2^-20
constexpr double tanh_error = 7.7e-6;          // absolute error of the clamp's tanh
constexpr double tiny = 0x1p-126;              // absolute error of a sigmoid in the subnormal range
constexpr double argument_rounding = 0x1p-23;  // relative error of the argument of a sigmoid

double relu(double x) {
  return std::isnan(x) ? x : (x > 0 ? x : 0.0);
}

/// Exactly 0 and 1 from -128 and 128 on, where float32 can hold nothing else.
double sigmoid(double x) {
  if (x <= -128) return 0;
  if (x >= 128) return 1;
  return 1 / (1 + std::exp(-x));
}

double at_least_one(double x) {
  return std::max(1.0, std::fabs(x));
}

Derivatives swiglu(double gate, double input) {
  const double s = sigmoid(gate);
  const double slope = gate * (1 - s);
  const double error = formula_error + std::fabs(slope) * argument_rounding;
  Derivatives d;
  d.gate = {input * s * (1 + slope), std::fabs(input) * (s * error + tiny) * (1 + std::fabs(slope)),
            at_least_one(input) * (1 + std::fabs(gate))};
  d.input = {gate * s, std::fabs(gate) * (s * error + tiny), at_least_one(gate)};
  d.act = {gate * s * input, d.input.error * std::fabs(input), at_least_one(input) * at_least_one(gate)};
  return d;
}

/// NaN wins, as in every backend.
double at_most(double x, double limit) {
  return x > limit ? limit : x;
}
double at_least(double x, double limit) {
  return x < limit ? limit : x;
}

Derivatives geglu(const Problem& p, double gate, double input) {
  const double high = p.glu_clamp_max, low = p.glu_clamp_min;
  const double clamped_gate = at_most(gate, high);
  const double clamped_input = at_least(at_most(input, high), low);
  const double scaled = static_cast<double>(p.geglu_alpha) * clamped_gate;
  const double s = sigmoid(scaled);
  const double slope = scaled * (1 - s);
  const double up = clamped_input + p.linear_offset;
  const double up_magnitude = std::fabs(clamped_input) + std::fabs(p.linear_offset);
  const double error = formula_error + std::fabs(slope) * argument_rounding;
  // Outside the inclusive clamps, and for NaN, the filter is 0; inside, 1 or the value itself.
  const bool gate_inside = gate <= high, input_inside = low <= input && input <= high;
  const double gate_filter = gate_inside ? (p.geglu_value_filter ? gate : 1.0) : 0.0;
  const double input_filter = input_inside ? (p.geglu_value_filter ? input : 1.0) : 0.0;
  Derivatives d;
  d.gate = {up * s * (1 + slope) * gate_filter,
            up_magnitude * (s * error + tiny) * (1 + std::fabs(slope)) * std::fabs(gate_filter),
            (1 + std::fabs(scaled)) * at_least_one(up_magnitude) * at_least_one(gate_filter)};
  d.input = {clamped_gate * s * input_filter,
             std::fabs(clamped_gate) * (s * error + tiny) * std::fabs(input_filter),
             at_least_one(clamped_gate) * at_least_one(input_filter)};
  d.act = {clamped_gate * s * up, std::fabs(clamped_gate) * (s * error + tiny) * up_magnitude,
           at_least_one(clamped_gate) * at_least_one(up_magnitude)};
  return d;
}

Derivatives situglu(const Problem& p, double gate, double input) {
  const double beta1 = p.situ_beta1, beta2 = p.situ_beta2;
  const double tg = std::tanh(gate / beta1), tu = std::tanh(input / beta2), s = sigmoid(gate);
  const double g = beta1 * tg * s, u = beta2 * tu;
  const double saturating = 1 - tg * tg, gating = beta1 * tg * s * (1 - s);
  Derivatives d;
  // Float32 loses the small factors 1 - tanh^2 and, in the closed form for beta1 = 4, a small sigmoid to cancellation,
  // so the magnitudes leave them out.
  d.gate = {u * (saturating * s + gating),
            std::fabs(u) * (situ_error * (s + saturating + std::fabs(gating)) + situ_floor),
            at_least_one(u) * (1 + beta1)};
  d.input = {g * (1 - tu * tu), situ_error * beta1 * std::fabs(tg), at_least_one(beta1)};
  d.act = {g * u, situ_error * beta1 * std::fabs(tg) * std::fabs(u), at_least_one(beta1) * at_least_one(u)};
  // The arguments of tanh may underflow, which beta magnifies.
  const double g_lost = underflow * beta1, u_lost = underflow * beta2;
  d.gate.error += u_lost * (saturating * s + std::fabs(gating));
  d.input.error += g_lost;
  d.act.error += g_lost * std::fabs(u) + std::fabs(g) * u_lost;
  return d;
}

}  // namespace

Estimate limited(Estimate e) {
  if (std::isnan(e.error)) e.error = std::numeric_limits<double>::infinity();  // infinity * 0, beyond double
  if (std::isfinite(e.value) && !(std::fabs(e.value) + e.error <= FLT_MAX)) e.overflow = true;
  return e;
}

Estimate srelu(const Problem& p, Estimate x, double prob) {
  const double r = relu(x.value);
  double reachable = x.value + x.error > 0 || std::isnan(x.value) ? x.error : 0;
  Estimate y;
  if (p.tanh_clamp_scale == 0) {
    y = {r * r, 2 * r * reachable + reachable * reachable + formula_error * r * r};
  } else {
    const double s = p.tanh_clamp_scale, t = std::tanh(r / s), c = s * t;
    reachable += underflow * at_least_one(s);
    y = {c * c, 2 * c * (1 - t * t) * reachable + reachable * reachable + formula_error * c * c +
                    2 * s * s * tanh_error};
  }
  y.error += underflow;
  // float32's sum may then be either infinity, whichever sign x has: of one, relu makes zero.
  const double clamp = p.tanh_clamp_scale;
  if (x.overflow) y.error = std::max(y.error, clamp == 0 ? y.value : clamp * clamp);
  y.overflow = x.overflow || limited(y).overflow;
  return limited({y.value * prob, y.error * std::fabs(prob) + underflow, y.overflow});
}

Derivatives glu(const Problem& p, double gate, double input) {
  switch (p.act) {
    case ActFunc::dswiglu:
      return swiglu(gate, input);
    case ActFunc::dgeglu:
      return geglu(p, gate, input);
    default:
      return situglu(p, gate, input);
  }
}

Estimate product(Estimate r, const Factor& factor) {
  const double error = r.error * std::fabs(factor.value) + std::fabs(r.value) * factor.error;
  const double lost = underflow * factor.reach * at_least_one(r.value);
  const double largest = at_least_one(std::fabs(r.value) + r.error) * factor.reach;
  return limited({r.value * factor.value, error + lost, r.overflow || !(largest <= FLT_MAX)});
}

Estimate post_process(EpilogueOp op, Estimate d) {
  if (op == EpilogueOp::none) return d;
  const double r = relu(d.value);
  // Where float32 overflows the sign may be either (srelu()).
  const double lost = d.overflow ? (op == EpilogueOp::relu ? r : r * r) : 0;
  if (op == EpilogueOp::relu) return {r, std::max(d.error, lost), d.overflow};
  const double error = 2 * r * d.error + d.error * d.error + formula_error * r * r + underflow;
  return limited({r * r, std::max(error, lost), d.overflow});
}

}  // namespace gemmule::reference
