#include "blas.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

#include "backends/cpu/cpu.hpp"

namespace gemmule::bench {

const Blas& Blas::instance() {
  static const Blas blas;
  return blas;
}

Blas::Blas() {
  const char* target = cpu::target();
  if (std::strcmp(target, "avx512") == 0) setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
#if defined(__x86_64__)
  if (std::strcmp(target, "avx2") == 0)
    setenv("OPENBLAS_CORETYPE", __builtin_cpu_is("amd") ? "Zen" : "Haswell", 0);
#endif
  void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  const auto symbol = [&](const char* name) { return dlsym(library, name); };
  const auto sgemm = reinterpret_cast<Sgemm>(symbol("cblas_sgemm"));
  set_num_threads_ = reinterpret_cast<void (*)(int)>(symbol("openblas_set_num_threads"));
  const auto config = reinterpret_cast<char* (*)()>(symbol("openblas_get_config"));
  const auto core = reinterpret_cast<char* (*)()>(symbol("openblas_get_corename"));
  if (sgemm == nullptr || set_num_threads_ == nullptr || config == nullptr || core == nullptr) return;
  sgemm_ = sgemm;
  description_ = std::string(config()) + ", core " + core();
}

void Blas::multiply(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, const float* b,
                    float* c) const {
  constexpr int row_major = 101, no_transpose = 111, transpose = 112;
  const int rows = static_cast<int>(m), cols = static_cast<int>(n), depth = static_cast<int>(k);
  sgemm_(row_major, no_transpose, transpose, rows, cols, depth, 1.0f, a, depth, b, depth, 0.0f, c, cols);
}

}  // namespace gemmule::bench
