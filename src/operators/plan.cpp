#include "operators/plan.hpp"

#include <list>
#include <mutex>

#include "operators/rules.hpp"

namespace gemmule::operators {
namespace {

constexpr std::size_t workspace_alignment = 256;
constexpr std::size_t cache_capacity = 256;

Extents live_extents(const PlanKey& key, std::int64_t m) {
  const Problem& p = key.problem;
  Extents e;
  e.op = p.op;
  e.m = m;
  e.n = p.n;
  e.k = p.k;
  e.experts = p.experts;
  e.vec = p.vec;
  e.dtypes = key.dtypes;
  e.uint8_counts_values = key.uint8_counts_values;
  e.b_n_major = p.b_n_major;
  return e;
}

void check_presence_and_dtypes(const Arguments& args, const PlanKey& key) {
  for (std::size_t i = 0; i < role_count; ++i) {
    const Role role = role_at(i);
    const DType live = args[role].dtype, compiled = key.dtypes[i];
    if (live == compiled) continue;
    if (compiled == DType::none) reject(args.name(role), "given", "None: the object was compiled without it");
    if (live == DType::none) reject(args.name(role), "None", "a tensor: the object was compiled with it");
    reject(args.name(role), std::string("dtype ") + gemmule::name(live),
           std::string(gemmule::name(compiled)) + " as compiled");
  }
}

void check_workspace(const void* workspace, std::size_t bytes, std::size_t needed) {
  if (reinterpret_cast<std::uintptr_t>(workspace) % workspace_alignment != 0)
    reject("workspace", "a misaligned address",
           "a multiple of " + std::to_string(workspace_alignment) + " bytes");
  if (needed == 0) return;
  if (!workspace) reject("workspace", "null", std::to_string(needed) + " bytes");
  if (bytes < needed)
    reject("workspace_bytes", std::to_string(bytes), "at least workspace_size() = " + std::to_string(needed));
}

template <class T>
T* data(const Arguments& args, Role role) {
  return static_cast<T*>(args[role].data);
}

}  // namespace

PlanKey plan_key(const Arguments& args, const CommonOptions& o, const Extents& e, bool discrete,
                 int cluster_overlap_margin) {
  PlanKey key;
  key.dtypes = e.dtypes;
  if (discrete) {  // the class is told of pointers by num_experts
    key.dtypes[index(Role::b_ptrs)] = DType::int64;
    if (args.has(Role::sfa)) key.dtypes[index(Role::sfb_ptrs)] = DType::int64;
  }
  key.uint8_counts_values = e.uint8_counts_values;
  key.device = memory_of(args[Role::a]);

  Problem& p = key.problem;
  p.op = args.op;
  p.n = e.n;
  p.k = e.k;
  p.experts = static_cast<int>(e.experts);
  p.ab = is_fp4(args[Role::a].dtype) ? DType::float4_e2m1fn_x2 : args[Role::a].dtype;
  p.scale = args[Role::sfa].dtype;
  p.vec = p.block_scaled() ? o.sf_vec_size : 0;
  p.c = args[Role::c].dtype;
  p.d = args[Role::d].dtype;
  p.bias = args[Role::bias].dtype;
  p.discrete = discrete;
  p.b_n_major = e.b_n_major;
  p.quantize = generates_scales(p.ab, p.d);
  p.discrete_col_sfd = p.quantize && o.discrete_col_sfd;  // says nothing where there is no SFD_col
  p.has_prob = args.has(Role::prob);
  p.has_dprob = args.has(Role::dprob);
  p.has_dbias = args.has(Role::dbias);
  p.has_amax = args.has(Role::amax);
  p.has_d_col = args.has(Role::d_col);
  p.m_aligned = o.m_aligned;
  p.deterministic = o.deterministic;
  p.tile = o.mma_tiler_mn;
  p.vector_f32 = o.vector_f32;
  p.use_dynamic_sched = o.use_dynamic_sched;
  p.sm_limit = o.sm_limit;
  p.programmatic_launch = o.programmatic_launch;
  p.cluster_overlap_margin = cluster_overlap_margin;
  return key;
}

std::size_t Plan::workspace_size(std::int64_t rows) const {
  if (rows < 0) reject("rows", std::to_string(rows), "at least 0");
  return executable_.workspace_size(rows);
}

void Plan::check(const Arguments& args) const {
  const Problem& p = key_.problem;
  if (!p.block_scaled())
    check_no_scale_controls(args, {Role::sfa, Role::sfb, Role::sfb_ptrs, Role::d_col, Role::sfd_row,
                                   Role::sfd_col, Role::amax, Role::norm_const});
  check_presence_and_dtypes(args, key_);
  const Tensor& a = args[Role::a];
  const Extents e = live_extents(key_, a.rank > 0 ? a.shape[0] : 0);
  if (e.m < 0 || e.m > max_rows(e))
    reject(args.name(Role::a), std::to_string(e.m) + " rows", "at most " + std::to_string(max_rows(e)));
  for (std::size_t i = 0; i < role_count; ++i) {
    const Role role = role_at(i);
    if (!args.has(role)) continue;
    check_shape(args, role, e);
    check_strides(args, role, e);
  }
  check_pointer_arrays(args, e.experts);
  check_rows(args, p, e.m);
  check_devices(args);
  if (key_.device != memory_of(a))
    reject(args.name(Role::a), "device " + gemmule::name(a.device),
           gemmule::name(key_.device) + " as compiled");
}

Operands Plan::bind(const Arguments& args) const {
  const Problem& p = key_.problem;
  const Extents e = live_extents(key_, args[Role::a].shape[0]);
  check_addresses(args, Needed::all);
  check_overlap(args, e, p.quantize);

  Operands o;
  o.m = e.m;
  o.a = data<void>(args, Role::a);
  o.b = data<void>(args, Role::b);
  o.sfa = data<void>(args, Role::sfa);
  o.sfb = data<void>(args, Role::sfb);
  o.b_ptrs = data<std::int64_t>(args, Role::b_ptrs);
  o.sfb_ptrs = data<std::int64_t>(args, Role::sfb_ptrs);
  o.padded_offsets = data<std::int32_t>(args, Role::padded_offsets);
  o.alpha = data<float>(args, Role::alpha);
  o.beta = data<float>(args, Role::beta);
  o.prob = data<float>(args, Role::prob);
  if (o.prob && e.m > 1) o.prob_stride = args[Role::prob].strides[0];
  o.norm_const = data<float>(args, Role::norm_const);
  o.bias = data<void>(args, Role::bias);
  if (p.op == Op::srelu)
    o.c_out = data<void>(args, Role::c);
  else
    o.c_in = data<void>(args, Role::c);
  o.d = data<void>(args, Role::d);
  o.d_col = data<void>(args, Role::d_col);
  o.sfd_row = data<std::uint8_t>(args, Role::sfd_row);
  o.sfd_col = data<std::uint8_t>(args, Role::sfd_col);
  o.amax = data<float>(args, Role::amax);
  o.dprob = data<float>(args, Role::dprob);
  o.dbias = data<std::uint16_t>(args, Role::dbias);
  return o;
}

void Plan::execute(const Arguments& args, void* workspace, std::size_t workspace_bytes, Stream stream) const {
  check(args);
  const Operands operands = bind(args);
  check_values(args, key_.problem, operands.m, device_checks_requested() ? &stream : nullptr);
  run(operands, workspace, workspace_bytes, stream);
}

void Plan::execute_checked(const Arguments& args, void* workspace, std::size_t workspace_bytes,
                           Stream stream) const {
  run(bind(args), workspace, workspace_bytes, stream);
}

void Plan::run(const Operands& operands, void* workspace, std::size_t workspace_bytes, Stream stream) const {
  check_workspace(workspace, workspace_bytes, executable_.workspace_size(operands.m));
  executable_.run(operands, workspace, workspace_bytes, stream);
}

const Plan& compiled_plan(const Plan* plan) {
  if (!plan) throw RuntimeFailure("the object is not compiled, expected compile() before this call");
  return *plan;
}

std::shared_ptr<const Plan> cached_plan(const PlanKey& key) {
  /// Compilation happens under the slot's lock, not the cache's: other keys do not wait for it.
  struct Slot {
    explicit Slot(const PlanKey& key_) : key(key_) {}
    const PlanKey key;
    std::mutex mutex;
    std::shared_ptr<const Plan> plan;
  };
  static std::mutex mutex;
  // Most recently used first. Never destroyed: at exit the driver may be gone before the plans.
  static auto& slots = *new std::list<std::shared_ptr<Slot>>;

  std::shared_ptr<Slot> slot;
  {
    const std::lock_guard lock(mutex);
    auto it = slots.begin();
    while (it != slots.end() && !((*it)->key == key)) ++it;
    if (it == slots.end()) {
      slots.push_front(std::make_shared<Slot>(key));
      if (slots.size() > cache_capacity) slots.pop_back();
    } else {
      slots.splice(slots.begin(), slots, it);
    }
    slot = slots.front();
  }
  const std::lock_guard lock(slot->mutex);
  if (!slot->plan) slot->plan = std::make_shared<const Plan>(key);
  return slot->plan;
}

}  // namespace gemmule::operators
