// What `gemmule selfcheck` found, as text and as JSON.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "selfcheck_cases.hpp"
#include "verify/verify.hpp"

namespace gemmule::cli {

struct SelfcheckResult {
  enum class Verdict : std::uint8_t { passed, failed, no_kernel };

  std::size_t number = 0;
  SelfcheckCase what;
  std::string kernel;      ///< its name; "cpu" on the host
  std::string difference;  ///< exact data: the first byte that is not the host's; empty when there is none
  std::string message;     ///< the exception, or why there is no kernel
  verify::Report report;
  double seconds = 0;  ///< of the call, compilation and copies included
  Verdict verdict = Verdict::passed;

  /// Largest error over bound of all outputs.
  double worst_ratio() const;
};

struct SelfcheckReport {
  std::string version, commit, started;                  ///< started: UTC
  std::string device, capability, driver, nvrtc, cache;  ///< of the host: empty but `device`
  int sm_count = 0;
  std::uint64_t memory_bytes = 0, seed = 0;
  double seconds = 0;
  std::size_t round = 0;  ///< cases of one round
  std::string stopped;    ///< why it ended early; empty when the time was up or the round complete
  std::vector<std::string> device_kernels;
  std::vector<SelfcheckResult> results;

  std::size_t count(SelfcheckResult::Verdict verdict) const;
  bool complete() const { return results.size() >= round; }
  bool passed() const { return count(SelfcheckResult::Verdict::failed) == 0; }
  /// Cases that each kernel ran; a kernel of the device that none reached has 0.
  std::map<std::string, std::size_t> cases_by_kernel() const;
};

/// "  12  dglu mxfp8 dgeglu discrete exact", written before the case runs, and "   ok   0.98   1.2 s".
std::string line_begin(const SelfcheckResult& result);
std::string line_end(const SelfcheckResult& result);
std::string header(const SelfcheckReport& report);
/// What failed, what had no kernel, and the totals.
std::string summary(const SelfcheckReport& report);
std::string to_json(const SelfcheckReport& report);

}  // namespace gemmule::cli
