// Running tiny kernels on the model under several seeds.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "engine/machine.hpp"

namespace gemmule::test {

inline constexpr std::uint64_t seeds = 12;

/// No finding under any seed. `check` runs after each.
inline void expect_clean(
    model::LaunchOptions options, const std::function<void()>& kernel,
    const std::function<void()>& check = [] {}, model::GlobalMemory memory = {}) {
  for (options.seed = 1; options.seed <= seeds; ++options.seed) {
    const model::Report report = model::launch(options, memory, kernel);
    EXPECT_EQ(report.text(), "") << "seed " << options.seed;
    check();
  }
}

/// The same finding under every seed (others may come with it).
inline void expect_hazard(model::Hazard kind, model::LaunchOptions options,
                          const std::function<void()>& kernel, model::GlobalMemory memory = {}) {
  for (options.seed = 1; options.seed <= seeds; ++options.seed) {
    const model::Report report = model::launch(options, memory, kernel);
    EXPECT_TRUE(report.has(kind)) << "seed " << options.seed << ": no '" << name(kind)
                                  << "' but: " << report.text();
  }
}

}  // namespace gemmule::test
