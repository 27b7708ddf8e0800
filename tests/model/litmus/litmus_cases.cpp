#include "model/litmus/litmus_cases.hpp"

#include <cstring>

namespace gemmule::litmus {

namespace {

using cuda::Swizzle;

cuda::TensorMap map_of(std::uint64_t columns, std::uint64_t rows, std::uint32_t box_columns,
                       std::uint32_t box_rows, Swizzle swizzle, cuda::Element element) {
  cuda::TensorMap map;
  map.element = element;
  map.rank = 2;
  map.extent[0] = columns;
  map.extent[1] = rows;
  map.stride[0] = columns * 2;
  map.box[0] = box_columns;
  map.box[1] = box_rows;
  map.swizzle = swizzle;
  return map;
}

/// Which 16-byte chunk of its row holds chunk `c` of row `r`: the patterns of the tensor-map swizzle modes.
std::uint32_t swizzled_chunk(Swizzle swizzle, std::uint32_t r, std::uint32_t c) {
  switch (swizzle) {
    case Swizzle::b128:
      return c ^ r % 8;
    case Swizzle::b64:
      return c ^ r / 2 % 4;
    case Swizzle::b32:
      return c ^ r / 4 % 2;
    case Swizzle::none:
      break;
  }
  return c;
}

constexpr std::uint32_t columns = 96, rows = 40, box_rows = 24;

std::vector<std::uint16_t> counting_tensor() {
  std::vector<std::uint16_t> values(columns * rows);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint16_t>(i + 1);
  return values;
}

/// Calls f(x, y of the tensor, index of the 16-bit value in the box's shared memory).
template <typename F>
void each_element(Swizzle swizzle, std::uint32_t box_columns, std::int32_t x0, std::int32_t y0, F&& f) {
  for (std::uint32_t r = 0; r < box_rows; ++r) {
    for (std::uint32_t i = 0; i < box_columns; ++i) {
      const std::uint32_t chunk = swizzled_chunk(swizzle, r, i / 8);
      f(x0 + static_cast<std::int32_t>(i), y0 + static_cast<std::int32_t>(r),
        r * box_columns + chunk * 8 + i % 8);
    }
  }
}

bool inside(std::int32_t x, std::int32_t y) {
  return x >= 0 && y >= 0 && x < static_cast<std::int32_t>(columns) && y < static_cast<std::int32_t>(rows);
}

Case copy_case(Kernel kernel, Swizzle swizzle, std::uint32_t box_columns, std::int32_t x, std::int32_t y) {
  Case c;
  c.name = std::string(kernel == Kernel::load ? "load" : "store") + " swizzle " +
           std::to_string(static_cast<int>(swizzle)) + " at " + std::to_string(x) + ", " + std::to_string(y);
  c.kernel = kernel;
  c.a = counting_tensor();
  c.a_map = map_of(columns, rows, box_columns, box_rows, swizzle, cuda::Element::u16);
  c.b = {0};
  c.b_map = c.a_map;
  c.x = x;
  c.y = y;
  c.bytes = box_columns * box_rows * 2;
  std::vector<std::uint16_t> box(c.bytes / 2);
  if (kernel == Kernel::load) {
    each_element(swizzle, box_columns, x, y, [&](std::int32_t tx, std::int32_t ty, std::uint32_t at) {
      if (inside(tx, ty))
        box[at] = c.a[static_cast<std::size_t>(ty) * columns + static_cast<std::size_t>(tx)];
    });
    c.out.resize(c.bytes / 4);
    std::memcpy(c.out.data(), box.data(), c.bytes);
    return c;
  }
  for (std::uint32_t i = 0; i < c.bytes / 4; ++i) {
    const std::uint32_t word = 0x10000 + i;
    std::memcpy(box.data() + 2 * i, &word, 4);
  }
  c.a_after = c.a;
  each_element(swizzle, box_columns, x, y, [&](std::int32_t tx, std::int32_t ty, std::uint32_t at) {
    if (inside(tx, ty))
      c.a_after[static_cast<std::size_t>(ty) * columns + static_cast<std::size_t>(tx)] = box[at];
  });
  return c;
}

/// A small integer as BF16: exact, and so are all sums.
std::uint16_t bf16(int value) {
  const float x = static_cast<float>(value);
  std::uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return static_cast<std::uint16_t>(bits >> 16);
}

Case multiply_case(bool n_major) {
  const auto a = [](int m, int k) { return (m * 7 + k * 3) % 11 - 5; };
  const auto b = [](int n, int k) { return (n * 5 + k * 9 + n / 16) % 13 - 6; };
  Case c;
  c.name = n_major ? "multiply, B n-major" : "multiply, B k-major";
  c.kernel = Kernel::multiply;
  c.n_major = n_major;
  c.a.resize(64 * 64);
  c.b.resize(128 * 64);
  for (int k = 0; k < 64; ++k) {
    for (int m = 0; m < 64; ++m) c.a[static_cast<std::size_t>(m * 64 + k)] = bf16(a(m, k));
    for (int n = 0; n < 128; ++n)
      c.b[static_cast<std::size_t>(n_major ? k * 128 + n : n * 64 + k)] = bf16(b(n, k));
  }
  c.a_map = map_of(64, 64, 64, 64, Swizzle::b128, cuda::Element::bf16);
  c.b_map = n_major ? map_of(128, 64, 64, 64, Swizzle::b128, cuda::Element::bf16)
                    : map_of(64, 128, 64, 128, Swizzle::b128, cuda::Element::bf16);
  c.out.resize(128 * 64);
  for (int t = 0; t < 128; ++t) {
    for (int i = 0; i < 64; ++i) {
      const int m = t / 32 * 16 + t % 32 / 4 + (i & 2) * 4;
      const int n = i / 4 * 8 + t % 4 * 2 + (i & 1);
      float sum = 0;
      for (int k = 0; k < 64; ++k) sum += static_cast<float>(a(m, k) * b(n, k));
      std::memcpy(&c.out[static_cast<std::size_t>(t * 64 + i)], &sum, 4);
    }
  }
  return c;
}

Case plain_case(const char* name, Kernel kernel) {
  Case c;
  c.name = name;
  c.kernel = kernel;
  c.a = c.b = counting_tensor();
  c.a_map = c.b_map = map_of(columns, rows, 64, box_rows, Swizzle::none, cuda::Element::u16);
  return c;
}

}  // namespace

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  struct Place {
    std::int32_t x, y;
  };
  for (const Kernel kernel : {Kernel::load, Kernel::store}) {
    for (const Place at : {Place{0, 0}, Place{16, 8}, Place{88, 30}, Place{-16, -5}}) {
      if (kernel == Kernel::store && at.x < 0) continue;
      cases.push_back(copy_case(kernel, Swizzle::b128, 64, at.x, at.y));
      cases.push_back(copy_case(kernel, Swizzle::b64, 32, at.x, at.y));
      cases.push_back(copy_case(kernel, Swizzle::b32, 16, at.x, at.y));
      cases.push_back(copy_case(kernel, Swizzle::none, 64, at.x, at.y));
    }
  }
  cases.push_back(multiply_case(false));
  cases.push_back(multiply_case(true));
  Case registers = multiply_case(false);
  registers.name = "multiply, A in registers";
  registers.kernel = Kernel::multiply_registers;
  cases.push_back(registers);
  Case bytes = plain_case("load of contiguous bytes", Kernel::load_bytes);
  bytes.bytes = 1040;
  bytes.out.resize(bytes.bytes / 4);
  std::memcpy(bytes.out.data(), bytes.a.data(), bytes.bytes);
  cases.push_back(bytes);
  Case phases = plain_case("phases of an mbarrier", Kernel::phases);
  for (std::uint32_t round = 0; round < 6; ++round) {
    for (std::uint32_t lane = 0; lane < 32; ++lane) phases.out.push_back(round * 100 + 31 - lane);
  }
  cases.push_back(phases);
  Case cluster = plain_case("stores into the other CTA, and elect", Kernel::cluster);
  cluster.grid = cluster.cluster = 2;
  cluster.out = {11, 1, 1, 10, 1, 1};
  cases.push_back(cluster);
  for (const Place at : {Place{-16, -5}, Place{-16, 8}, Place{16, -5}}) {
    for (const Swizzle swizzle : {Swizzle::b128, Swizzle::none}) {
      cases.push_back(copy_case(Kernel::store, swizzle, 64, at.x, at.y));
      cases.back().illegal = true;
    }
  }
  return cases;
}

}  // namespace gemmule::litmus
