// The report as one HTML page.
#include <algorithm>
#include <cstdio>

#include "bench_report.hpp"
#include "text.hpp"

namespace gemmule::cli {
namespace {

constexpr const char* style = R"(
  :root { color-scheme: light dark; --bar: #2563eb; --other: #94a3b8; --line: #cbd5e1; --text: #0f172a; --page: #ffffff; }
  @media (prefers-color-scheme: dark) {
    :root { --bar: #60a5fa; --other: #64748b; --line: #334155; --text: #e2e8f0; --page: #0f172a; }
  }
  body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem;
         color: var(--text); background: var(--page); }
  table { border-collapse: collapse; width: 100%; margin: 1rem 0 2rem; font-variant-numeric: tabular-nums; }
  th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: right; }
  th:nth-child(-n+3), td:nth-child(-n+3) { text-align: left; }
  svg { width: 100%; height: auto; } svg text { fill: var(--text); font: 12px system-ui, sans-serif; }
  .ours { fill: var(--bar); } .baseline, .limit { fill: var(--other); } .limit { opacity: .5; }
  .legend span { display: inline-block; width: .8em; height: .8em; margin: 0 .3em 0 1em; }
)";

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  return out;
}

std::string cell(const std::string& text) {
  return "<td>" + escaped(text) + "</td>";
}
std::string optional_cell(bool measured, double value, const char* unit = "") {
  return cell(measured ? number(value) + unit : "-");
}

std::string table(const BenchReport& report) {
  std::string out =
      "<table><thead><tr><th>operator</th><th>format</th><th>shape</th><th>time "
      "ms</th><th>TFLOP/s</th><th>GB/s</th>"
      "<th>share of limit</th><th>baseline ms</th><th>speed-up</th></tr></thead><tbody>\n";
  for (const Measurement& m : report.rows)
    out += "<tr>" + cell(m.op) + cell(m.format) + cell(m.shape) + cell(number(m.seconds * 1e3)) +
           cell(number(m.tflops())) + cell(number(m.bandwidth())) +
           optional_cell(m.limit_seconds > 0, 100 * m.share_of_limit(), " %") +
           optional_cell(m.baseline_seconds > 0, m.baseline_seconds * 1e3) +
           optional_cell(m.baseline_seconds > 0, m.speedup(), "x") + "</tr>\n";
  return out + "</tbody></table>\n";
}

constexpr int label_width = 300, chart_width = 1000, bar_height = 14, gap = 12;

/// One bar with its value; `y` is its top.
std::string bar(const char* kind, double value, double largest, int y) {
  constexpr int room = chart_width - label_width - 70;
  const double width = largest > 0 ? room * value / largest : 0;
  char text[256];
  std::snprintf(text, sizeof text,
                "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\"/><text x=\"%.1f\" "
                "y=\"%d\">%s</text>\n",
                kind, label_width, y, width, bar_height, label_width + width + 6, y + bar_height - 3,
                number(value).c_str());
  return text;
}

/// TFLOP/s of every row: ours, the pipeline, and the products alone.
std::string chart(const BenchReport& report) {
  double largest = 0;
  for (const Measurement& m : report.rows)
    for (const double seconds : {m.seconds, m.baseline_seconds, m.limit_seconds})
      if (seconds > 0) largest = std::max(largest, m.flops / seconds * 1e-12);
  std::string bars;
  int y = gap;
  for (const Measurement& m : report.rows) {
    bars += "<text x=\"0\" y=\"" + std::to_string(y + bar_height - 3) + "\">" +
            escaped(m.op + " " + m.format + ", " + m.shape) + "</text>\n";
    bars += bar("ours", m.tflops(), largest, y);
    y += bar_height;
    for (const auto& [kind, seconds] :
         {std::pair("baseline", m.baseline_seconds), std::pair("limit", m.limit_seconds)}) {
      if (!(seconds > 0)) continue;
      bars += bar(kind, m.flops / seconds * 1e-12, largest, y);
      y += bar_height;
    }
    y += gap;
  }
  return "<svg viewBox=\"0 0 " + std::to_string(chart_width) + " " + std::to_string(y) +
         "\" role=\"img\" aria-label=\"TFLOP/s of every case\">\n" + bars + "</svg>\n";
}

}  // namespace

std::string to_html(const BenchReport& report) {
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Gemmule "
         "benchmark</title>\n<style>" +
         std::string(style) + "</style></head><body>\n<h1>Gemmule benchmark</h1>\n<p>gemmule " +
         escaped(report.version) + ", " + escaped(report.device) + ". The " + report.statistic + " of " +
         std::to_string(report.repeats) +
         " rounds; every round times each in turn. Baseline: " + escaped(report.baseline) +
         ". Limit: " + escaped(report.limit) +
         ".</p>\n<h2>TFLOP/s</h2>\n<p class=\"legend\"><span style=\"background:var(--bar)\"></span>gemmule"
         "<span style=\"background:var(--other)\"></span>baseline"
         "<span style=\"background:var(--other);opacity:.5\"></span>limit</p>\n" +
         chart(report) + "<h2>Results</h2>\n" + table(report) + "</body></html>\n";
}

}  // namespace gemmule::cli
