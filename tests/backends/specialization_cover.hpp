// Sets of option values in which every pair occurs, and the compilation of what they specialize.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace gemmule::cuda {

/// One value of every option, counted from 0.
template <std::size_t options>
using Choice = std::array<int, options>;

/// All legal choices; option i has extents[i] values.
template <std::size_t options>
std::vector<Choice<options>> legal_choices(const std::array<int, options>& extents,
                                           const std::function<bool(const Choice<options>&)>& legal) {
  std::vector<Choice<options>> all(1);
  for (std::size_t i = 0; i < options; ++i) {
    std::vector<Choice<options>> next;
    for (Choice<options> x : all)
      for (x[i] = 0; x[i] < extents[i]; ++x[i]) next.push_back(x);
    all = std::move(next);
  }
  std::erase_if(all, [&](const Choice<options>& x) { return !legal(x); });
  return all;
}

/// At most `at_most` of `all`, until every pair of values that occurs there occurs: always the choice that covers the
/// most missing pairs, of 251 candidates spread over all, or of more when none of these covers anything new.
template <std::size_t options>
std::vector<Choice<options>> pairwise_cover(const std::vector<Choice<options>>& all, std::size_t at_most) {
  using Pair = std::tuple<std::size_t, int, std::size_t, int>;
  const auto for_each_pair = [](const Choice<options>& x, const auto& visit) {
    for (std::size_t i = 0; i < options; ++i)
      for (std::size_t j = i + 1; j < options; ++j) visit(Pair{i, x[i], j, x[j]});
  };
  std::set<Pair> missing;
  for (const Choice<options>& x : all) for_each_pair(x, [&](const Pair& pair) { missing.insert(pair); });
  std::vector<Choice<options>> cover;
  std::size_t position = 0;
  while (!missing.empty() && cover.size() < at_most) {
    const Choice<options>* best = nullptr;
    std::size_t best_gain = 0;
    for (std::size_t tried = 0; tried < all.size() && (tried < 251 || best_gain == 0); ++tried) {
      position = (position + 7919) % all.size();
      std::size_t gain = 0;
      for_each_pair(all[position], [&](const Pair& pair) { gain += missing.count(pair); });
      if (gain > best_gain) best_gain = gain, best = &all[position];
    }
    if (!best) break;
    for_each_pair(*best, [&](const Pair& pair) { missing.erase(pair); });
    cover.push_back(*best);
  }
  return cover;
}

/// GEMMULE_ALL_SPECIALIZATIONS=product: every legal choice instead of a few (hours to days).
inline bool product_wanted() {
  const char* text = std::getenv("GEMMULE_ALL_SPECIALIZATIONS");
  return text && std::string_view(text) == "product";
}

/// `count` of `all`, chosen by GEMMULE_SEED (default 1).
template <std::size_t options>
std::vector<Choice<options>> seeded_sample(const std::vector<Choice<options>>& all, std::size_t count) {
  const char* text = std::getenv("GEMMULE_SEED");
  std::mt19937_64 random(text ? std::strtoull(text, nullptr, 10) : 1);
  std::vector<Choice<options>> sample;
  for (std::size_t i = 0; i < count; ++i) sample.push_back(all[random() % all.size()]);
  return sample;
}

/// A set of at most 150 in which every pair of values occurs, and a seeded sample; or all.
template <std::size_t options>
std::vector<Choice<options>> chosen_for_test(const std::vector<Choice<options>>& legal, std::size_t sampled) {
  if (product_wanted()) return legal;
  std::vector<Choice<options>> chosen = pairwise_cover(legal, legal.size());
  if (chosen.size() > 150) throw std::logic_error("the covering set has " + std::to_string(chosen.size()));
  const std::vector<Choice<options>> sample = seeded_sample(legal, sampled);
  chosen.insert(chosen.end(), sample.begin(), sample.end());
  return chosen;
}

/// The choices of share `index` of `shares`. NVRTC compiles one at a time in a process, so shares are tests of their own.
template <class T>
std::vector<T> share_of(const std::vector<T>& all, std::size_t index, std::size_t shares) {
  std::vector<T> share;
  for (std::size_t i = index; i < all.size(); i += shares) share.push_back(all[i]);
  return share;
}

/// What fault(i) says, for all i < count, asked by `workers` threads.
inline std::vector<std::string> faults_of(std::size_t count,
                                          const std::function<std::string(std::size_t)>& fault,
                                          unsigned workers = std::max(1u,
                                                                      std::thread::hardware_concurrency())) {
  std::vector<std::string> faults(count);
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) faults[i] = fault(i);
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < workers; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return faults;
}

template <std::size_t options>
std::string to_string(const Choice<options>& choice) {
  std::string text;
  for (const int value : choice) text += std::to_string(value) + " ";
  return text;
}

}  // namespace gemmule::cuda
