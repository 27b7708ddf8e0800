// Problem files: one call of an operator, as metadata (the options) and tensors; and result files: its outputs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "gemmule/gemmule.hpp"
#include "io/safetensors.hpp"
#include "operators/problem.hpp"

namespace gemmule::io {

struct SreluArguments {
  SreluTensors tensors;
  SreluOptions options;
  SreluCall call;
};
struct DgluArguments {
  DgluTensors tensors;
  DgluOptions options;
  DgluCall call;
};

/// A problem file's content turned into a call. The argument tensors are views into `tensors` and the pointer arrays.
struct LoadedProblem {
  Op op = Op::srelu;
  DType ab = DType::none;
  std::int64_t m = 0, n = 0, k = 0, experts = 0;  ///< k in values
  Metadata metadata;
  TensorMap tensors;
  std::vector<std::int64_t> b_ptrs, sfb_ptrs;  ///< weight_mode=discrete: one address per expert
  std::variant<SreluArguments, DgluArguments> arguments;

  CommonOptions& common();
  const CommonOptions& common() const { return const_cast<LoadedProblem*>(this)->common(); }
  LoadedProblem() = default;
  LoadedProblem(LoadedProblem&&) = default;
  LoadedProblem& operator=(LoadedProblem&&) = default;
};

/// Checks names, dtypes and shapes of the tensors against each other and parses the options; the rules of the operator
/// itself are left to the operator. Throws InvalidArgument.
LoadedProblem load_problem(Metadata metadata, TensorMap tensors);
LoadedProblem load_problem(const SafetensorsReader& reader);

/// The part of check_problem() that needs no bytes: dtypes, shapes and options.
void check_form(const LoadedProblem& problem);

/// Throws what the operator would throw for these arguments on the host, without running it; else its description.
Problem check_problem(const LoadedProblem& problem);

/// Runs the operator, on the host or on copies of the tensors in a CUDA device's memory, and returns its outputs under
/// the names and shapes of a result file; what the operator does not write is zero. The problem is left as it is.
TensorMap run_problem(const LoadedProblem& problem, std::optional<int> cuda_device = {});

/// Throws InvalidArgument unless `result` holds exactly the outputs of `problem`, in their dtypes and shapes, and the
/// operator and options in its metadata, where it has them, are those of the problem.
void check_result(const LoadedProblem& problem, const Metadata& metadata, const TensorMap& result);

/// The checked description of a problem and the pointers of one call: inputs from `problem` (dprob holds its initial
/// values), outputs into `result`, which has passed check_result().
struct BoundCall {
  Problem problem;
  Operands inputs, outputs;
};
BoundCall bind_call(const LoadedProblem& problem, const TensorMap& result);

}  // namespace gemmule::io
