#include "gemmule/grouped_gemm_srelu.hpp"

#include <optional>

#include "operators/environment.hpp"
#include "operators/one_call.hpp"
#include "operators/recent_calls.hpp"

namespace gemmule {

using namespace operators;

struct GroupedGemmSrelu::Impl {
  SreluTensors samples;
  SreluOptions options;
  int margin = cluster_overlap_margin();
  std::optional<PlanKey> key{};        // after check_support()
  std::unique_ptr<const Plan> plan{};  // after compile()

  Arguments arguments() const { return {samples, Form::sample}; }
};

GroupedGemmSrelu::GroupedGemmSrelu(const SreluTensors& samples, const SreluOptions& options)
    : impl_(new Impl{samples, options}) {
  check_construction(impl_->arguments(), options);
}
GroupedGemmSrelu::~GroupedGemmSrelu() = default;
GroupedGemmSrelu::GroupedGemmSrelu(GroupedGemmSrelu&&) noexcept = default;
GroupedGemmSrelu& GroupedGemmSrelu::operator=(GroupedGemmSrelu&&) noexcept = default;

void GroupedGemmSrelu::check_support() {
  const Arguments args = impl_->arguments();
  const PlanKey key = check_configuration(args, impl_->options, impl_->margin);
  check_memory(args, key, Needed::none);
  impl_->key = key;
}

void GroupedGemmSrelu::compile() {
  if (impl_->plan) return;
  if (!impl_->key) check_support();
  impl_->plan = std::make_unique<const Plan>(*impl_->key);
}

bool GroupedGemmSrelu::compiled() const noexcept {
  return impl_->plan != nullptr;
}

std::size_t GroupedGemmSrelu::workspace_size(std::int64_t rows) const {
  return compiled_plan(impl_->plan.get()).workspace_size(rows);
}

void GroupedGemmSrelu::execute(const SreluTensors& tensors, void* workspace, std::size_t workspace_bytes,
                               Stream stream) const {
  compiled_plan(impl_->plan.get()).execute({tensors, Form::call}, workspace, workspace_bytes, stream);
}

namespace {

void set_outputs(SreluTensors& all, const SreluTensors& from) {
  all.c = from.c;
  all.d = from.d;
  all.d_col = from.d_col;
  all.sfd_row = from.sfd_row;
  all.sfd_col = from.sfd_col;
  all.amax = from.amax;
}

/// `all`: the inputs; the outputs of the one-call form are added to it, without data. norm_const is dropped where no
/// scales are generated. Returns the checked configuration.
PlanKey complete(SreluTensors& all, const SreluOptions& options, const SreluCall& call, int margin) {
  set_outputs(all, {});
  const Arguments args(all, Form::call);
  check_construction(args, options);
  check_call(args, options, call);
  const bool scales = generates_scales(all.a.dtype, call.d_dtype);
  if (!scales) all.norm_const = Tensor{};
  for (const Role role : {Role::a, Role::sfa, Role::padded_offsets}) require(args, role);

  const Extents e = resolve_extents(args, options, !args.has(Role::b));
  const Device device = all.a.device;
  all.c = describe(Role::c, e, call.c_dtype, device);
  all.d = describe(Role::d, e, call.d_dtype, device);
  if (scales) {
    all.d_col = describe(Role::d_col, e, call.d_dtype, device);
    all.sfd_row = describe(Role::sfd_row, e, all.sfa.dtype, device);
    all.sfd_col = describe(Role::sfd_col, e, all.sfa.dtype, device);
  } else if (is_16bit(call.d_dtype)) {
    all.amax = describe(Role::amax, e, DType::float32, device);
  }
  return check_configuration(args, options, margin);
}

SreluResult result(const SreluTensors& t) {
  return {t.c, t.d, t.d_col, t.amax, t.sfd_row, t.sfd_col};
}

}  // namespace

SreluResult describe_outputs(const SreluTensors& tensors, const SreluOptions& options,
                             const SreluCall& call) {
  SreluTensors all = tensors;
  complete(all, options, call, cluster_overlap_margin());
  return result(all);
}

SreluResult grouped_gemm_srelu(const SreluTensors& inputs, const SreluOptions& options, const SreluCall& call,
                               Allocator& allocator, Stream stream) {
  static thread_local RecentCalls<SreluTensors, SreluOptions, SreluCall> recent;
  SreluTensors all = inputs;
  set_outputs(all, {});
  const auto& known = recent.find_or_complete(all, options, call, cluster_overlap_margin(), complete);
  set_outputs(all, known.completed);
  if (!known.completed.norm_const) all.norm_const = Tensor{};
  const PlanKey key = known.key;
  const std::array<Output, 6> outputs = {{{&all.c},
                                          {&all.d},
                                          {&all.d_col},
                                          {&all.sfd_row},
                                          {&all.sfd_col},
                                          {&all.amax, InitialValue::minus_infinity}}};
  run_one_call(key, {all, Form::call}, outputs, allocator, stream);
  return result(all);
}

}  // namespace gemmule
