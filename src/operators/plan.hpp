// A checked and compiled configuration: what execute() compares live tensors with and hands to a backend.
#pragma once

#include <memory>

#include "operators/arguments.hpp"
#include "operators/backend.hpp"

namespace gemmule::operators {

/// Everything a compiled object depends on. The row count is not part of it.
struct PlanKey {
  Problem problem;
  Backend backend = Backend::cpu;
  Device device{};
  DTypes dtypes{};  ///< none: compiled without this tensor
  bool uint8_counts_values = false;
  friend bool operator==(const PlanKey&, const PlanKey&) = default;
};

/// What both operators take over from their arguments; the rest of Problem is left at its defaults.
PlanKey plan_key(const Arguments& args, const CommonOptions& options, const Extents& extents, bool discrete,
                 int cluster_overlap_margin);

class Plan {
 public:
  explicit Plan(const PlanKey& key) : key_(key), executable_(key.problem, key.backend, key.device) {}

  const PlanKey& key() const { return key_; }
  std::size_t workspace_size(std::int64_t rows) const;
  /// Checks the live tensors against the key and runs. Allocates nothing.
  void execute(const Arguments& args, void* workspace, std::size_t workspace_bytes, Stream stream) const;
  /// The same for arguments whose descriptions and values are known to fit the key.
  void execute_checked(const Arguments& args, void* workspace, std::size_t workspace_bytes,
                       Stream stream) const;

 private:
  void check(const Arguments& args) const;
  Operands bind(const Arguments& args) const;  // checks addresses
  void run(const Operands& operands, void* workspace, std::size_t workspace_bytes, Stream stream) const;

  PlanKey key_;
  Executable executable_;
};

/// `plan`, or RuntimeFailure if the object was not compiled.
const Plan& compiled_plan(const Plan* plan);

/// The compiled plan for `key`, from a process-wide cache of the 256 most recently used ones. Thread-safe; concurrent
/// callers with one key compile it once.
std::shared_ptr<const Plan> cached_plan(const PlanKey& key);

}  // namespace gemmule::operators
