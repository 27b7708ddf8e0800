// tcgen05.mma, cp and commit: the operations one thread issues execute in order, at any moment after their issue; commit
// arrives on an mbarrier when those before it are complete. Modelled from the documentation, never run on hardware.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "engine/machine.hpp"
#include "engine/tcgen05_descriptor.hpp"

namespace gemmule::model {

/// An operation in the pipeline of a thread.
class TensorOp {
 public:
  TensorOp(Cta& cta, Cta* peer, Site where) : ctas{&cta, peer}, site(where) {}
  TensorOp(const TensorOp&) = delete;
  TensorOp& operator=(const TensorOp&) = delete;
  virtual ~TensorOp() = default;
  virtual void run(Machine& machine) = 0;
  /// Reads or writes memory of `cta`.
  virtual bool touches(const Cta& cta) const { return &cta == ctas[0] || &cta == ctas[1]; }

 protected:
  Cta* ctas[2];  ///< the second is null unless the operation is of a pair
  Site site;
};

struct TensorPipe {
  explicit TensorPipe(int its_agent) : agent(its_agent) {}
  int agent;           ///< its counter is the number of commits that cover an operation
  int commits = 0;     ///< issued
  bool token = false;  ///< an AsyncOp that executes part of the queue is pending
  std::deque<std::unique_ptr<TensorOp>> queue;
  bool touches(const Cta& cta) const;
};

struct TensorMultiply {
  TensorKind kind = TensorKind::f16;
  int block = 0;  ///< k per scale factor, 0: none
  int ctas = 1;
  std::uint32_t d = 0;
  std::uint64_t a = 0, b = 0;
  std::uint32_t instruction = 0;
  std::uint32_t a_scales = 0, b_scales = 0;
  bool accumulate = false;
};
void tensor_multiply(Thread& t, const TensorMultiply& operands, Site site);
/// tcgen05.cp.32x128b.warpx4
void tensor_copy(Thread& t, std::uint32_t to, std::uint64_t from, int ctas, Site site);
/// `destinations`: bit r: the barrier in CTA r of the cluster, where the arrival is seen at a moment of its own; without it
/// in the own CTA.
void tensor_commit(Thread& t, std::uint32_t barrier, std::optional<std::uint32_t> destinations, int ctas,
                   Site site);

}  // namespace gemmule::model
