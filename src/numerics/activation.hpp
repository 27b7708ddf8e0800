// The activations of grouped_gemm_srelu and the gradients of grouped_gemm_dglu, one element at a time, in float32.
//
// Gradients: r = alpha^2 * acc, gate and input already contain beta. Results: the two values of D (which contain prob)
// and the element's term of dprob (which contains neither prob nor filters). Products are evaluated left to right as
// written. A gate of -inf gives NaN (infinity times a zero sigmoid), as the formulas say.
#pragma once

#include "numerics/math.hpp"

namespace gemmule::numerics {

/// relu(x)^2.
GEMMULE_HD float srelu(float x) {
  const float r = relu(x);
  return r * r;
}

/// (s tanh(relu(x) / s))^2, never above s^2. s_rcp = finite_reciprocal(s).
GEMMULE_HD float srelu_clamped(float x, float s, float s_rcp) {
  const float c = tanh(relu(x) * s_rcp) * s;
  return c * c;
}

/// left * right. Kept apart so that a sum of such terms may round once instead of twice.
struct Term {
  float left;
  float right;
  GEMMULE_HD operator float() const { return left * right; }
  GEMMULE_HD float added_to(float sum) const { return multiply_add(left, right, sum); }
};

struct Gradient {
  float gate;
  float input;
  Term dprob;
};

/// Forward: prob * gate * sigmoid(gate) * input.
GEMMULE_HD Gradient dswiglu(float r, float gate, float input, float prob) {
  const float s = sigmoid(gate);
  const float swish = gate * s;
  const float rp = r * prob;
  return {((rp * input) * s) * multiply_add(gate, 1.0f - s, 1.0f), rp * swish, {input * swish, r}};
}

struct GegluParams {
  float linear_offset;
  float alpha;
  float clamp_max;
  float clamp_min;
  bool value_filter;  ///< the filter is the value itself instead of 1
};

/// Forward: prob * yg * sigmoid(alpha yg) * (yu + linear_offset) with yg = min(gate, clamp_max) and
/// yu = clamp(input, clamp_min, clamp_max). Where a clamp is active (outside the inclusive bounds) the filter is 0,
/// elsewhere 1, or the value itself when value_filter is set. Only the former is the gradient.
GEMMULE_HD Gradient dgeglu(float r, float gate, float input, float prob, const GegluParams& params) {
  const float hi = params.clamp_max;
  const float lo = params.clamp_min;
  const float yg = gate > hi ? hi : gate;
  const float below = input > hi ? hi : input;
  const float yu = below < lo ? lo : below;
  const float linear = yu + params.linear_offset;
  const float scaled = params.alpha * yg;
  const float s = sigmoid(scaled);
  // A value that its clamp left as it is lies within the inclusive bounds; NaN does not.
  const float gate_filter = yg == gate ? (params.value_filter ? gate : 1.0f) : 0.0f;
  const float input_filter = yu == input ? (params.value_filter ? input : 1.0f) : 0.0f;
  const float rps = (r * prob) * s;
  return {((rps * multiply_add(scaled, 1.0f - s, 1.0f)) * linear) * gate_filter,
          (rps * yg) * input_filter,
          {(r * s) * linear, yg}};
}

struct SituParams {
  float beta1;
  float beta2;
  float rcp_beta1;  ///< finite_reciprocal(beta1)
  float rcp_beta2;
};

/// Forward: prob * G * U with G = beta1 tanh(gate / beta1) sigmoid(gate), U = beta2 tanh(input / beta2).
/// `g` and `dg` are G and dG/dgate.
GEMMULE_HD Gradient dsituglu_product(float r, float g, float dg, float input, float prob,
                                     const SituParams& params) {
  const float t = tanh(input * params.rcp_beta2);
  const float u = params.beta2 * t;
  const float rp = r * prob;
  return {(rp * u) * dg, (rp * g) * (1.0f - t * t), {r * g, u}};
}

/// For any beta1: dG/dgate = (1 - t^2) s + beta1 t s (1 - s) with t = tanh(gate / beta1), s = sigmoid(gate).
GEMMULE_HD Gradient dsituglu_general(float r, float gate, float input, float prob, const SituParams& params) {
  const float t = tanh(gate * params.rcp_beta1);
  const float s = sigmoid(gate);
  const float g = (params.beta1 * t) * s;
  return dsituglu_product(r, g, (1.0f - t * t) * s + g * (1.0f - s), input, prob, params);
}

/// For beta1 = 4, without the exponential: s = 1/2 + t q and dG/dgate = (1 - t^2)(1/2 + 2 t q^2), q = 1 / (1 + t^2).
GEMMULE_HD Gradient dsituglu_packed(float r, float gate, float input, float prob, const SituParams& params) {
  const float t = tanh(gate * 0.25f);
  const float q = reciprocal_near_one(1.0f + t * t);
  const float s = 0.5f + t * q;
  const float dg = (1.0f - t * t) * (0.5f + (2.0f * t) * (q * q));
  return dsituglu_product(r, (4.0f * t) * s, dg, input, prob, params);
}

GEMMULE_HD Gradient dsituglu(float r, float gate, float input, float prob, const SituParams& params) {
  return params.beta1 == 4.0f ? dsituglu_packed(r, gate, input, prob, params)
                              : dsituglu_general(r, gate, input, prob, params);
}

}  // namespace gemmule::numerics
