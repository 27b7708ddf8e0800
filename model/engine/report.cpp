#include "engine/report.hpp"

#include <cstring>

namespace gemmule::model {

bool operator==(const Site& a, const Site& b) {
  return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

std::string to_string(const Site& site) {
  const char* slash = std::strrchr(site.file, '/');
  return std::string(slash ? slash + 1 : site.file) + ":" + std::to_string(site.line);
}

const char* name(Op op) {
  static constexpr const char* names[] = {"mbarrier.init",
                                          "mbarrier.arrive",
                                          "mbarrier.expect_tx",
                                          "mbarrier.wait",
                                          "fence.mbarrier_init",
                                          "fence.proxy.async",
                                          "fence.proxy.tensormap",
                                          "cp.async.bulk.tensor load",
                                          "cp.async.bulk.tensor store",
                                          "st.async",
                                          "cp.async.bulk.prefetch",
                                          "cp.async.bulk.commit_group",
                                          "cp.async.bulk.wait_group",
                                          "cp.async.bulk.wait_group.read",
                                          "wgmma.mma_async",
                                          "wgmma.fence",
                                          "wgmma.commit_group",
                                          "wgmma.wait_group",
                                          "tcgen05.alloc",
                                          "tcgen05.dealloc",
                                          "tcgen05.relinquish_alloc_permit",
                                          "tcgen05.ld",
                                          "tcgen05.st",
                                          "tcgen05.wait::ld",
                                          "tcgen05.wait::st",
                                          "tcgen05.fence::before_thread_sync",
                                          "tcgen05.fence::after_thread_sync",
                                          "tcgen05.cp",
                                          "tcgen05.mma",
                                          "tcgen05.commit",
                                          "multicast mask",
                                          "barrier.sync",
                                          "barrier.arrive",
                                          "barrier.cluster",
                                          "bar.warp.sync",
                                          "shfl.sync",
                                          "elect.sync",
                                          "setmaxnreg",
                                          "ld.shared",
                                          "st.shared",
                                          "ld.global",
                                          "st.global",
                                          "atom.global",
                                          "griddepcontrol.wait",
                                          "griddepcontrol.launch_dependents"};
  static_assert(std::size(names) == static_cast<std::size_t>(Op::count_));
  return names[static_cast<std::size_t>(op)];
}

const char* name(Hazard hazard) {
  static constexpr const char* names[] = {"uninitialised read",
                                          "read before completion",
                                          "write under a pending read",
                                          "unordered access",
                                          "missing fence.proxy.async",
                                          "missing wgmma.fence",
                                          "accumulator in flight",
                                          "operand in flight",
                                          "missing tcgen05.fence",
                                          "missing tcgen05.wait",
                                          "tensor memory misuse",
                                          "illegal instruction",
                                          "wrong phase",
                                          "mbarrier misuse",
                                          "named barrier misuse",
                                          "divergent collective",
                                          "cluster misuse",
                                          "register ledger",
                                          "out of bounds",
                                          "misaligned",
                                          "illegal descriptor",
                                          "illegal tensor map",
                                          "global out of bounds",
                                          "global unordered access",
                                          "grid dependency",
                                          "exit while pending",
                                          "deadlock"};
  static_assert(std::size(names) == static_cast<std::size_t>(Hazard::count_));
  return names[static_cast<std::size_t>(hazard)];
}

bool Report::has(Hazard kind) const {
  for (const Finding& finding : findings_) {
    if (finding.kind == kind) return true;
  }
  return false;
}

bool Report::only(Hazard kind) const {
  for (const Finding& finding : findings_) {
    if (finding.kind != kind) return false;
  }
  return !findings_.empty();
}

std::string Report::text() const {
  std::string all;
  for (const Finding& finding : findings_) {
    all += std::string(name(finding.kind)) + " at " + to_string(finding.site) + " (" +
           std::to_string(finding.count) + "x): " + finding.text + "\n";
  }
  return all;
}

bool Report::known(Hazard kind, Site site) {
  for (Finding& finding : findings_) {
    if (finding.kind == kind && finding.site == site) {
      ++finding.count;
      return true;
    }
  }
  return false;
}

void Report::add(Hazard kind, Site site, std::string text) {
  if (!known(kind, site)) findings_.push_back({kind, site, std::move(text), 1});
}

void Report::visit(Op op, Site site) {
  std::vector<Site>& sites = sites_[static_cast<std::size_t>(op)];
  if (!sites.empty() && sites.back() == site) return;
  for (const Site& seen : sites) {
    if (seen == site) return;
  }
  sites.push_back(site);
}

}  // namespace gemmule::model
