#include "cublas.hpp"

#include <dlfcn.h>

#include "backends/cuda/device.hpp"
#include "backends/cuda/libraries.hpp"
#include "gemmule/error.hpp"

namespace gemmule::bench {
namespace {

// Values of cublas_api.h and library_types.h.
constexpr int no_transpose = 0, transpose = 1, real_bf16 = 14, compute_f32 = 68, default_algorithm = -1;
constexpr float one = 1.0f, zero = 0.0f;

void check(int status, const char* call) {
  if (status != 0)
    throw RuntimeFailure(std::string("cuda: ") + call + " failed with status " + std::to_string(status));
}

void* open_library() {
  const std::vector<std::string> directories = cuda::library_directories("cublas");
  for (const char* name : {"libcublas.so.13", "libcublas.so.12"}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
    for (const std::string& directory : directories)
      if (void* library = dlopen((directory + "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

template <class Visit>
void for_each_expert(const GroupedProduct& p, Visit visit) {
  std::int64_t row = 0;
  for (std::size_t expert = 0; expert < p.rows.size(); row += p.rows[expert++])
    if (p.rows[expert] != 0)
      visit(static_cast<int>(p.rows[expert]), p.a + row * p.k * 2,
            p.b + static_cast<std::int64_t>(expert) * p.n * p.k * 2, p.r + row * p.n * 2);
}

}  // namespace

Cublas::Cublas(int device_index, Stream stream) : device_(device_index) {
  load();
  if (!description_.empty()) return;
  const cuda::ContextScope scope(cuda::primary_context(device_));
  check(create_(&handle_), "cublasCreate");
  check(set_stream_(handle_, stream.handle), "cublasSetStream");
  int version = 0;  // 10000 * major + 100 * minor + patch
  check(version_(handle_, &version), "cublasGetVersion");
  description_ = "cuBLAS " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100);
}

Cublas::~Cublas() {
  if (handle_ == nullptr) return;
  const cuda::ContextScope scope(cuda::primary_context(device_));
  destroy_(handle_);
}

void Cublas::load() {
  void* library = open_library();
  if (library == nullptr) {
    description_ = "not measured: libcublas.so.13 and libcublas.so.12 were not found";
    return;
  }
  const auto get = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  if (!get(create_, "cublasCreate_v2") || !get(destroy_, "cublasDestroy_v2") ||
      !get(set_stream_, "cublasSetStream_v2") || !get(version_, "cublasGetVersion_v2") ||
      !get(gemm_, "cublasGemmEx"))
    description_ = "not measured: libcublas lacks a function";
  get(grouped_, "cublasGemmGroupedBatchedEx");  // since 12.5
}

// Column-major, as cuBLAS has it: R^T[N][rows] = B[N][K] A^T[K][rows].
void Cublas::multiply_each(const GroupedProduct& p) const {
  const cuda::ContextScope scope(cuda::primary_context(device_));
  const int n = static_cast<int>(p.n), k = static_cast<int>(p.k);
  for_each_expert(p, [&](int rows, const void* a, const void* b, void* r) {
    check(gemm_(handle_, transpose, no_transpose, n, rows, k, &one, b, real_bf16, k, a, real_bf16, k, &zero,
                r, real_bf16, n, compute_f32, default_algorithm),
          "cublasGemmEx");
  });
}

std::vector<const void*> Cublas::device_pointers(const GroupedProduct& p) {
  std::vector<const void*> a, b, r;
  for_each_expert(p, [&](int, const void* expert_a, const void* expert_b, const void* expert_r) {
    a.push_back(expert_a);
    b.push_back(expert_b);
    r.push_back(expert_r);
  });
  a.insert(a.end(), b.begin(), b.end());
  a.insert(a.end(), r.begin(), r.end());
  return a;
}

void Cublas::multiply_grouped(const GroupedProduct& p, const void* pointers) const {
  std::vector<int> rows;
  for_each_expert(p, [&](int count, const void*, const void*, const void*) { rows.push_back(count); });
  const std::size_t groups = rows.size();
  const std::vector<int> n(groups, static_cast<int>(p.n)), k(groups, static_cast<int>(p.k)), ones(groups, 1),
      yes(groups, transpose), no(groups, no_transpose);
  const std::vector<float> alpha(groups, one), beta(groups, zero);
  const auto* a = static_cast<const void* const*>(pointers);
  const cuda::ContextScope scope(cuda::primary_context(device_));
  check(grouped_(handle_, yes.data(), no.data(), n.data(), rows.data(), k.data(), alpha.data(), a + groups,
                 real_bf16, k.data(), a, real_bf16, k.data(), beta.data(),
                 const_cast<void* const*>(a + 2 * groups), real_bf16, n.data(), static_cast<int>(groups),
                 ones.data(), compute_f32),
        "cublasGemmGroupedBatchedEx");
}

}  // namespace gemmule::bench
