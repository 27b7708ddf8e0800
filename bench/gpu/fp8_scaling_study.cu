// Would FP8 tensor cores with scales applied in registers beat expansion to BF16 on Hopper?
//
// One program, two answers, for any sm_90 device:
//   nvcc -std=c++20 -O3 -gencode arch=compute_90a,code=sm_90a fp8_scaling_study.cu -o fp8_scaling_study
// Rate: wgmma on operands that stay in shared memory (no loads, so an upper limit): BF16; FP8; FP8 with the product of every
// 32 k multiplied by the row's and the column's scale factor and added in FP32, as MXFP8 needs it.
// Error: the same FP8 scheme on random data, against double, relative to the bound every backend of this library keeps:
// 2^-22 sqrt(K) sum |a b|.
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

namespace {

constexpr int columns = 128, k_bytes = 128,
              rounds = 2000;      // a tile row is 128 bytes: 64 BF16 or 128 FP8 values
constexpr int groups_of_cta = 3;  // warpgroups, each with its own 64 rows

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

/// K-major, 128-byte swizzle, 1024 bytes between groups of eight rows.
__device__ unsigned long long descriptor(const void* tile) {
  const unsigned long long address = __cvta_generic_to_shared(tile);
  return (address >> 4 & 0x3FFF) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

#define ACC4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ACC16(i) ACC4(i), ACC4(i + 4), ACC4(i + 8), ACC4(i + 12)
#define REGISTERS_64                                                                                      \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "  \
  "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "  \
  "%62, %63}"

__device__ void multiply_bf16(float (&d)[64], unsigned long long a, unsigned long long b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " REGISTERS_64
               ", %64, %65, 1, 1, 1, 0, 0;"
               : ACC16(0), ACC16(16), ACC16(32), ACC16(48)
               : "l"(a), "l"(b));
}
__device__ void multiply_fp8(float (&d)[64], unsigned long long a, unsigned long long b, int accumulate) {
  asm volatile(
      "{.reg .pred p; setp.ne.s32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 " REGISTERS_64 ", %64, %65, p, 1, 1;}"
      : ACC16(0), ACC16(16), ACC16(32), ACC16(48)
      : "l"(a), "l"(b), "r"(accumulate));
}
__device__ void fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ void commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int pending>
__device__ void wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

struct Tiles {
  unsigned char a[groups_of_cta][64 * k_bytes];
  unsigned char b[columns * k_bytes];
  float scale_a[4][groups_of_cta * 64];  // by k / 32
  float scale_b[4][columns];
};

enum class Kind { bf16, fp8, fp8_scaled };

/// Adds scaled products of one 32-k step: two instructions per accumulator.
__device__ void add_scaled(float (&sum)[64], const float (&product)[64], const Tiles& tiles, int step,
                           int thread) {
  const int row = thread / 128 * 64 + thread % 128 / 32 * 16 + thread % 32 / 4;
  const float upper = tiles.scale_a[step][row], lower = tiles.scale_a[step][row + 8];
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    const float2 s = *reinterpret_cast<const float2*>(&tiles.scale_b[step][8 * j + thread % 4 * 2]);
    sum[4 * j] += product[4 * j] * (upper * s.x);
    sum[4 * j + 1] += product[4 * j + 1] * (upper * s.y);
    sum[4 * j + 2] += product[4 * j + 2] * (lower * s.x);
    sum[4 * j + 3] += product[4 * j + 3] * (lower * s.y);
  }
}

template <Kind kind>
__global__ void __launch_bounds__(groups_of_cta * 128, 1) multiply(const Tiles* in, int steps, float* out) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Tiles& tiles = *reinterpret_cast<Tiles*>(memory);
  for (unsigned i = threadIdx.x; i < sizeof(Tiles) / 4; i += blockDim.x)
    reinterpret_cast<unsigned*>(memory)[i] = reinterpret_cast<const unsigned*>(in)[i];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.x);
  const unsigned long long a = descriptor(tiles.a[thread / 128]), b = descriptor(tiles.b);
  float sum[64] = {};
  if constexpr (kind == Kind::fp8_scaled) {
    float product[64];
    for (int i = 0; i < steps; ++i) {
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        fence();
        multiply_fp8(product, a + 2 * step, b + 2 * step, 0);
        commit();
        wait<0>();
        add_scaled(sum, product, tiles, step, thread);
      }
    }
  } else {
    for (int i = 0; i < steps; ++i) {
      fence();
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        if constexpr (kind == Kind::bf16)
          multiply_bf16(sum, a + 2 * step, b + 2 * step);
        else
          multiply_fp8(sum, a + 2 * step, b + 2 * step, 1);
      }
      commit();
      wait<0>();
    }
  }
  const int row = thread / 128 * 64 + thread % 128 / 32 * 16 + thread % 32 / 4;
  if (blockIdx.x == 0)
    for (int i = 0; i < 64; ++i)
      out[(row + i / 2 % 2 * 8) * columns + i / 4 * 8 + thread % 4 * 2 + i % 2] = sum[i];
}

/// Byte of (row, k) in a swizzled tile of 128-byte rows.
int swizzled(int row, int byte) {
  return row * k_bytes + ((byte / 16 ^ row % 8) * 16 + byte % 16);
}

template <Kind kind>
double teraflops(const Tiles* tiles, float* out, int ctas) {
  check(cudaFuncSetAttribute(multiply<kind>, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Tiles)),
        "attribute");
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  float best = 1e30f;
  for (int repeat = 0; repeat < 20; ++repeat) {
    check(cudaEventRecord(begin), "record");
    multiply<kind><<<ctas, groups_of_cta * 128, sizeof(Tiles)>>>(tiles, rounds, out);
    check(cudaEventRecord(end), "record");
    check(cudaEventSynchronize(end), "run");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "time");
    if (ms < best) best = ms;
  }
  const double k = kind == Kind::bf16 ? 64 : 128;
  return 2.0 * 64 * groups_of_cta * columns * k * rounds * ctas / best * 1e-9;
}

}  // namespace

int main() {
  int device = 0;
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device), "device");
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<Tiles> host(1);
  Tiles& t = host[0];
  std::vector<double> a(groups_of_cta * 64 * 128), b(columns * 128);
  const auto value = [&](unsigned char& byte) {
    const __nv_fp8_e4m3 code(normal(random) * 64);
    byte = code.__x;
    return static_cast<double>(static_cast<float>(code));
  };
  for (int row = 0; row < groups_of_cta * 64; ++row)
    for (int k = 0; k < 128; ++k) a[row * 128 + k] = value(t.a[row / 64][swizzled(row % 64, k)]);
  for (int column = 0; column < columns; ++column)
    for (int k = 0; k < 128; ++k) b[column * 128 + k] = value(t.b[swizzled(column, k)]);
  for (auto& step : t.scale_a)
    for (float& s : step) s = std::ldexp(1.0f, static_cast<int>(random() % 3) - 8);
  for (auto& step : t.scale_b)
    for (float& s : step) s = std::ldexp(1.0f, static_cast<int>(random() % 3) - 8);

  Tiles* tiles = nullptr;
  float* out = nullptr;
  check(cudaMalloc(&tiles, sizeof(Tiles)), "malloc");
  check(cudaMalloc(&out, groups_of_cta * 64 * columns * 4), "malloc");
  check(cudaMemcpy(tiles, &t, sizeof t, cudaMemcpyHostToDevice), "copy");

  std::printf("%s\n", properties.name);
  const int ctas = properties.multiProcessorCount;
  std::printf("BF16              %7.0f TFLOP/s\n", teraflops<Kind::bf16>(tiles, out, ctas));
  std::printf("FP8               %7.0f TFLOP/s\n", teraflops<Kind::fp8>(tiles, out, ctas));
  std::printf("FP8, scaled by 32 %7.0f TFLOP/s\n", teraflops<Kind::fp8_scaled>(tiles, out, ctas));

  std::vector<float> got(groups_of_cta * 64 * columns);
  for (const int steps : {1, 8}) {  // K = 128 and 1024 (the same 128 values eight times)
    multiply<Kind::fp8_scaled><<<1, groups_of_cta * 128, sizeof(Tiles)>>>(tiles, steps, out);
    check(cudaMemcpy(got.data(), out, got.size() * 4, cudaMemcpyDeviceToHost), "result");
    double worst = 0;
    int outside = 0;
    for (int row = 0; row < groups_of_cta * 64; ++row)
      for (int column = 0; column < columns; ++column) {
        double sum = 0, magnitude = 0;
        for (int k = 0; k < 128; ++k) {
          const double p =
              a[row * 128 + k] * b[column * 128 + k] * t.scale_a[k / 32][row] * t.scale_b[k / 32][column];
          sum += p * steps;
          magnitude += std::fabs(p) * steps;
        }
        const double ratio =
            std::fabs(got[row * columns + column] - sum) /
            (std::ldexp(1.0, -22) * std::sqrt(128.0 * steps) * magnitude + 4e-6 * std::fabs(sum));
        if (ratio > worst) worst = ratio;
        outside += ratio > 1;
      }
    std::printf("K %4d: largest error / bound %.2f, %d of %zu outside the bound\n", 128 * steps, worst,
                outside, got.size());
  }
}
