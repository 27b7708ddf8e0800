// Runs the litmus kernels on the device (sm_90a) and compares with the documented outcome. Build by hand where nvcc is:
//   nvcc -std=c++20 -gencode arch=compute_90a,code=sm_90a -I src/backends/cuda/kernels -I src -I include -I tests
//     tests/model/litmus/litmus_device.cu tests/model/litmus/litmus_cases.cpp -L <build> -lgemmule -ldl -o litmus
#include <cuda_runtime.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "model/litmus/litmus.cuh"
#include "model/litmus/litmus_cases.hpp"

namespace {

using namespace gemmule;
using litmus::Case;
using litmus::Kernel;
using litmus::Params;

#define LITMUS_KERNEL(name)                                                                     \
  __global__ void __launch_bounds__(128, 1) run_##name(const __grid_constant__ Params params) { \
    litmus::name(params);                                                                       \
  }
LITMUS_KERNEL(load)
LITMUS_KERNEL(store)
LITMUS_KERNEL(multiply)
LITMUS_KERNEL(multiply_registers)
LITMUS_KERNEL(load_bytes)
LITMUS_KERNEL(phases)
LITMUS_KERNEL(cluster)
#undef LITMUS_KERNEL

constexpr int illegal_instruction = 3;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  std::exit(error == cudaErrorIllegalInstruction ? illegal_instruction : 2);
}

template <class T>
T* upload(const std::vector<T>& values) {
  T* p = nullptr;
  check(cudaMalloc(&p, values.size() * sizeof(T) + 256), "cudaMalloc");
  check(cudaMemcpy(p, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  return p;
}

ptx::TensorMap encoded(cuda::TensorMap map, const void* base) {
  map.base = reinterpret_cast<std::uint64_t>(base);
  const cuda::EncodedTensorMap words = cuda::encode(map);
  ptx::TensorMap result;
  std::memcpy(&result, &words, sizeof result);
  return result;
}

bool run(const Case& c) {
  using Function = void (*)(Params);
  static const Function functions[] = {run_load,       run_store,  run_multiply, run_multiply_registers,
                                       run_load_bytes, run_phases, run_cluster};
  const Function function = functions[static_cast<int>(c.kernel)];
  Params params;
  std::uint16_t* a = upload(c.a);
  std::uint16_t* b = upload(c.b);
  params.a = encoded(c.a_map, a);
  params.b = encoded(c.b_map, b);
  std::vector<std::uint32_t> out(c.out.size(), 0xEEEEEEEE);
  params.out = upload(out);
  params.bytes_at = reinterpret_cast<const std::uint8_t*>(a);
  params.x = c.x;
  params.y = c.y;
  params.bytes = c.bytes;
  params.n_major = c.n_major;
  check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, litmus::shared_bytes),
        "attribute");
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(c.grid));
  config.blockDim = dim3(litmus::threads);
  config.dynamicSmemBytes = litmus::shared_bytes;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(c.cluster);
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, function, params), "launch");
  check(cudaDeviceSynchronize(), c.name.c_str());
  check(cudaMemcpy(out.data(), params.out, out.size() * 4, cudaMemcpyDeviceToHost), "cudaMemcpy");
  std::vector<std::uint16_t> after(c.a.size());
  check(cudaMemcpy(after.data(), a, after.size() * 2, cudaMemcpyDeviceToHost), "cudaMemcpy");
  bool good = out == c.out;
  if (!c.a_after.empty()) good = good && after == c.a_after;
  std::printf("%-60s %s\n", c.name.c_str(), good ? "as documented" : "DIFFERS");
  cudaFree(a), cudaFree(b), cudaFree(params.out);
  return good;
}

/// A device that has stopped takes its process with it, so such a case has one of its own.
bool stops_device(const char* program, const Case& c) {
  const std::string command = std::string(program) + " '" + c.name + "'";
  const bool good = WEXITSTATUS(std::system(command.c_str())) == illegal_instruction;
  std::printf("%-60s %s\n", c.name.c_str(), good ? "illegal instruction, as expected" : "DIFFERS");
  return good;
}

}  // namespace

/// litmus: every case; litmus NAME: one, in this process.
int main(int count, char** arguments) {
  bool good = true;
  for (const Case& c : litmus::all_cases()) {
    if (count > 1 && c.name != arguments[1]) continue;
    good = (c.illegal && count == 1 ? stops_device(arguments[0], c) : run(c)) && good;
    std::fflush(stdout);
  }
  return good ? 0 : 1;
}
