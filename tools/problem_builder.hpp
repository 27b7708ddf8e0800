// Makes the tensors and metadata of a problem file from plain float values: pads, quantizes, interleaves.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "gemmule/quantize.hpp"
#include "io/problem_file.hpp"

namespace gemmule::cli {

/// Where the values come from. Rows are those of real tokens, sorted by expert and without padding.
class Values {
 public:
  virtual ~Values() = default;
  virtual void a(std::int64_t row, std::span<float> k) const = 0;
  virtual void b(std::int64_t expert, std::int64_t n, std::span<float> k) const = 0;
  /// dglu: the gate values, then as many input values.
  virtual void c(std::int64_t row, std::span<float> gate_and_input) const = 0;
  virtual float prob(std::int64_t row) const = 0;
  /// Only asked for when the options name a bias.
  virtual void bias(std::int64_t expert, std::span<float> n) const = 0;
};

/// "key=value" texts in order of appearance; a repeated key is an error.
using OptionTexts = std::map<std::string, std::string>;
OptionTexts parse_option_texts(const std::vector<std::string>& texts);

struct ProblemSpec {
  Op op = Op::srelu;
  std::string format;  ///< bf16, mxfp8, mxfp8_e5m2, mxfp4 or nvfp4
  std::int64_t n = 0, k = 0;
  std::vector<std::int64_t> rows;  ///< tokens of each expert
  OptionTexts options;  ///< options of the operator, weight_mode, b_major, alpha, beta, norm_const, bias
  std::string comment;
};

/// Names of the formats, for help texts and checks.
std::span<const char* const> format_names();

/// A checked problem: the operator accepts it. Throws InvalidArgument or Unsupported.
io::LoadedProblem build_problem(const ProblemSpec& spec, const Values& values);

/// Writes a problem made by build_problem().
void write_problem(const std::string& path, io::LoadedProblem& problem);

/// Help text that lists the options of both operators.
std::string option_help();

}  // namespace gemmule::cli
