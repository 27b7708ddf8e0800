// Every pair of option values of the Hopper kernel occurs in some specialization that compiles here without local memory;
// with GEMMULE_ALL_SPECIALIZATIONS=1 the whole product does (about half an hour on two cores). GEMMULE_SHARD=I/N takes each
// Nth choice from the Ith on, so that several processes can share the work.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "backends/cuda/compile.hpp"
#include "backends/cuda/kernel.hpp"
#include "backends/cuda/nvrtc.hpp"
#include "backends/machine_code.hpp"

namespace gemmule::cuda {
namespace {

constexpr DType output_types[] = {DType::bfloat16, DType::float16, DType::float32};
/// Values of: type of C, type of D, activation, weights, dbias, deterministic, dynamic, m_aligned.
constexpr std::array<int, 8> extents = {3, 3, 3, 3, 2, 2, 2, 2};
using Choice = std::array<int, extents.size()>;

Problem problem_of(const Choice& x) {
  Problem p;
  p.op = Op::dglu;
  p.n = p.k = 256;
  p.experts = 4;
  p.ab = DType::bfloat16;
  p.c = output_types[x[0]];
  p.d = output_types[x[1]];
  if (x[2] != 0) {
    p.act = ActFunc::dgeglu;
    p.geglu_value_filter = x[2] == 1;
    p.linear_offset = 1;
    p.geglu_alpha = 1.702f;
    p.glu_clamp_max = 7;
    p.glu_clamp_min = -7;
  }
  p.has_prob = p.has_dprob = true;
  p.discrete = x[3] != 0;
  p.b_n_major = x[3] == 2;
  p.has_dbias = x[4] != 0;
  p.deterministic = x[5] != 0;
  p.use_dynamic_sched = x[6] != 0;
  p.m_aligned = x[7] != 0 ? 128 : 256;
  return p;
}

std::vector<Choice> full_product() {
  std::vector<Choice> all(1);
  for (std::size_t i = 0; i < extents.size(); ++i) {
    std::vector<Choice> next;
    for (Choice x : all)
      for (x[i] = 0; x[i] < extents[i]; ++x[i]) next.push_back(x);
    all = next;
  }
  return all;
}

using Pair = std::tuple<std::size_t, int, std::size_t, int>;

std::set<Pair> pairs_of(const Choice& x) {
  std::set<Pair> pairs;
  for (std::size_t i = 0; i < x.size(); ++i)
    for (std::size_t j = i + 1; j < x.size(); ++j) pairs.insert({i, x[i], j, x[j]});
  return pairs;
}

/// Greedy: always the choice that covers the most pairs still missing.
std::vector<Choice> pairwise_cover() {
  const std::vector<Choice> all = full_product();
  std::set<Pair> missing;
  for (const Choice& x : all) missing.merge(pairs_of(x));
  std::vector<Choice> cover;
  while (!missing.empty()) {
    const auto gain = [&](const Choice& x) {
      std::size_t count = 0;
      for (const Pair& pair : pairs_of(x)) count += missing.count(pair);
      return count;
    };
    const Choice& best = *std::max_element(
        all.begin(), all.end(), [&](const Choice& a, const Choice& b) { return gain(a) < gain(b); });
    for (const Pair& pair : pairs_of(best)) missing.erase(pair);
    cover.push_back(best);
  }
  return cover;
}

/// GEMMULE_SHARD: first choice and step.
std::pair<std::size_t, std::size_t> shard() {
  const char* text = std::getenv("GEMMULE_SHARD");
  if (!text) return {0, 1};
  unsigned first = 0, step = 0;
  if (std::sscanf(text, "%u/%u", &first, &step) != 2 || first >= step)
    throw std::invalid_argument(std::string("GEMMULE_SHARD ") + text + ": expected I/N with I < N");
  return {first, step};
}

TEST(Sm90Specializations, CompileWithoutFaults) {
  std::string why;
  if (!find_nvrtc(&why)) GTEST_SKIP() << "NOT TESTED, no compiler: " << why;
  const std::vector<Choice> choices =
      std::getenv("GEMMULE_ALL_SPECIALIZATIONS") ? full_product() : pairwise_cover();
  std::vector<std::string> faults(choices.size());
  const auto [first, step] = shard();
  const unsigned workers = step > 1 ? 1 : std::thread::hardware_concurrency();
  std::atomic<std::size_t> next = first;
  const auto work = [&, step = step] {
    for (std::size_t i = next.fetch_add(step); i < choices.size(); i = next.fetch_add(step)) {
      const Problem p = problem_of(choices[i]);
      const Kernel* kernel = find_kernel(p, Arch::sm_90a, &faults[i]);
      if (!kernel) continue;
      const Compiled compiled = compile_source(kernel->specialize(p, Arch::sm_90a).source, Arch::sm_90a);
      faults[i] = resource_fault(compiled) + overtaking_arrival(compiled.cubin);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < workers; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    std::string text;
    for (const int value : choices[i]) text += std::to_string(value) + " ";
    EXPECT_EQ(faults[i], "") << "choice " << text;
  }
}

}  // namespace
}  // namespace gemmule::cuda
