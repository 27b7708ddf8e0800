// Scale-factor layouts, gate/input interleave and padded offsets.
#include "gemmule/layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <set>

#include "layout/interleave.hpp"
#include "layout/offsets.hpp"
#include "layout/scale_factors.hpp"

namespace gemmule {
namespace {

using layout::block_atoms;
using layout::scale_offset;
using layout::sfd_col_offset;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Bytes = std::vector<std::uint8_t>;

// ---- Offsets -------------------------------------------------------------------------------------------------------

TEST(PadOffsets, Examples) {
  const std::int64_t counts[] = {90, 0, 10};
  EXPECT_THAT(pad_offsets(counts, 256), ElementsAre(256, 256, 512));
  EXPECT_THAT(pad_offsets(counts, 1), ElementsAre(90, 90, 100));
  EXPECT_THAT(pad_offsets({}, 256), ElementsAre());
  const std::int64_t exact[] = {256, 257, 0, 255};
  EXPECT_THAT(pad_offsets(exact), ElementsAre(256, 768, 768, 1024));
}

TEST(PadOffsets, RandomCountsAreAlignedMonotoneAndLargeEnough) {
  std::mt19937 random(13);
  for (int trial = 0; trial < 200; ++trial) {
    const std::int32_t alignment = trial % 2 ? 256 : 128;
    std::vector<std::int64_t> counts(1 + random() % 64);
    for (auto& c : counts) c = random() % 3 == 0 ? 0 : random() % 3000;
    const auto offsets = pad_offsets(counts, alignment);
    ASSERT_EQ(offsets.size(), counts.size());
    for (std::size_t g = 0; g < counts.size(); ++g) {
      const std::int64_t rows = layout::group_rows(offsets.data(), static_cast<std::int64_t>(g));
      EXPECT_EQ(offsets[g] % alignment, 0);
      EXPECT_GE(rows, counts[g]);
      EXPECT_LT(rows, counts[g] + alignment);
      EXPECT_TRUE(counts[g] != 0 || rows == 0);
    }
  }
}

TEST(PadOffsets, RejectsWhatCannotBeRight) {
  const auto pad = [](std::vector<std::int64_t> counts, std::int32_t alignment) {
    return pad_offsets(counts, alignment);
  };
  EXPECT_THAT([&] { pad({3, -1}, 256); }, ThrowsMessage<InvalidArgument>(HasSubstr("counts[1] is -1")));
  EXPECT_THAT([&] { pad({3}, 0); }, ThrowsMessage<InvalidArgument>(HasSubstr("alignment is 0")));
  EXPECT_THAT([&] { pad({2147483647}, 256); }, ThrowsMessage<InvalidArgument>(HasSubstr("counts[0]")));
  EXPECT_THAT([&] { pad({2147483392, 1}, 256); }, ThrowsMessage<InvalidArgument>(HasSubstr("counts[1]")));
  EXPECT_THAT(
      [&] {
        pad({std::numeric_limits<std::int64_t>::max(), 1}, 256);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("int32")));
  EXPECT_THAT(pad({2147483392}, 256), ElementsAre(2147483392));
}

TEST(Offsets, GroupOfRowAgreesWithASearch) {
  const std::int32_t offsets[] = {0, 256, 256, 768, 768, 1280, 1280};
  for (std::int64_t row = 0; row < 1400; ++row) {
    std::int64_t want = 0;
    while (want < 7 && row >= offsets[want]) ++want;
    EXPECT_EQ(layout::group_of_row(offsets, 7, row), want) << row;
  }
  EXPECT_EQ(layout::group_start(offsets, 0), 0);
  EXPECT_EQ(layout::group_start(offsets, 3), 256);
  EXPECT_EQ(layout::group_rows(offsets, 2), 0);
}

TEST(Offsets, DoNotWrapAtThirtyTwoBits) {
  static_assert(sizeof(layout::row_offset(1, 1)) == 8);
  EXPECT_EQ(layout::row_offset(1079839, 2048), 2211510272);
  EXPECT_EQ(layout::row_offset(525312, 4096) * 2, 4303355904);
  // 2^31 rows of 16 blocks each.
  EXPECT_EQ(scale_offset(2147483647, 15, 4), (16777215LL * 4 + 3) * 512 + 511);
  EXPECT_EQ(layout::scale_buffer_bytes(2147483648LL, 512, 32), 2147483648LL * 16);
  EXPECT_EQ(layout::gate_column(2147483648LL + 5), 4294967296LL + 5);
}

// ---- Scale factors -------------------------------------------------------------------------------------------------

TEST(ScaleOffset, Examples) {
  // M = 512, K = 512: B = 4 with 32 values per scale, 8 with 16.
  const std::int64_t four = block_atoms(512, 32);
  EXPECT_EQ(four, 4);
  EXPECT_EQ(scale_offset(0, 0, four), 0);
  EXPECT_EQ(scale_offset(1, 0, four), 16);
  EXPECT_EQ(scale_offset(32, 0, four), 4);
  EXPECT_EQ(scale_offset(0, 1, four), 1);
  EXPECT_EQ(scale_offset(0, 4, four), 512);
  EXPECT_EQ(scale_offset(128, 0, four), 2048);
  EXPECT_EQ(scale_offset(130, 5, four), 2593);
  EXPECT_EQ(scale_offset(511, 15, four), 8191);
  const std::int64_t eight = block_atoms(512, 16);
  EXPECT_EQ(eight, 8);
  EXPECT_EQ(scale_offset(130, 5, eight), 4641);
  EXPECT_EQ(scale_offset(511, 31, eight), 16383);
  // Expert 2 of a B with N = 512.
  const std::int64_t expert = 2 * layout::scale_buffer_bytes(512, 512, 32);
  EXPECT_EQ(expert + scale_offset(0, 0, four), 16384);
  EXPECT_EQ(expert + scale_offset(200, 7, four), 19083);
}

TEST(ColumnScaleOffset, Examples) {
  // N = 320, groups end at 256, 256, 768, 1280.
  const std::int32_t offsets[] = {256, 256, 768, 1280};
  const struct {
    std::int64_t n, m, whole, discrete;
  } examples[] = {
      {0, 0, 0, 0},         {0, 32, 1, 1},        {0, 128, 512, 512},     {33, 0, 20, 20},
      {129, 0, 5136, 1040}, {0, 256, 1024, 3072}, {130, 300, 6177, 5153}, {319, 1279, 15351, 15351}};
  for (const auto& e : examples) {
    const std::int64_t g = layout::group_of_row(offsets, 4, e.m);
    EXPECT_EQ(sfd_col_offset(e.n, e.m, 1280), e.whole);
    EXPECT_EQ(sfd_col_offset(e.n, e.m, layout::group_start(offsets, g), layout::group_rows(offsets, g), 320),
              e.discrete);
  }
}

TEST(ColumnScaleOffset, DiscreteIsEveryExpertsOwnLayoutOneAfterTheOther) {
  const std::int64_t columns = 256;
  const std::int32_t offsets[] = {256, 768};
  std::int64_t slab = 0;
  bool differs = false;
  for (std::int64_t g = 0; g < 2; ++g) {
    const std::int64_t start = layout::group_start(offsets, g);
    const std::int64_t rows = layout::group_rows(offsets, g);
    for (std::int64_t n = 0; n < columns; ++n)
      for (std::int64_t m = 0; m < rows; m += 32) {
        const std::int64_t at = sfd_col_offset(n, start + m, start, rows, columns);
        EXPECT_EQ(at, slab + scale_offset(n, m / 32, block_atoms(rows, 32)));
        differs |= at != sfd_col_offset(n, start + m, 768);
      }
    slab += scale_bytes(columns, rows, 32);
  }
  EXPECT_TRUE(differs);
  EXPECT_EQ(slab, scale_bytes(columns, 768, 32));
}

/// Byte offsets that a tensor of `shape` and `strides` gives its elements, by walking all six indices.
std::set<std::int64_t> walk(const std::array<std::int64_t, 6>& shape,
                            const std::array<std::int64_t, 6>& strides) {
  std::set<std::int64_t> seen;
  const std::int64_t count =
      std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  for (std::int64_t flat = 0; flat < count; ++flat) {
    std::int64_t rest = flat, at = 0;
    for (int d = 5; d >= 0; --d) {
      at += rest % shape[d] * strides[d];
      rest /= shape[d];
    }
    seen.insert(at);
  }
  return seen;
}

constexpr std::array<std::int64_t, 3> ragged_sizes[] = {{1, 1, 16},      {128, 128, 32}, {127, 96, 32},
                                                        {129, 512, 16},  {320, 800, 32}, {200, 33, 16},
                                                        {500, 1000, 32}, {256, 16, 16}};

TEST(ScaleShape, TheSixIndicesCoverEveryByteOnce) {
  for (const auto& [rows, length, vec] : ragged_sizes) {
    const int v = static_cast<int>(vec);
    const auto shape = scale_shape(rows, length, v, 3);
    const auto strides = scale_strides(rows, length, v);
    EXPECT_EQ(strides[5], scale_bytes(rows, length, v));
    const auto seen = walk(shape, strides);
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), 3 * scale_bytes(rows, length, v));
    EXPECT_EQ(*seen.rbegin(), 3 * scale_bytes(rows, length, v) - 1);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t b = 0; b < layout::ceil_div(length, vec); ++b) {
        const std::array<std::int64_t, 6> index{r % 32, r % 128 / 32, r / 128, b % 4, b / 4, 0};
        std::int64_t want = 0;
        for (int d = 0; d < 6; ++d) {
          ASSERT_LT(index[d], shape[d]);
          want += index[d] * strides[d];
        }
        ASSERT_EQ(scale_offset(r, b, block_atoms(length, vec)), want);
      }
  }
}

TEST(ScaleShape, Documented) {
  EXPECT_THAT(scale_shape(512, 512, 32), ElementsAre(32, 4, 4, 4, 4, 1));
  EXPECT_THAT(scale_strides(512, 512, 32), ElementsAre(16, 4, 2048, 1, 512, 8192));
  EXPECT_THAT(scale_shape(129, 65, 16, 8), ElementsAre(32, 4, 2, 4, 2, 8));
  EXPECT_EQ(scale_bytes(0, 512, 32), 0);
  EXPECT_EQ(scale_bytes(512, 0, 32), 0);
}

TEST(ScaleShape, RejectsBadExtents) {
  EXPECT_THAT([] { scale_shape(-1, 32, 32); }, ThrowsMessage<InvalidArgument>(HasSubstr("rows is -1")));
  EXPECT_THAT([] { scale_bytes(1, -32, 32); }, ThrowsMessage<InvalidArgument>(HasSubstr("length is -32")));
  EXPECT_THAT([] { scale_strides(1, 32, 8); }, ThrowsMessage<InvalidArgument>(HasSubstr("vec is 8")));
  EXPECT_THAT([] { scale_shape(1, 32, 32, -2); }, ThrowsMessage<InvalidArgument>(HasSubstr("experts is -2")));
}

TEST(Swizzle, UnswizzleIsItsInverseForRaggedSizes) {
  std::mt19937 random(32);
  std::vector<std::array<std::int64_t, 3>> sizes(std::begin(ragged_sizes), std::end(ragged_sizes));
  for (int i = 0; i < 40; ++i)
    sizes.push_back({1 + static_cast<std::int64_t>(random() % 400),
                     1 + static_cast<std::int64_t>(random() % 700), random() % 2 ? 16 : 32});
  for (const auto& [rows, length, vec] : sizes) {
    const int v = static_cast<int>(vec);
    Bytes linear(static_cast<std::size_t>(rows * layout::ceil_div(length, vec)));
    for (auto& b : linear) b = static_cast<std::uint8_t>(1 + random() % 255);
    Bytes swizzled(static_cast<std::size_t>(scale_bytes(rows, length, v)), 0xEE);
    swizzle_scales(linear.data(), swizzled.data(), rows, length, v);
    // Every scale is there, and all the rest is 0.
    EXPECT_EQ(std::count_if(swizzled.begin(), swizzled.end(), [](auto b) { return b != 0; }),
              static_cast<std::int64_t>(linear.size()));
    Bytes back(linear.size(), 0);
    unswizzle_scales(swizzled.data(), back.data(), rows, length, v);
    ASSERT_EQ(back, linear) << rows << " x " << length << " / " << vec;
  }
}

TEST(Swizzle, GoldenBytes) {
  // 2 x 5 scales: rows are 16 bytes apart, the fifth block starts the second atom.
  const Bytes linear = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  Bytes swizzled(1024, 0xEE);
  swizzle_scales(linear.data(), swizzled.data(), 2, 160, 32);
  Bytes want(1024, 0);
  for (int b = 0; b < 4; ++b) {
    want[b] = static_cast<std::uint8_t>(1 + b);
    want[16 + b] = static_cast<std::uint8_t>(6 + b);
  }
  want[512] = 5;
  want[528] = 10;
  EXPECT_EQ(swizzled, want);
}

// ---- Interleave ----------------------------------------------------------------------------------------------------

TEST(Interleave, Columns) {
  EXPECT_EQ(layout::gate_column(0), 0);
  EXPECT_EQ(layout::gate_column(31), 31);
  EXPECT_EQ(layout::gate_column(32), 64);
  EXPECT_EQ(layout::input_column(0), 32);
  EXPECT_EQ(layout::input_column(33), 97);
}

template <class T>
void check_interleave() {
  const std::int64_t rows = 5, n = 96;
  std::vector<T> halves(rows * 2 * n), blocks(halves.size()), back(halves.size());
  std::iota(halves.begin(), halves.end(), T{1});
  interleave_gate_input(halves.data(), blocks.data(), rows, n, sizeof(T));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < n; ++c) {
      ASSERT_EQ(blocks[r * 2 * n + layout::gate_column(c)], halves[r * 2 * n + c]);
      ASSERT_EQ(blocks[r * 2 * n + layout::input_column(c)], halves[r * 2 * n + n + c]);
    }
  deinterleave_gate_input(blocks.data(), back.data(), rows, n, sizeof(T));
  EXPECT_EQ(back, halves);
  EXPECT_NE(blocks, halves);
}

TEST(Interleave, IsUndoneForEveryElementSize) {
  check_interleave<std::uint8_t>();
  check_interleave<std::uint16_t>();
  check_interleave<std::uint32_t>();
}

TEST(Interleave, RejectsBadArguments) {
  std::uint32_t a[256] = {}, b[256] = {};
  EXPECT_THAT([&] { interleave_gate_input(a, b, 1, 33, 4); },
              ThrowsMessage<InvalidArgument>(HasSubstr("n is 33")));
  EXPECT_THAT([&] { interleave_gate_input(a, b, -1, 32, 4); },
              ThrowsMessage<InvalidArgument>(HasSubstr("rows is -1")));
  EXPECT_THAT([&] { deinterleave_gate_input(a, b, 1, 32, 3); },
              ThrowsMessage<InvalidArgument>(HasSubstr("element_size is 3")));
  interleave_gate_input(nullptr, nullptr, 0, 32, 4);
}

}  // namespace
}  // namespace gemmule
