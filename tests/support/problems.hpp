// Seeded random problems for the tests of backends, operators and kernels.
//
//   TestProblem t = random_problem(seed);                       // any operator, format and option
//   TestProblem t = random_problem(seed, {.op = Op::dglu, .format = Format::nvfp4, .data = Data::exact});
//   TestProblem t = make_problem(basic_problem(Op::srelu, Format::mxfp8, n, k), {256, 0, 768}, tail, seed);
//   Outputs out = t.outputs();                                  // poisoned; accumulators hold initial values
//   cpu::run(t.problem, t.operands(out), ...);
//   verify::compare(t.problem, t.inputs(), t.operands(out), {.poison = poison_byte});
//
// Every random problem mixes an empty expert, an expert of one tile, one of several tiles and a hot one (unless it has
// a single group), ragged N and K, negative and zero prob and alpha, zero blocks, and scale codes that reach the ends
// of the range in which operands are exact in BF16. Output buffers hold poison; rows past the last offset, and the
// padding bytes of the scale buffers, hold random bytes with many NaNs.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "operators/problem.hpp"

namespace gemmule::test {

inline constexpr std::uint8_t poison_byte = 0x7F;

/// Bytes on the heap, aligned to 256 and exactly as long as asked for, so that the address sanitizer sees overruns.
class Buffer {
 public:
  explicit Buffer(std::int64_t bytes = 0, std::uint8_t fill = poison_byte);
  Buffer(const Buffer& other);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer other) noexcept;
  ~Buffer();

  std::int64_t size() const { return size_; }
  /// Null for an empty buffer: the Problem has no such operand.
  std::uint8_t* data() const { return data_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  friend bool operator==(const Buffer& a, const Buffer& b);

 private:
  std::int64_t size_ = 0;
  std::uint8_t* data_ = nullptr;
};

/// Operand formats. mxfp4_16 is MXFP4 with one scale per 16 values.
enum class Format : std::uint8_t { bf16, mxfp8, mxfp8_e5m2, mxfp4, mxfp4_16, nvfp4 };
inline constexpr Format all_formats[] = {Format::bf16,  Format::mxfp8,    Format::mxfp8_e5m2,
                                         Format::mxfp4, Format::mxfp4_16, Format::nvfp4};
const char* name(Format format);

/// random: values whose results need rounding. exact: an exact-valued problem, on which every backend must produce the
/// same bytes: small integers, powers of two, gates 0 or +-128, tanh arguments 0 or at least 32.
enum class Data : std::uint8_t { random, exact };

/// Everything a call writes. Empty where the Problem has no such output.
struct Outputs {
  Buffer c, d, d_col, sfd_row, sfd_col, amax, dprob, dbias;
};

struct TestProblem {
  Problem problem;
  Data data = Data::random;
  std::uint64_t seed = 0;
  std::int64_t m = 0;
  std::vector<std::int32_t> padded_offsets;
  Buffer a, sfa, alpha, beta, prob, norm_const, bias, c_in;
  std::vector<Buffer> b, sfb;  ///< one buffer if dense, one per expert if discrete
  std::vector<std::int64_t> b_ptrs, sfb_ptrs;
  Outputs initial;  ///< what the outputs hold before a call

  /// The operands before the call: dprob, dbias and amax point to their initial values, other outputs are null.
  Operands inputs() const;
  /// Fresh output buffers: poisoned, accumulators at their initial values.
  Outputs outputs() const { return initial; }
  /// Inputs together with these outputs.
  Operands operands(const Outputs& outputs) const;
  /// Rows that a call writes: the end of the last expert.
  std::int64_t rows_written() const;
};

/// A deterministic generator whose numbers do not depend on the standard library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::uint64_t bits() { return engine_(); }
  /// Uniform in [low, high], both included.
  std::int64_t integer(std::int64_t low, std::int64_t high);
  /// Uniform in [low, high).
  double real(double low, double high);
  bool chance(double probability) { return real(0, 1) < probability; }
  template <class T>
  T pick(std::initializer_list<T> choices) {
    return choices.begin()[integer(0, static_cast<std::int64_t>(choices.size()) - 1)];
  }

 private:
  std::mt19937_64 engine_;
};

/// The usual configuration: outputs as the one-call forms choose them, FP8 operands with quantized D, every optional
/// output that this allows except dbias. Its `experts` is set by make_problem().
Problem basic_problem(Op op, Format format, std::int64_t n, std::int64_t k, ActFunc act = ActFunc::dswiglu);

/// `group_rows`: rows of every expert, multiples of 32. `tail_rows`: further rows of A, C and D that no expert owns.
TestProblem make_problem(Problem problem, const std::vector<std::int64_t>& group_rows, std::int64_t tail_rows,
                         std::uint64_t seed, Data data = Data::random);

struct Wanted {
  std::optional<Op> op{};
  std::optional<Format> format{};
  std::optional<ActFunc> act{};
  Data data = Data::random;
  std::int64_t max_n = 160, max_k = 224;  ///< at least 32
  int max_tiles = 5;                      ///< tiles of the hot expert, at least 2
};

/// A problem drawn from everything that the operators accept.
TestProblem random_problem(std::uint64_t seed, const Wanted& wanted = {});

/// The first byte in which two sets of outputs differ, empty if there is none. Compared are all buffers in full, rows
/// past the last offset included, but of the scale codes only those of rows written (their padding may differ).
std::string first_difference(const TestProblem& t, const Outputs& got, const Outputs& expected);

/// One line that identifies a problem in a test message.
std::string describe(const TestProblem& t);

}  // namespace gemmule::test
