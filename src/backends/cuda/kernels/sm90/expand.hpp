// Expansion of block-scaled operands to BF16 or FP16 pairs, in registers.
//
// A "word" holds 4 consecutive FP8 or 8 consecutive FP4 values. It becomes 2 or 4 pairs:
//   FP8          pair i = values 2 i and 2 i + 1
//   FP4, BF16    pair i = values i and i + 4
//   FP4, FP16    pairs 0, 1 = values 1 and 3, 5 and 7; pairs 2, 3 = values 0 and 2, 4 and 6
// Which values share a pair does not matter to a product, as long as A and B agree.
//
// FP8 values become exact BF16 (over FP16 and FP32, so that NaN and infinity take no instruction of their own) and are multiplied
// by the scale, 2^(code - 127) as BF16: the product has at most 4 significant bits, so it is exact whenever BF16 has the
// exponent. (The sign of a product that is zero is lost.) FP4 values with e8m0 scales are moved into place as BF16 numbers 2^126 times
// too small; one multiplication corrects that, a second one scales.
//
// FP8 has a shorter way where the scales of a tile lie close together, which they nearly always do: FP16 holds every e4m3
// number times a power of two from a window of 22 (e5m2: 9). Scales are then taken relative to the largest one of the tile,
// and the sums are multiplied by a power of two afterwards: one instruction expands a pair, one scales it, and both products and sums
// are the same as with BF16. scale_window.hpp finds out which tiles allow it.
//
// FP4 with e4m3 scales always takes FP16: values are moved into place as FP16 numbers 2^14 times too small, and what they are
// multiplied by is the scale itself. Products are multiples of 2^-24, which FP16 holds down to its smallest subnormal number, of
// at most 6 significant bits: exact. The sums are result_factor() too small.
#pragma once

#include "ptx/convert.hpp"
#include "ptx/packed.hpp"
#include "sm90/scaled_params.hpp"

namespace gemmule::kernels {

namespace expand {

using ptx::u32;
using ptx::U32x2;

/// Values 2 half and 2 half + 1 of an FP8 word as they are.
template <u32 half>
GEMMULE_DEVICE u32 fp8_pair(Format format, u32 word) {
  // The byte of an e5m2 number is the upper half of the FP16 number of the same value.
  const u32 fp16 = format == Format::e4m3 ? ptx::expand_e4m3<half>(word)
                                          : ptx::permute_bytes(word, 0, half == 0 ? 0x1404 : 0x3424);
  const ptx::F32x2 values = ptx::unpack_fp16(fp16);
  return ptx::pack_bf16(values.x, values.y);
}

/// Values i and i + 4 of an FP4 word, times 2^-126: the sign to bit 15, the other three bits to bits 8..6 of each half, whose
/// lowest exponent bits they then are (and subnormal where e2m1's are).
template <u32 i>
GEMMULE_DEVICE u32 fp4_pair(u32 word) {
  constexpr u32 moves = i % 2 == 0 ? (1u << 6 | 1u << 12) : (1u << 2 | 1u << 8);
  const u32 nibbles = (i < 2 ? word : word >> 8) & (i % 2 == 0 ? 0x000F000Fu : 0x00F000F0u);
  return nibbles * moves & 0x81C081C0u;
}
inline constexpr u32 two_to_126 = 0x7E807E80u;  ///< BF16 pair

/// Whether FP16 serves every tile.
GEMMULE_HD constexpr bool always_fp16(const ScaledOptions& options) {
  return options.scale == ScaleFormat::e4m3;
}
/// What the sums of products must be multiplied by.
GEMMULE_HD constexpr float result_factor(const ScaledOptions& options) {
  return always_fp16(options) ? 0x1p28f : 1.0f;
}

/// Whether a factor of the sums cannot take in result_factor(), which the sums must then be multiplied by first.
GEMMULE_DEVICE bool overflows(float factor, float result_factor) {
  const auto magnitude = [](float x) { return numerics::bits_of(x) & 0x7FFFFFFFu; };
  return magnitude(factor * result_factor) == numerics::infinity_bits &&
         magnitude(factor) < numerics::infinity_bits;
}

/// What a pair is multiplied by, and, of FP8, what is added: zero, or NaN where the scale is NaN.
struct Factor {
  u32 scale, addend;
};

/// What a pair is scaled by: BF16 or FP16.
template <bool fp16>
struct PairFactor {
  using Type = Factor;
};
template <>
struct PairFactor<true> {
  using Type = u32;
};

/// Of two e8m0 codes, in bits 0..7 of each half: 2^(code - 127). FP8: code 255 gives infinity, and its product with zero, NaN,
/// is what is added; code 0 gives 0, as it does in FP16. FP4, which takes two equal codes: code 0 is a subnormal.
GEMMULE_DEVICE Factor e8m0_factor(const ScaledOptions& options, u32 codes) {
  const u32 scale = codes << 7;
  if (options.ab == Format::e2m1)
    return {codes == 0x00FF00FFu ? 0x7FFF7FFFu : ptx::max_u16(scale, 0x00400040u), 0};
  return {scale, ptx::multiply_bf16(scale, 0)};
}

/// Of four scales, the first `blocks`, and zeros for the others: their data is zero, and what lies in place of their scales must not turn it
/// into NaN.
GEMMULE_DEVICE u32 existing_scales(u32 scales, u32 blocks) {
  return blocks >= 4 ? scales : scales & ((1u << 8 * blocks) - 1);
}
/// For factor() and fp16_factor(): selects byte `block` of four scales.
GEMMULE_DEVICE u32 scale_selector(const ScaledOptions& options, u32 block) {
  return options.scale == ScaleFormat::e4m3 ? block * 0x11u : 0x4040u + block * 0x0101u;
}
/// Difference between the selectors of neighbouring bytes.
GEMMULE_HD constexpr u32 next_scale(const ScaledOptions& options) {
  return options.scale == ScaleFormat::e4m3 ? 0x11u : 0x0101u;
}
/// The factor of both values of a pair.
GEMMULE_DEVICE Factor factor(const ScaledOptions& options, u32 scales, u32 selector) {
  return e8m0_factor(options, ptx::permute_bytes(scales, 0, selector));
}

GEMMULE_DEVICE u32 scaled(const ScaledOptions& options, u32 pair, const Factor& factor) {
  if (options.ab != Format::e2m1) return ptx::multiply_add_bf16(pair, factor.scale, factor.addend);
  return ptx::multiply_bf16(ptx::multiply_bf16(pair, two_to_126), factor.scale);
}

/// Pairs 2 s' and 2 s' + 1 of a word, scaled: of an FP8 word s' = 0, of an FP4 word s' < 2.
template <u32 s>
GEMMULE_DEVICE U32x2 pairs(const ScaledOptions& options, u32 word, const Factor& factor) {
  if (options.ab == Format::e2m1)
    return {scaled(options, fp4_pair<2 * s>(word), factor),
            scaled(options, fp4_pair<2 * s + 1>(word), factor)};
  return {scaled(options, fp8_pair<0>(options.ab, word), factor),
          scaled(options, fp8_pair<1>(options.ab, word), factor)};
}

/// The FP16 way of FP8. The largest code of a tile becomes 2^top; the smallest but 0 may be `span` codes less, but not below `lowest`:
/// such blocks are left to BF16, which keeps their larger values and rounds the others. Code 0, the scale of a block of zeros,
/// is no obstacle: in either way it makes zero of every finite value, and NaN of infinity.
struct Window {
  u32 lowest, span, top;
};
GEMMULE_HD constexpr Window window(Format ab) {
  return ab == Format::e4m3 ? Window{3, 21, 7} : Window{10, 8, 0};
}
/// The code whose factor would have FP16's exponent field 0, if `largest` is the largest code.
GEMMULE_HD constexpr u32 window_base(Format ab, u32 largest) {
  const u32 field = 15 + window(ab).top;
  return largest < field ? 0 : largest - field;
}
/// Sums of FP16 products are 2^result_exponent() times too small.
GEMMULE_HD constexpr i32 result_exponent(u32 base_a, u32 base_b) {
  return static_cast<i32>(base_a + base_b) - 2 * (127 - 15);
}

/// Of two codes, in both halves, for base = window_base() in both halves.
GEMMULE_DEVICE u32 fp16_factor_of(u32 codes, u32 bases) {
  // Both halves at once: what the lower one carries into the upper one, the subtraction takes out again.
  return ptx::multiply_add(ptx::max_u16(codes, bases), 1 << 10, 0u - (bases << 10));
}
/// The factor of both values of a pair. `bases`: of e8m0 scales. NaN is NaN.
GEMMULE_DEVICE u32 fp16_factor(const ScaledOptions& options, u32 scales, u32 selector, u32 bases) {
  const u32 codes = ptx::permute_bytes(scales, 0, selector);
  return options.scale == ScaleFormat::e4m3 ? ptx::expand_e4m3<0>(codes) : fp16_factor_of(codes, bases);
}
/// Values 2 half and 2 half + 1 of an FP8 word as they are.
GEMMULE_DEVICE u32 fp8_as_fp16(Format format, u32 word, u32 half) {
  if (format == Format::e4m3) return half == 0 ? ptx::expand_e4m3<0>(word) : ptx::expand_e4m3<1>(word);
  return ptx::permute_bytes(word, 0, half == 0 ? 0x1404 : 0x3424);
}

/// The upper halves of FP16 numbers 2^14 times too small: of the values 1, 3, 5 and 7 of an FP4 word, or of 0, 2, 4 and 6. The sign
/// stays bit 7 of a byte, the other three bits go to bits 3..1.
GEMMULE_DEVICE u32 fp4_as_upper_bytes(u32 word, bool odd) {
  const u32 in_place = odd ? word : word << 4;
  return (in_place & 0x80808080u) | (in_place >> 3 & 0x0E0E0E0Eu);
}

GEMMULE_DEVICE u32 word_of(const ptx::U32x4& words, u32 index) {
  return index == 0 ? words.x : index == 1 ? words.y : index == 2 ? words.z : words.w;
}

/// The word of 16 bytes that slice `slice` < 4 takes its two pairs from: FP8 word `slice`; of FP4, whose 16 bytes serve two steps of 4
/// slices, half of word 2 step + slice / 2.
GEMMULE_DEVICE u32 slice_word(const ScaledOptions& options, const ptx::U32x4& words, u32 step, u32 slice) {
  return word_of(words, options.ab == Format::e2m1 ? 2 * step + slice / 2 : slice);
}

GEMMULE_DEVICE U32x2 slice_pairs(const ScaledOptions& options, const ptx::U32x4& words, u32 step, u32 slice,
                                 const Factor& factor) {
  const u32 word = slice_word(options, words, step, slice);
  return options.ab != Format::e2m1 || slice % 2 == 0 ? pairs<0>(options, word, factor)
                                                      : pairs<1>(options, word, factor);
}

/// The same as FP16, of FP8 and of FP4 with e4m3 scales.
GEMMULE_DEVICE U32x2 fp16_slice_pairs(const ScaledOptions& options, const ptx::U32x4& words, u32 step,
                                      u32 slice, u32 factor) {
  const u32 word = slice_word(options, words, step, slice);
  u32 pairs[2];
  if (options.ab == Format::e2m1) {
    const u32 bytes = fp4_as_upper_bytes(word, slice % 2 == 0);
    pairs[0] = ptx::permute_bytes(bytes, 0, 0x1404);
    pairs[1] = ptx::permute_bytes(bytes, 0, 0x3424);
  } else {
    pairs[0] = fp8_as_fp16(options.ab, word, 0);
    pairs[1] = fp8_as_fp16(options.ab, word, 1);
  }
  return {ptx::multiply_fp16(pairs[0], factor), ptx::multiply_fp16(pairs[1], factor)};
}

}  // namespace expand

}  // namespace gemmule::kernels
