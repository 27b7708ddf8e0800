#include "bench_report.hpp"

#include <nlohmann/json.hpp>

#include "text.hpp"

namespace gemmule::cli {
namespace {

/// null where there is nothing to say.
nlohmann::ordered_json measured(bool was_measured, double value) {
  return was_measured ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
}

std::string csv_number(bool was_measured, double value) {
  return was_measured ? number(value, 9) : "";
}

}  // namespace

std::string to_json(const BenchReport& report) {
  nlohmann::ordered_json out{
      {"gemmule", report.version},
      {"device", report.device},
      {"baseline", report.baseline},
      {"limit", report.limit},
      {"threads", report.threads > 0 ? nlohmann::ordered_json(report.threads) : nlohmann::ordered_json()},
      {"repeats", report.repeats},
      {"statistic", report.statistic}};
  out["results"] = nlohmann::ordered_json::array();
  for (const Measurement& m : report.rows)
    out["results"].push_back({{"op", m.op},
                              {"format", m.format},
                              {"shape", m.shape},
                              {"experts", m.experts},
                              {"rows", m.rows},
                              {"n", m.n},
                              {"k", m.k},
                              {"seconds", m.seconds},
                              {"median_seconds", m.median},
                              {"tflops", m.tflops()},
                              {"gigabytes_per_second", m.bandwidth()},
                              {"share_of_limit", measured(m.limit_seconds > 0, m.share_of_limit())},
                              {"limit_seconds", measured(m.limit_seconds > 0, m.limit_seconds)},
                              {"baseline_seconds", measured(m.baseline_seconds > 0, m.baseline_seconds)},
                              {"speedup", measured(m.baseline_seconds > 0, m.speedup())}});
  return out.dump(2) + "\n";
}

std::string to_csv(const BenchReport& report) {
  std::string text =
      "op,format,shape,experts,rows,n,k,seconds,median_seconds,tflops,gigabytes_per_second,share_of_limit,"
      "limit_seconds,baseline_seconds,speedup\n";
  for (const Measurement& m : report.rows) {
    const bool limit = m.limit_seconds > 0, baseline = m.baseline_seconds > 0;
    text += m.op + "," + m.format + "," + m.shape + "," + std::to_string(m.experts) + "," +
            std::to_string(m.rows) + "," + std::to_string(m.n) + "," + std::to_string(m.k) + "," +
            number(m.seconds, 9) + "," + number(m.median, 9) + "," + number(m.tflops(), 9) + "," +
            number(m.bandwidth(), 9) + "," + csv_number(limit, m.share_of_limit()) + "," +
            csv_number(limit, m.limit_seconds) + "," + csv_number(baseline, m.baseline_seconds) + "," +
            csv_number(baseline, m.speedup()) + "\n";
  }
  return text;
}

}  // namespace gemmule::cli
