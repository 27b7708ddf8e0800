// The oracle as a backend: its doubles rounded to float32 once, then to the output formats.
#include <algorithm>
#include <cmath>

#include "backends/reference/formats.hpp"
#include "backends/reference/layout.hpp"
#include "backends/reference/quantize.hpp"
#include "backends/reference/reference.hpp"

namespace gemmule::reference {
namespace {

void store_rows(const Values& in, std::int64_t count, DType type, void* out) {
  for (std::int64_t i = 0; i < count; ++i) store(out, type, i, static_cast<float>(in.value[i]));
}

/// D and sfd_row: one scale per 32 columns of a row. The scale bytes between the last block and the end of its group
/// of four are set to 0.
void quantize_d_rows(const Problem& p, const Operands& o, const Values& d) {
  const std::int64_t width = p.width(), blocks = ceil_div(width, 32);
  for (std::int64_t m = 0; m < rows_written(p, o); ++m) {
    for (std::int64_t block = 0; block < ceil_div(blocks, 4) * 4; ++block) {
      std::uint8_t scale = 0;
      if (block < blocks) {
        std::vector<float> values;
        for (std::int64_t n = block * 32; n < std::min(width, block * 32 + 32); ++n)
          values.push_back(static_cast<float>(d.value[m * width + n]));
        scale = row_scale_code(values, p.d, *o.norm_const);
        for (std::size_t j = 0; j < values.size(); ++j)
          store(o.d, p.d, m * width + block * 32 + static_cast<std::int64_t>(j),
                scaled(values[j], *o.norm_const, scale));
      }
      o.sfd_row[scale_index(m, block, blocks)] = scale;
    }
  }
}

/// d_col and sfd_col: one scale per 32 rows of a column. Scale bytes of the columns that fill the last 128 are 0.
void quantize_d_cols(const Problem& p, const Operands& o, const Values& d) {
  const std::int64_t width = p.width();
  for (int g = 0; g < p.experts; ++g) {
    const RowRange rows = rows_of(p, o, g);
    for (std::int64_t m = rows.begin; m < rows.end; m += 32) {
      for (std::int64_t n = 0; n < ceil_div(width, 128) * 128; ++n) {
        std::uint8_t scale = 0;
        if (n < width) {
          std::vector<float> values;
          for (std::int64_t i = 0; i < 32; ++i)
            values.push_back(static_cast<float>(d.value[(m + i) * width + n]));
          scale = col_scale_code(values, p.d, *o.norm_const);
          for (std::int64_t i = 0; i < 32; ++i)
            store(o.d_col, p.d, (m + i) * width + n, scaled(values[i], *o.norm_const, scale));
        }
        o.sfd_col[col_scale_index(p, o, rows, n, m)] = scale;
      }
    }
  }
}

}  // namespace

void run(const Problem& p, const Operands& o) {
  const Result result = evaluate(p, o);
  const std::int64_t rows = rows_written(p, o), written = rows * p.width();
  if (p.op == Op::srelu) store_rows(result.c, written, p.c, o.c_out);
  if (p.quantize) {
    quantize_d_rows(p, o, result.d);
    quantize_d_cols(p, o, result.d);
  } else {
    store_rows(result.d, written, p.d, o.d);
    if (p.has_d_col) store_rows(result.d, written, p.d, o.d_col);
  }
  if (p.has_dprob) store_rows(result.dprob, rows, DType::float32, o.dprob);
  if (p.has_amax)
    store_rows(result.amax, static_cast<std::int64_t>(result.amax.value.size()), DType::float32, o.amax);
  if (p.has_dbias)
    store_rows(result.dbias, static_cast<std::int64_t>(result.dbias.value.size()), DType::bfloat16, o.dbias);
}

}  // namespace gemmule::reference
