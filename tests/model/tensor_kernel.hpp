// Runs the tcgen05 litmus kernel on the model.
#pragma once

#include "engine/machine.hpp"
#include "model/litmus/tensor.cuh"
#include "model/litmus/tensor_data.hpp"

namespace gemmule::test {

using litmus::TensorCase;
using litmus::TensorChange;
using litmus::TensorData;
using litmus::TensorType;

struct TensorOutcome {
  model::Report report;
  bool correct = false;
};
TensorOutcome run_tensor_kernel(const TensorData& data, model::LaunchOptions options,
                                const TensorChange& change = {});

}  // namespace gemmule::test
