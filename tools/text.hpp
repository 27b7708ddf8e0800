// Small pieces of text that several subcommands print.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "cli.hpp"
#include "io/problem_file.hpp"

namespace gemmule::cli {

/// "dglu mxfp8 dswiglu, 4 experts, M 1280, N 256, K 256".
std::string summary(const io::LoadedProblem& problem);
/// The format's name on the command line: "bf16", "mxfp8", ...; "mxfp4/16" for its variant with 16 values a scale.
std::string format_label(const io::LoadedProblem& problem);

/// Text of an option that is a whole number, for CLI::Option::transform: decimal digits and no more (CLI11 alone would take
/// 010 for 8, and -1 for 2^64-1).
std::string decimal(const std::string& text);

/// "1,2,3".
std::string joined(const std::vector<std::int64_t>& values);

/// printf("%.*g").
std::string number(double value, int digits = 3);

enum class Colour { plain, bold, green, red, dim };
/// `text` with escape sequences around it when the terminal shows colour.
std::string coloured(const Terminal& terminal, Colour colour, const std::string& text);

/// One line that is drawn over itself where a person watches, and nothing elsewhere.
class StatusLine {
 public:
  explicit StatusLine(const Terminal& terminal) : terminal_(terminal) {}
  ~StatusLine() { clear(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  void show(const std::string& text) const;
  void clear() const { show(""); }

 private:
  const Terminal& terminal_;
};

/// Columns padded to their widest cell; the first is left-aligned, the others right-aligned.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  /// `colours` applies to cells by position; missing entries are plain.
  void add(std::vector<std::string> cells, std::vector<Colour> colours = {});
  void print(const Terminal& terminal, std::size_t left_columns = 1) const;

 private:
  struct Row {
    std::vector<std::string> cells;
    std::vector<Colour> colours;
  };
  std::vector<Row> rows_;
};

}  // namespace gemmule::cli
