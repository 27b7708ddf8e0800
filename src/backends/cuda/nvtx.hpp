// A named range on the timeline of a profiler, where one is attached (NVTX 3); otherwise nothing.
#pragma once

namespace gemmule::cuda {

class ProfilerRange {
 public:
  /// `name` is ASCII and outlives the range.
  explicit ProfilerRange(const char* name);
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
};

}  // namespace gemmule::cuda
