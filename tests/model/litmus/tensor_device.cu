// Runs the tcgen05 litmus kernel on a device of compute capability 10.x and compares with the documented outcome. It has
// been compiled, and has not run anywhere yet. Build by hand where nvcc is:
//   nvcc -std=c++20 -gencode arch=compute_100a,code=sm_100a -I src/backends/cuda/kernels -I src -I include -I tests
//     tests/model/litmus/tensor_device.cu tests/model/litmus/tensor_data.cpp -o tensor_litmus
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "model/litmus/tensor.cuh"
#include "model/litmus/tensor_data.hpp"

namespace {

using namespace gemmule;
using litmus::TensorCase;
using litmus::TensorData;
using litmus::TensorParams;

template <numerics::u32 ctas>
__global__ void __launch_bounds__(litmus::tensor_threads, 1)
    run(const __grid_constant__ TensorParams params) {
  litmus::tensor<ctas>(params);
}

void check(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what.c_str(), cudaGetErrorString(error));
  std::exit(2);
}

template <class T>
T* upload(const std::vector<T>& values) {
  T* p = nullptr;
  check(cudaMalloc(&p, values.size() * sizeof(T)), "cudaMalloc");
  check(cudaMemcpy(p, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  return p;
}

const numerics::u64* words(const std::vector<numerics::u8>& bytes) {
  return reinterpret_cast<const numerics::u64*>(upload(bytes));
}

bool run_case(const TensorCase& c) {
  const TensorData data(c, 7);
  std::vector<float> out(data.expected.size(), -1.0f);
  float* result = upload(out);
  const TensorParams params{
      c, {}, words(data.a), words(data.b), words(data.a_scales), words(data.b_scales), result};
  void (*const function)(TensorParams) = c.ctas == 2 ? run<2> : run<1>;
  check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             litmus::tensor_shared_bytes),
        "attribute");
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(c.ctas);
  config.blockDim = dim3(litmus::tensor_threads);
  config.dynamicSmemBytes = litmus::tensor_shared_bytes;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = c.ctas;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  config.attrs = &attribute;
  config.numAttrs = c.ctas == 2 ? 1 : 0;
  check(cudaLaunchKernelEx(&config, function, params), "launch");
  check(cudaDeviceSynchronize(), name_of(c));
  check(cudaMemcpy(out.data(), result, out.size() * 4, cudaMemcpyDeviceToHost), "cudaMemcpy");
  std::size_t wrong = 0, first = 0;
  for (std::size_t i = out.size(); i-- > 0;) {
    if (out[i] == data.expected[i]) continue;
    ++wrong;
    first = i;
  }
  std::printf("%-40s ", name_of(c).c_str());
  if (wrong == 0) {
    std::printf("as documented\n");
  } else {
    std::printf("DIFFERS in %zu of %zu, first in tile %zu at row %zu, column %zu: %g instead of %g\n", wrong,
                out.size(), first / c.n / c.m, first / c.n % c.m, first % c.n, out[first],
                data.expected[first]);
  }
  std::fflush(stdout);
  return wrong == 0;
}

}  // namespace

int main() {
  bool good = true;
  for (const TensorCase& c : litmus::tensor_cases()) good = run_case(c) && good;
  return good ? 0 : 1;
}
