#include "text.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

namespace gemmule::cli {

std::string format_label(const io::LoadedProblem& problem) {
  switch (problem.ab) {
    case DType::bfloat16:
      return "bf16";
    case DType::float8_e4m3fn:
      return "mxfp8";
    case DType::float8_e5m2:
      return "mxfp8_e5m2";
    default:
      break;
  }
  const auto scales = problem.tensors.find("sfa");
  if (scales != problem.tensors.end() && scales->second.dtype == DType::float8_e4m3fn) return "nvfp4";
  return problem.common().sf_vec_size == 16 ? "mxfp4/16" : "mxfp4";
}

std::string summary(const io::LoadedProblem& problem) {
  std::string text = problem.op == Op::srelu ? "srelu " : "dglu ";
  text += format_label(problem);
  if (const auto* dglu = std::get_if<io::DgluArguments>(&problem.arguments))
    text += std::string(" ") + name(dglu->options.act_func);
  else if (const auto clamp = std::get<io::SreluArguments>(problem.arguments).options.tanh_clamp_scale)
    text += " clamp " + number(*clamp);
  return text + ", " + std::to_string(problem.experts) + " experts, M " + std::to_string(problem.m) + ", N " +
         std::to_string(problem.n) + ", K " + std::to_string(problem.k);
}

std::string decimal(const std::string& text) {
  if (text.empty() || text.size() > 19 || text.find_first_not_of("0123456789") != text.npos)
    throw CLI::ValidationError(io::printable(text) + ": expected a whole number of 1 to 19 decimal digits");
  return text.substr(std::min(text.find_first_not_of('0'), text.size() - 1));
}

std::string joined(const std::vector<std::int64_t>& values) {
  std::string text;
  for (const std::int64_t value : values) text += (text.empty() ? "" : ",") + std::to_string(value);
  return text;
}

std::string number(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

std::string coloured(const Terminal& terminal, Colour colour, const std::string& text) {
  if (!terminal.colour || colour == Colour::plain) return text;
  const char* code = colour == Colour::bold    ? "1"
                     : colour == Colour::green ? "32"
                     : colour == Colour::red   ? "31"
                                               : "2";
  return std::string("\x1b[") + code + "m" + text + "\x1b[0m";
}

void StatusLine::show(const std::string& text) const {
  if (terminal_.progress) terminal_.err << "\r\x1b[K" << text << std::flush;
}

Table::Table(std::vector<std::string> header) {
  std::vector<Colour> bold(header.size(), Colour::bold);
  add(std::move(header), std::move(bold));
}

void Table::add(std::vector<std::string> cells, std::vector<Colour> colours) {
  colours.resize(cells.size(), Colour::plain);
  rows_.push_back({std::move(cells), std::move(colours)});
}

void Table::print(const Terminal& terminal, std::size_t left_columns) const {
  std::vector<std::size_t> widths;
  for (const Row& row : rows_) {
    widths.resize(std::max(widths.size(), row.cells.size()), 0);
    for (std::size_t i = 0; i < row.cells.size(); ++i) widths[i] = std::max(widths[i], row.cells[i].size());
  }
  for (const Row& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.cells.size(); ++i) {
      const std::string pad(widths[i] - row.cells[i].size(), ' ');
      const std::string cell = coloured(terminal, row.colours[i], row.cells[i]);
      if (i) line += "  ";
      const bool last = i + 1 == row.cells.size();
      line += i < left_columns ? cell + (last ? "" : pad) : pad + cell;
    }
    terminal.out << line << "\n";
  }
}

}  // namespace gemmule::cli
