#include "selfcheck_report.hpp"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "text.hpp"

namespace gemmule::cli {
namespace {

using Verdict = SelfcheckResult::Verdict;

const char* name_of(Verdict verdict) {
  return verdict == Verdict::passed ? "ok" : verdict == Verdict::failed ? "FAILED" : "no kernel";
}

std::string option(const SelfcheckResult& result, const char* key) {
  const auto found = result.what.spec.options.find(key);
  return found == result.what.spec.options.end() ? "" : found->second;
}

/// "dglu mxfp8 dgeglu discrete exact".
std::string kind(const SelfcheckResult& result) {
  const ProblemSpec& spec = result.what.spec;
  std::string text = spec.op == Op::srelu ? "srelu " : "dglu ";
  text += spec.format + " ";
  if (spec.op == Op::dglu)
    text += option(result, "act_func");
  else
    text += option(result, "tanh_clamp_scale").empty() ? "srelu" : "clamped";
  text += option(result, "weight_mode").empty() ? " dense" : " discrete";
  return text + (result.what.exact ? " exact" : " random");
}

std::string failures(const SelfcheckResult& result) {
  std::string text;
  if (!result.message.empty()) text += "  " + result.message + "\n";
  if (!result.difference.empty()) text += "  not the host's bytes: " + result.difference + "\n";
  if (!result.report.passed()) text += verify::to_string(result.report);
  return text;
}

}  // namespace

double SelfcheckResult::worst_ratio() const {
  double worst = 0;
  for (const verify::Check& check : report.checks) worst = std::max(worst, check.max_ratio);
  return worst;
}

std::size_t SelfcheckReport::count(Verdict verdict) const {
  return static_cast<std::size_t>(std::count_if(
      results.begin(), results.end(), [&](const SelfcheckResult& r) { return r.verdict == verdict; }));
}

std::map<std::string, std::size_t> SelfcheckReport::cases_by_kernel() const {
  std::map<std::string, std::size_t> out;
  for (const std::string& kernel : device_kernels) out.emplace(kernel, 0);
  for (const SelfcheckResult& result : results)
    if (!result.kernel.empty()) ++out[result.kernel];
  return out;
}

std::string line_begin(const SelfcheckResult& result) {
  char text[160];
  std::snprintf(text, sizeof text, "%4zu  %-42s", result.number + 1, kind(result).c_str());
  return text;
}

std::string line_end(const SelfcheckResult& result) {
  char text[80];
  const bool ran = result.verdict != Verdict::no_kernel;
  std::snprintf(text, sizeof text, " %-9s %8s  %6s s", name_of(result.verdict),
                ran ? number(result.worst_ratio()).c_str() : "-",
                ran ? number(result.seconds, 2).c_str() : "-");
  return text;
}

std::string header(const SelfcheckReport& report) {
  std::string text = "gemmule " + report.version + " (" + report.commit + "), " + report.started +
                     " UTC, seed " + std::to_string(report.seed) + "\n" + report.device + "\n";
  for (const auto& [title, value] :
       {std::pair("driver:   ", report.driver), std::pair("compiler: ", report.nvrtc),
        std::pair("cache:    ", report.cache)})
    if (!value.empty()) text += title + value + "\n";
  return text + "one round is " + std::to_string(report.round) +
         " cases; columns: verdict, largest error / bound, seconds of the call\n";
}

std::string summary(const SelfcheckReport& report) {
  std::string text;
  for (const SelfcheckResult& result : report.results)
    if (result.verdict == Verdict::failed)
      text += "\nFAILED: case " + std::to_string(result.number + 1) + " (" + result.kernel +
              "): " + result.what.command() + " -o p.safetensors\n" + failures(result);
  std::map<std::string, std::size_t> refusals;
  for (const SelfcheckResult& result : report.results)
    if (result.verdict == Verdict::no_kernel) ++refusals[result.message];
  for (const auto& [message, count] : refusals)
    text += "\nno kernel for " + std::to_string(count) + " cases: " + message + "\n";
  text += "\n";
  for (const auto& [kernel, count] : report.cases_by_kernel())
    text += kernel + ": " + std::to_string(count) + " cases\n";
  if (!report.stopped.empty()) text += "stopped early: " + report.stopped + "\n";
  if (!report.complete())
    text += "incomplete: " + std::to_string(report.results.size()) + " of the " +
            std::to_string(report.round) + " cases of one round; --time gives it longer\n";
  const std::size_t passed = report.count(Verdict::passed), failed = report.count(Verdict::failed);
  return text + std::to_string(passed) + " passed, " + std::to_string(failed) + " failed, " +
         std::to_string(report.count(Verdict::no_kernel)) + " without a kernel, " +
         number(report.seconds, 3) + " s\n";
}

std::string to_json(const SelfcheckReport& report) {
  nlohmann::ordered_json out{{"gemmule", report.version},
                             {"commit", report.commit},
                             {"started", report.started},
                             {"device", report.device},
                             {"capability", report.capability},
                             {"multiprocessors", report.sm_count},
                             {"memory_bytes", report.memory_bytes},
                             {"driver", report.driver},
                             {"nvrtc", report.nvrtc},
                             {"cache", report.cache},
                             {"seed", report.seed},
                             {"seconds", report.seconds},
                             {"complete", report.complete()},
                             {"stopped", report.stopped},
                             {"passed", report.passed()},
                             {"totals",
                              {{"passed", report.count(Verdict::passed)},
                               {"failed", report.count(Verdict::failed)},
                               {"no_kernel", report.count(Verdict::no_kernel)}}}};
  out["kernels"] = report.cases_by_kernel();
  out["cases"] = nlohmann::ordered_json::array();
  for (const SelfcheckResult& result : report.results) {
    nlohmann::ordered_json item{{"case", result.number + 1},
                                {"kind", kind(result)},
                                {"command", result.what.command()},
                                {"kernel", result.kernel},
                                {"verdict", name_of(result.verdict)},
                                {"seconds", result.seconds},
                                {"max_error_over_bound", result.worst_ratio()}};
    if (!result.message.empty()) item["message"] = result.message;
    if (result.what.exact && result.verdict != Verdict::no_kernel)
      item["differs_from_host"] = result.difference;
    item["outputs"] = nlohmann::ordered_json::array();
    for (const verify::Check& check : result.report.checks)
      item["outputs"].push_back({{"output", check.output},
                                 {"elements", check.elements},
                                 {"max_error_over_bound", check.max_ratio},
                                 {"relative_error", check.relative_error},
                                 {"differing_scale_codes", check.differing},
                                 {"out_of_bound", check.out_of_bound},
                                 {"overwritten_bytes", check.overwritten},
                                 {"passed", check.passed()}});
    out["cases"].push_back(std::move(item));
  }
  return out.dump(1) + "\n";
}

}  // namespace gemmule::cli
