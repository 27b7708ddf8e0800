// The last few one-call configurations that passed every rule, so that a call like one before it (in a training step they
// repeat from layer to layer) need not be checked again but for its addresses and values.
#pragma once

#include <algorithm>
#include <array>
#include <optional>

#include "operators/plan.hpp"

namespace gemmule::operators {

/// The same but for the data.
inline bool same_description(const Tensor& x, const Tensor& y) {
  if (x.dtype != y.dtype) return false;
  if (!x.present()) return true;
  return x.rank == y.rank && x.device == y.device &&
         std::equal(x.shape.begin(), x.shape.begin() + x.rank, y.shape.begin()) &&
         std::equal(x.strides.begin(), x.strides.begin() + x.rank, y.strides.begin());
}

template <class Tensors>
bool same_descriptions(const Tensors& x, const Tensors& y) {
  const Arguments left(x, Form::call), right(y, Form::call);
  for (std::size_t i = 0; i < role_count; ++i)
    if (!same_description(*left.tensors[i], *right.tensors[i])) return false;
  return true;
}

/// One per thread. Holds no plan and no memory, so its end does not matter.
template <class Tensors, class Options, class Call>
class RecentCalls {
 public:
  struct Entry {
    Tensors given;  ///< without outputs
    Options options;
    Call call;
    int margin;         ///< cluster_overlap_margin()
    Tensors completed;  ///< with the outputs' descriptions
    PlanKey key;
  };

  /// The entry of `given`, which is without outputs; where there is none, what complete(tensors, options, call, margin)
  /// makes of a copy takes the place of the oldest. Valid until the next call of this function.
  template <class Complete>
  const Entry& find_or_complete(const Tensors& given, const Options& options, const Call& call, int margin,
                                Complete complete) {
    if (const Entry* known = find(given, options, call, margin)) return *known;
    Tensors completed = given;
    const PlanKey key = complete(completed, options, call, margin);
    std::optional<Entry>& place = entries_[next_++ % entries_.size()];
    place = Entry{given, options, call, margin, completed, key};
    return *place;
  }

 private:
  const Entry* find(const Tensors& given, const Options& options, const Call& call, int margin) const {
    for (const auto& entry : entries_)
      if (entry && entry->margin == margin && entry->call == call && entry->options == options &&
          same_descriptions(entry->given, given))
        return &*entry;
    return nullptr;
  }

  std::array<std::optional<Entry>, 8> entries_;
  std::size_t next_ = 0;
};

}  // namespace gemmule::operators
