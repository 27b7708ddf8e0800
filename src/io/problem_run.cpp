// From a loaded problem to the outputs of a result file.
#include <algorithm>
#include <optional>
#include <unordered_map>

#include "io/options.hpp"
#include "io/place.hpp"
#include "io/problem_file.hpp"
#include "operators/checks.hpp"

namespace gemmule::io {
namespace {

struct Output {
  const char* name;
  Tensor tensor;
};
using Outputs = std::vector<Output>;

/// The outputs that a result file holds, in the operators' order. A d_col that repeats d is left out.
Outputs present(Outputs all) {
  std::erase_if(all, [](const Output& output) { return !output.tensor; });
  return all;
}
Outputs outputs_of(const SreluResult& r) {
  return present({{"c", r.c},
                  {"d", r.d},
                  {"d_col", r.sfd_col ? r.d_col : Tensor()},
                  {"amax", r.amax},
                  {"sfd_row", r.sfd_row},
                  {"sfd_col", r.sfd_col}});
}
Outputs outputs_of(const DgluResult& r) {
  return present({{"d_row", r.d_row},
                  {"d_col", r.sfd_col ? r.d_col : Tensor()},
                  {"dprob", r.dprob},
                  {"dbias", r.dbias},
                  {"amax", r.amax},
                  {"sfd_row", r.sfd_row},
                  {"sfd_col", r.sfd_col}});
}

Outputs describe(const SreluArguments& a) {
  return outputs_of(describe_outputs(a.tensors, a.options, a.call));
}
Outputs describe(const DgluArguments& a) {
  return outputs_of(describe_outputs(a.tensors, a.options, a.call));
}

Outputs describe(const LoadedProblem& problem) {
  return std::visit([](const auto& arguments) { return describe(arguments); }, problem.arguments);
}

/// Shape in a result file: matrices without the trailing 1, scale factors in memory order, amax as it is.
Shape file_shape(const Output& output) {
  const std::string_view name = output.name;
  const Tensor& t = output.tensor;
  if (name == "sfd_row" || name == "sfd_col") return {1, t.shape[2], t.shape[4], 32, 4, 4};
  if (name == "dprob") return {t.shape[0]};
  if (name == "amax") return Shape(t.shape.begin(), t.shape.begin() + t.rank);
  return {t.shape[0], t.shape[1]};
}

DType file_dtype(DType dtype) {
  return dtype == DType::float4_e2m1fn_x2 ? DType::uint8 : dtype;
}

HostTensor adopt(const Output& output, AlignedBytes bytes) {
  HostTensor host;
  host.dtype = file_dtype(output.tensor.dtype);
  host.shape = file_shape(output);
  host.bytes = std::move(bytes);
  return host;
}

/// The inputs that both operators have.
template <class Tensors>
void bring_shared(Tensors& t, const TensorMap& files, Place& place) {
  for (Tensor* tensor : {&t.a, &t.b, &t.sfa, &t.sfb, &t.padded_offsets, &t.alpha, &t.prob, &t.norm_const})
    *tensor = place.bring(*tensor);
  if (t.b_ptrs) t.b_ptrs = place.bring_pointers(t.b_ptrs, files.at("b"));
  if (t.sfb_ptrs) t.sfb_ptrs = place.bring_pointers(t.sfb_ptrs, files.at("sfb"));
}

template <class Result>
TensorMap take_outputs(const Result& result, Place& place) {
  TensorMap out;
  for (const Output& output : outputs_of(result))
    out.emplace(output.name, adopt(output, place.take(output.tensor)));
  return out;
}

TensorMap call(SreluArguments a, const TensorMap& files, Place& place) {
  bring_shared(a.tensors, files, place);
  a.tensors.bias = place.bring(a.tensors.bias);
  return take_outputs(grouped_gemm_srelu(a.tensors, a.options, a.call, place), place);
}

TensorMap call(DgluArguments a, const TensorMap& files, Place& place) {
  bring_shared(a.tensors, files, place);
  a.tensors.c = place.bring(a.tensors.c);
  a.tensors.beta = place.bring(a.tensors.beta);
  a.tensors.dprob = place.bring_copy(a.tensors.dprob);
  return take_outputs(grouped_gemm_dglu(a.tensors, a.options, a.call, place), place);
}

/// Puts the tensors of `result` into the output arguments.
void attach(SreluTensors& t, const Outputs& outputs) {
  const std::unordered_map<std::string_view, Tensor*> slots{{"c", &t.c},
                                                            {"d", &t.d},
                                                            {"d_col", &t.d_col},
                                                            {"amax", &t.amax},
                                                            {"sfd_row", &t.sfd_row},
                                                            {"sfd_col", &t.sfd_col}};
  for (const Output& output : outputs) *slots.at(output.name) = output.tensor;
}
void attach(DgluTensors& t, const Outputs& outputs) {
  const std::unordered_map<std::string_view, Tensor*> slots{
      {"d_row", &t.d_row}, {"d_col", &t.d_col},     {"dprob", &t.dprob},    {"dbias", &t.dbias},
      {"amax", &t.amax},   {"sfd_row", &t.sfd_row}, {"sfd_col", &t.sfd_col}};
  for (const Output& output : outputs) *slots.at(output.name) = output.tensor;
}

/// Every rule of the operator; without `needed` those of dtypes, shapes and options, with it those of the values of offsets,
/// pointers and norm_const too.
template <class Tensors, class Options>
Problem check(Tensors tensors, const Options& options, std::optional<operators::Needed> needed) {
  if (!tensors.sfd_row) tensors.norm_const = {};  // the one-call form ignores it when there are no scales
  const operators::Arguments arguments(tensors, operators::Form::call);
  const operators::PlanKey key = operators::check_configuration(arguments, options, 0);
  if (needed) operators::check_memory(arguments, key, *needed);
  return key.problem;
}

Problem checked(auto arguments, std::optional<operators::Needed> needed = operators::Needed::inputs) {
  attach(arguments.tensors, describe(arguments));
  return check(arguments.tensors, arguments.options, needed);
}

/// What a file key means when it is absent; empty for one that must be there, and for options.
std::string file_default(const std::string& key) {
  if (key == "weight_mode") return "dense";
  return key == "b_major" ? "k" : "";
}

/// One entry of a result's metadata. Keys that are no options of the operator say nothing about the call.
void check_metadata(const LoadedProblem& problem, const std::string& key, const std::string& value) {
  const auto ours = problem.metadata.find(key);
  const std::string known = ours == problem.metadata.end() ? file_default(key) : ours->second;
  if (value == known || key == "format" || key == "comment") return;
  const bool same = std::visit(
      [&](auto arguments) {
        const Problem before = checked(arguments);
        try {
          return set_option(arguments, key, value) ? checked(arguments) == before : known.empty();
        } catch (const Error&) {  // a value that the problem's tensors could not have
          return false;
        }
      },
      problem.arguments);
  if (!same)
    throw InvalidArgument(key + "=" + printable(value) + " in the result, expected that of the problem" +
                          (known.empty() ? "" : ", " + printable(known)));
}

template <class T>
T* pointer(const Tensor& tensor) {
  return static_cast<T*>(tensor.data);
}

template <class Tensors>
Operands shared_inputs(const Tensors& t) {
  Operands o;
  o.m = t.a.shape[0];
  o.a = t.a.data;
  o.b = t.b.data;
  o.sfa = t.sfa.data;
  o.sfb = t.sfb.data;
  o.b_ptrs = pointer<std::int64_t>(t.b_ptrs);
  o.sfb_ptrs = pointer<std::int64_t>(t.sfb_ptrs);
  o.padded_offsets = pointer<std::int32_t>(t.padded_offsets);
  o.alpha = pointer<float>(t.alpha);
  o.prob = pointer<float>(t.prob);
  o.norm_const = pointer<float>(t.norm_const);
  return o;
}
Operands inputs_of(const SreluTensors& t) {
  Operands o = shared_inputs(t);
  o.bias = t.bias.data;
  return o;
}
Operands inputs_of(const DgluTensors& t) {
  Operands o = shared_inputs(t);
  o.beta = pointer<float>(t.beta);
  o.c_in = t.c.data;
  o.dprob = pointer<float>(t.dprob);
  return o;
}

template <class Tensors>
Operands shared_outputs(const Tensors& t) {
  Operands o;
  o.m = t.a.shape[0];
  o.d_col = t.d_col.data;
  o.sfd_row = pointer<std::uint8_t>(t.sfd_row);
  o.sfd_col = pointer<std::uint8_t>(t.sfd_col);
  o.amax = pointer<float>(t.amax);
  return o;
}
Operands outputs_of(const SreluTensors& t) {
  Operands o = shared_outputs(t);
  o.c_out = t.c.data;
  o.d = t.d.data;
  return o;
}
Operands outputs_of(const DgluTensors& t) {
  Operands o = shared_outputs(t);
  o.d = t.d_row.data;
  o.dprob = pointer<float>(t.dprob);
  o.dbias = pointer<std::uint16_t>(t.dbias);
  return o;
}

}  // namespace

void check_form(const LoadedProblem& problem) {
  std::visit([](const auto& arguments) { checked(arguments, {}); }, problem.arguments);
}

Problem check_problem(const LoadedProblem& problem) {
  return std::visit([](const auto& arguments) { return checked(arguments); }, problem.arguments);
}

TensorMap run_problem(const LoadedProblem& problem, std::optional<int> cuda_device) {
  const std::unique_ptr<Place> place = cuda_device ? device_place(*cuda_device) : host_place();
  return std::visit([&](const auto& arguments) { return call(arguments, problem.tensors, *place); },
                    problem.arguments);
}

void check_result(const LoadedProblem& problem, const Metadata& metadata, const TensorMap& result) {
  for (const auto& [key, value] : metadata) check_metadata(problem, key, value);
  const Outputs outputs = describe(problem);
  for (const Output& output : outputs) {
    const auto found = result.find(output.name);
    if (found == result.end()) throw InvalidArgument("no tensor " + quote(output.name) + " in the result");
    const HostTensor& got = found->second;
    if (got.shape != file_shape(output))
      throw InvalidArgument("tensor " + quote(output.name) + ": shape " + to_string(got.shape) +
                            ", expected " + to_string(file_shape(output)));
    const DType dtype = file_dtype(output.tensor.dtype);
    const bool scales_as_bytes = dtype == DType::float8_e8m0fnu && got.dtype == DType::uint8;
    if (got.dtype != dtype && !scales_as_bytes)
      throw InvalidArgument("tensor " + quote(output.name) + ": dtype " + name(got.dtype) + ", expected " +
                            name(dtype));
  }
  for (const auto& item : result)  // clang 14 cannot capture a structured binding
    if (std::none_of(outputs.begin(), outputs.end(), [&](const Output& o) { return item.first == o.name; }))
      throw InvalidArgument("unknown tensor " + quote(item.first) + " in the result");
}

BoundCall bind_call(const LoadedProblem& problem, const TensorMap& result) {
  return std::visit(
      [&](const auto& arguments) {
        Outputs outputs = describe(arguments);
        for (Output& output : outputs) output.tensor.data = result.find(output.name)->second.bytes.data();
        auto tensors = arguments.tensors;
        attach(tensors, outputs);
        BoundCall bound;
        bound.problem = check(tensors, arguments.options, operators::Needed::all);
        bound.inputs = inputs_of(arguments.tensors);
        bound.outputs = outputs_of(tensors);
        return bound;
      },
      problem.arguments);
}

}  // namespace gemmule::io
