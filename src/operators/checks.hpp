// The order in which the rules of each operator are checked.
#pragma once

#include "operators/plan.hpp"
#include "operators/rules.hpp"

namespace gemmule::operators {

/// tanh_clamp_scale and the weight mode: what the constructor of GroupedGemmSrelu refuses. True if discrete.
bool check_construction(const Arguments& args, const SreluOptions& options);

/// Every rule that needs no memory, outputs included. `margin`: see cluster_overlap_margin().
PlanKey check_configuration(const Arguments& args, const SreluOptions& options, int margin);
PlanKey check_configuration(const Arguments& args, const DgluOptions& options, int margin);

/// What the one-call forms check before they look at the rest: see the documents' wrappers.
void check_call(const Arguments& args, const SreluOptions& options, const SreluCall& call);
void check_call(const Arguments& args, const DgluOptions& options, const DgluCall& call);

/// Addresses, values that the host can read, and the device itself.
void check_memory(const Arguments& args, const PlanKey& key, Needed needed);

}  // namespace gemmule::operators
