#include "gemmule/grouped_gemm_dglu.hpp"

#include <optional>

#include "operators/environment.hpp"
#include "operators/one_call.hpp"
#include "operators/recent_calls.hpp"

namespace gemmule {

using namespace operators;

struct GroupedGemmDglu::Impl {
  DgluTensors samples;
  DgluOptions options;
  int margin = cluster_overlap_margin();
  std::optional<PlanKey> key{};        // after check_support()
  std::unique_ptr<const Plan> plan{};  // after compile()
};

GroupedGemmDglu::GroupedGemmDglu(const DgluTensors& samples, const DgluOptions& options)
    : impl_(new Impl{samples, options}) {}
GroupedGemmDglu::~GroupedGemmDglu() = default;
GroupedGemmDglu::GroupedGemmDglu(GroupedGemmDglu&&) noexcept = default;
GroupedGemmDglu& GroupedGemmDglu::operator=(GroupedGemmDglu&&) noexcept = default;

void GroupedGemmDglu::check_support() {
  const Arguments args(impl_->samples, Form::sample);
  const PlanKey key = check_configuration(args, impl_->options, impl_->margin);
  check_memory(args, key, Needed::none);
  impl_->key = key;
}

void GroupedGemmDglu::compile() {
  if (impl_->plan) return;
  if (!impl_->key) check_support();
  impl_->plan = std::make_unique<const Plan>(*impl_->key);
}

bool GroupedGemmDglu::compiled() const noexcept {
  return impl_->plan != nullptr;
}

std::size_t GroupedGemmDglu::workspace_size(std::int64_t rows) const {
  return compiled_plan(impl_->plan.get()).workspace_size(rows);
}

void GroupedGemmDglu::execute(const DgluTensors& tensors, void* workspace, std::size_t workspace_bytes,
                              Stream stream) const {
  compiled_plan(impl_->plan.get()).execute({tensors, Form::call}, workspace, workspace_bytes, stream);
}

namespace {

void set_outputs(DgluTensors& all, const DgluTensors& from) {
  all.d_row = from.d_row;
  all.d_col = from.d_col;
  all.dbias = from.dbias;
  all.amax = from.amax;
  all.sfd_row = from.sfd_row;
  all.sfd_col = from.sfd_col;
}

/// See the function of the same name in grouped_gemm_srelu.cpp. dprob is the caller's own tensor.
PlanKey complete(DgluTensors& all, const DgluOptions& options, const DgluCall& call, int margin) {
  set_outputs(all, {});
  const Arguments args(all, Form::call);
  check_call(args, options, call);
  const bool scales = generates_scales(all.a.dtype, call.d_dtype);
  const bool block_scaled = all.a.dtype != DType::bfloat16;
  if (!scales) all.norm_const = Tensor{};
  if (block_scaled) require(args, Role::sfa);

  const Extents e = resolve_extents(args, options, !args.has(Role::b));
  const Device device = all.a.device;
  all.d_row = describe(Role::d, e, call.d_dtype, device);
  if (call.generate_dbias) all.dbias = describe(Role::dbias, e, DType::bfloat16, device);
  if (scales) {
    all.d_col = describe(Role::d_col, e, call.d_dtype, device);
    all.sfd_row = describe(Role::sfd_row, e, all.sfa.dtype, device);
    all.sfd_col = describe(Role::sfd_col, e, all.sfa.dtype, device);
  } else if (block_scaled && is_16bit(call.d_dtype)) {
    all.amax = describe(Role::amax, e, DType::float32, device);
  }
  return check_configuration(args, options, margin);
}

DgluResult result(const DgluTensors& t) {
  DgluResult out{t.d_row, t.d_col, t.dprob, t.dbias, t.amax, t.sfd_row, t.sfd_col};
  if (!out.d_col && t.a.dtype != DType::bfloat16)
    out.d_col = t.d_row;  // no scales: both hold the same values
  return out;
}

}  // namespace

DgluResult describe_outputs(const DgluTensors& tensors, const DgluOptions& options, const DgluCall& call) {
  DgluTensors all = tensors;
  complete(all, options, call, cluster_overlap_margin());
  return result(all);
}

DgluResult grouped_gemm_dglu(const DgluTensors& inputs, const DgluOptions& options, const DgluCall& call,
                             Allocator& allocator, Stream stream) {
  static thread_local RecentCalls<DgluTensors, DgluOptions, DgluCall> recent;
  DgluTensors all = inputs;
  set_outputs(all, {});
  const auto& known = recent.find_or_complete(all, options, call, cluster_overlap_margin(), complete);
  set_outputs(all, known.completed);
  if (!known.completed.norm_const) all.norm_const = Tensor{};
  const PlanKey key = known.key;
  const std::array<Output, 6> outputs = {{{&all.d_row},
                                          {&all.d_col},
                                          {&all.sfd_row},
                                          {&all.sfd_col},
                                          {&all.dbias, InitialValue::zero},
                                          {&all.amax, InitialValue::minus_infinity}}};
  run_one_call(key, {all, Form::call}, outputs, allocator, stream);
  return result(all);
}

}  // namespace gemmule
