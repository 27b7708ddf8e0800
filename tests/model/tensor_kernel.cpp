#include "model/tensor_kernel.hpp"

#include <cstring>

namespace gemmule::test {

namespace {

/// Bytes as the kernel reads them, at an address of eight.
std::vector<numerics::u64> words_of(const std::vector<numerics::u8>& bytes) {
  std::vector<numerics::u64> words(bytes.size() / 8);
  std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

}  // namespace

TensorOutcome run_tensor_kernel(const TensorData& data, model::LaunchOptions options,
                                const TensorChange& change) {
  const TensorCase& c = data.test;
  std::vector<float> out(data.expected.size(), -1.0f);
  model::GlobalMemory memory;
  memory.add(out, "out", model::Access::write_once);
  const auto a = words_of(data.a), b = words_of(data.b), a_scales = words_of(data.a_scales),
             b_scales = words_of(data.b_scales);
  for (const auto* words : {&a, &b, &a_scales, &b_scales}) {
    memory.add(words->data(), words->size() * 8, "operand", model::Access::read_only);
  }
  options.grid = options.cluster = static_cast<int>(c.ctas);
  options.threads = litmus::tensor_threads;
  options.shared_bytes = litmus::tensor_shared_bytes;
  options.granule = 16;
  const litmus::TensorParams params{c,         change, a.data(), b.data(), a_scales.data(), b_scales.data(),
                                    out.data()};
  TensorOutcome result;
  result.report = model::launch(options, memory, [&] {
    if (c.ctas == 2)
      litmus::tensor<2>(params);
    else
      litmus::tensor<1>(params);
  });
  result.correct = std::memcmp(out.data(), data.expected.data(), out.size() * 4) == 0;
  return result;
}

}  // namespace gemmule::test
