#include "engine/clock.hpp"

#include <algorithm>
#include <stdexcept>

namespace gemmule::model {

void Clock::set(int agent, int counter) {
  if (counter > max_counter) throw std::length_error("the run is too long for the model's clocks");
  std::int16_t& slot = seen_[static_cast<std::size_t>(agent)];
  slot = std::max(slot, static_cast<std::int16_t>(counter));
}

void Clock::join(const Clock& other) {
  std::int16_t* to = seen_.data();
  const std::int16_t* from = other.seen_.data();
  const std::size_t n = seen_.size();
  for (std::size_t i = 0; i < n; ++i) to[i] = std::max(to[i], from[i]);
}

void Clock::fence() {
  const std::size_t n = seen_.size() / 2;
  for (std::size_t i = 0; i < n; ++i) seen_[n + i] = std::max(seen_[n + i], seen_[i]);
}

void Clock::forget(int first, int count) {
  const auto half = static_cast<std::ptrdiff_t>(seen_.size() / 2);
  std::fill_n(seen_.begin() + first, count, std::int16_t{0});
  std::fill_n(seen_.begin() + half + first, count, std::int16_t{0});
}

}  // namespace gemmule::model
