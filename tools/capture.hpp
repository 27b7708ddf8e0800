// Captures of real MoE layers: inputs of one routed batch and what PyTorch computed from them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/safetensors.hpp"
#include "problem_builder.hpp"

namespace gemmule::cli {

/// One capture file, checked: docs and examples/data/README.md have its tensors.
class Capture final : public Values {
 public:
  /// Throws InvalidArgument.
  explicit Capture(const std::string& path);

  Op op() const { return op_; }
  const std::string& activation() const { return activation_; }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t n() const { return n_; }
  std::int64_t k() const { return k_; }
  const std::vector<std::int64_t>& rows() const { return rows_; }
  /// The options of the operator that reproduce the captured activation.
  OptionTexts options() const;
  /// A tensor `expected_...` as floats; empty when the capture has none of that name.
  std::vector<float> expected(const std::string& name) const;

  void a(std::int64_t row, std::span<float> k) const override;
  void b(std::int64_t expert, std::int64_t n, std::span<float> k) const override;
  void c(std::int64_t row, std::span<float> gate_and_input) const override;
  float prob(std::int64_t row) const override;
  void bias(std::int64_t expert, std::span<float> n) const override;

 private:
  void load();
  io::HostTensor read(const char* name, const io::Shape& shape, const char* form) const;
  void copy_row(const io::HostTensor& from, std::int64_t row, std::span<float> out) const;

  io::SafetensorsReader reader_;
  Op op_ = Op::srelu;
  std::string activation_;
  std::int64_t tokens_ = 0, n_ = 0, k_ = 0;
  std::vector<std::int64_t> rows_;
  io::HostTensor a_, c_;
  std::vector<float> b_, prob_;  ///< b: [L, N, K]
};

}  // namespace gemmule::cli
