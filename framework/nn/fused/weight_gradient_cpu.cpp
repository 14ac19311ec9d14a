// Both factors of the product have the rows that are added up as rows of their own. In pairs:
// VDPBF16PS takes two rows side by side of either factor, of the left one a value's pair for every
// lane. So a kernel of ours multiplies factors that are only interleaved: each thread lays out a
// chunk of the narrower one, which its own cache keeps, and goes along the wider one (after Goto
// and van de Geijn, TOMS 2008), whose next columns are fetched while it multiplies. By blocks:
// oneDNN's kernel, which has AMX's tiles, wants the left factor turned. The bias's gradient is
// summed up as its rows pass.
#include "framework/nn/fused/weight_gradient_cpu.h"

#include <ATen/cpu/Utils.h>
#include <ATen/ops/sum.h>

#include <cstdlib>
#include <vector>

#include "framework/nn/fused/block_product_cpu.h"

namespace brim::nn::cpu {
namespace {

constexpr int64_t kChunkRows = 1024;  // of both factors, at most
constexpr int64_t kStrip = 64;        // rows that are summed up in float32, or turned by a thread
constexpr int64_t kUnit = 16;         // columns that are given to a thread, at least
constexpr int64_t kPartLimit = 16;    // of the rows
constexpr int64_t kChunkBytes = 512 << 10;  // of a chunk, which a core's own cache keeps
constexpr int64_t kGradientRows = 128;      // of a result in one product by blocks
constexpr int64_t kTurned = 32;             // rows that are turned at a time: whole lines

// --- in pairs ------------------------------------------------------------------------------------

/// A matrix [rows, columns] without gaps; its columns are summed up where `sums` is.
struct Factor {
  const BFloat16* values;
  int64_t columns;
  double* sums;
};

/// Rows or columns.
struct Span {
  int64_t first, end;
};

/// Some columns of a chunk of rows: [rows/2, columns, 2].
struct Panel {
  const BFloat16* pairs;
  int64_t first, columns;
};

/// Those from `first` to `end`, a panel's at most.
Panel lay_out_panel(const Factor& factor, Span rows, int64_t first, int64_t end, BFloat16* to) {
  const int64_t columns = std::min(kPanelColumns, end - first);
  const BFloat16* const from = factor.values + first;
  lay_out(rows.end - rows.first, columns,
          Block<const BFloat16>{from + rows.first * factor.columns, factor.columns}, to);
  float strip[kPanelColumns];
  for (int64_t row = rows.first; factor.sums != nullptr && row < rows.end; row += kStrip) {
    pair_loops().sum_rows(std::min(kStrip, rows.end - row), columns, from + row * factor.columns,
                          factor.columns, strip);
    for (int64_t c = 0; c < columns; ++c) factor.sums[first + c] += strip[c];
  }
  return {to, first, columns};
}

/// A part of a product: over `rows`, of all columns of the narrower factor and `columns` of the
/// wider one, which is the left one where `turns`. `chunk` and `panel` have room for kept_rows().
struct Part {
  Factor narrow, wide;
  Span rows, columns;
  bool turns;
  BFloat16 *chunk, *panel;
  float* sum;
};

/// Rows of a matrix of so many columns that a core's own cache keeps, an even number.
int64_t kept_rows(int64_t columns) {
  const int64_t fitting = kChunkBytes / static_cast<int64_t>(sizeof(BFloat16)) / columns;
  return std::clamp(fitting / 2 * 2, 2 * kStrip, kChunkRows);
}

void multiply_part(const Part& part) {
  const auto& [narrow, wide, rows, columns, turns, chunk, panel, sum] = part;
  const int64_t stride = turns ? narrow.columns : wide.columns, all = rows.end - rows.first;
  const int64_t length = blocks(all, blocks(all, kept_rows(narrow.columns)));
  for (int64_t row = rows.first; row < rows.end; row += length) {
    const Span now = {row, std::min(row + length, rows.end)};
    const int64_t pairs = blocks(now.end - row, 2);
    for (int64_t k = 0; k < narrow.columns; k += kPanelColumns) {
      lay_out_panel(narrow, now, k, narrow.columns, chunk + 2 * pairs * k);
    }
    const int64_t next_row = row + length < rows.end ? row + length : row;
    for (int64_t c = columns.first; c < columns.end; c += kPanelColumns) {
      const Panel passing = lay_out_panel(wide, now, c, columns.end, panel);
      const bool is_last = c + kPanelColumns >= columns.end;
      const BFloat16* const ahead = is_last ? wide.values + next_row * wide.columns + columns.first
                                            : wide.values + row * wide.columns + c + kPanelColumns;
      for (int64_t k = 0; k < narrow.columns; k += kPanelColumns) {
        const Panel kept = {chunk + 2 * pairs * k, k, std::min(kPanelColumns, narrow.columns - k)};
        const Panel &left = turns ? passing : kept, &right = turns ? kept : passing;
        pair_loops().multiply_over_rows({.rows = left.columns,
                                         .columns = right.columns,
                                         .pairs = pairs,
                                         .left = left.pairs,
                                         .left_stride = 2 * left.columns,
                                         .right = right.pairs,
                                         .right_stride = 2 * right.columns,
                                         .sum = sum + left.first * stride + right.first,
                                         .sum_stride = stride,
                                         .adds = row > rows.first,
                                         .ahead = ahead,
                                         .ahead_stride = k == 0 ? wide.columns : 0});
      }
    }
  }
}

/// Into how many parts the rows are divided, each with sums of its own, which should take little of
/// memory's time beside the factors. By the shape alone: so sums are the same on any number of
/// threads.
int64_t parts_of(int64_t rows, int64_t outputs, int64_t inputs) {
  constexpr int64_t kShare = 8;
  const int64_t of_factors = rows * (outputs + inputs) * 4, of_sums = outputs * inputs * 8;
  return std::clamp<int64_t>(of_factors / of_sums / kShare, 1, kPartLimit);
}

// --- by blocks -----------------------------------------------------------------------------------

/// A chunk of rows of two matrices [rows, ·], as the factors of their product over the rows.
struct Chunk {
  Block<BFloat16> left;  // [columns of the first, rows]
  BFloat16* right;       // panels of the second
  int64_t depth;         // rows, rounded up to an even number
};

/// Rows of matrices `turned` [rows, M] and `paired` [rows, C] into a chunk, from its `first` on.
void put_rows(int64_t first, int64_t rows, const BFloat16* turned, int64_t height,
              const BFloat16* paired, int64_t columns, const Chunk& chunk) {
  for (int64_t r = 0; r < rows; r += kTurned) {
    pair_loops().transpose(std::min(kTurned, rows - r), height, turned + r * height, height,
                           chunk.left.values + first + r, chunk.left.stride);
  }
  if (rows % 2 != 0) {
    for (int64_t i = 0; i < height; ++i) {
      chunk.left.values[i * chunk.left.stride + first + rows] = {};
    }
  }
  for (int64_t r = 0; r < rows; r += 2) {
    for (int64_t c = 0; c < columns; c += kPanelColumns) {
      const int64_t width = std::min(kPanelColumns, columns - c);
      lay_out(std::min<int64_t>(2, rows - r), width,
              Block<const BFloat16>{paired + r * columns + c, columns},
              chunk.right + c * chunk.depth + (first + r) * width);
    }
  }
}

/// Whether it pays to turn the narrower of matrices [rows, a] and [rows, b], and then the product
/// [a, b] as well.
bool turns_back(int64_t rows, int64_t a, int64_t b) { return rows * std::abs(a - b) > 4 * a * b; }

/// The transpose of a float32 matrix, without gaps.
at::Tensor transposed(const at::Tensor& matrix) {
  const int64_t rows = matrix.size(0), columns = matrix.size(1);
  at::Tensor result = at::empty({columns, rows}, matrix.options());
  in_tasks(blocks(columns, kPanelColumns), [&](int64_t begin, int64_t end, int64_t /*task*/) {
    const int64_t first = begin * kPanelColumns;
    const int64_t count = std::min(end * kPanelColumns, columns) - first;
    lay_out_transposed(rows, count, Block<const float>{data<float>(matrix) + first, columns},
                       writable<float>(result) + first * rows);
  });
  return result;
}

}  // namespace

bool multiplies_over_rows() {
  static const bool does = pair_loops().multiply_over_rows != nullptr && !at::cpu::init_amx();
  return does;
}

WeightGradients weight_gradients(const at::Tensor& gradient, const at::Tensor& x,
                                 bool is_transposed, bool of_bias) {
  return multiplies_over_rows() ? weight_gradients_in_pairs(gradient, x, is_transposed, of_bias)
                                : weight_gradients_by_blocks(gradient, x, is_transposed, of_bias);
}

WeightGradients weight_gradients_in_pairs(const at::Tensor& gradient, const at::Tensor& x,
                                          bool is_transposed, bool of_bias) {
  const int64_t rows = x.size(0), outputs = gradient.size(1), inputs = x.size(1);
  const bool keeps_gradient = outputs <= inputs;
  const int64_t narrowest = std::min(inputs, outputs), widest = std::max(inputs, outputs);
  const int64_t parts = parts_of(rows, outputs, inputs), units = blocks(widest, kUnit);
  // Behind each, what a panel's last vector may read too much.
  const Scratch<BFloat16> chunks(kept_rows(narrowest) * narrowest + 2 * kUnit);
  const Scratch<BFloat16> panels(kept_rows(narrowest) * kPanelColumns + 2 * kUnit);
  const at::Tensor sums = at::empty({parts, outputs * inputs}, x.options().dtype(at::kFloat));
  at::Tensor bias_sums;
  if (of_bias) bias_sums = at::zeros({parts, outputs}, x.options().dtype(at::kDouble));
  in_tasks(parts * units, [&](int64_t begin, int64_t end, int64_t task) {
    for (int64_t part = begin / units; part * units < end; ++part) {
      const Span columns = {std::max<int64_t>(begin - part * units, 0) * kUnit,
                            std::min((end - part * units) * kUnit, widest)};
      // A chunk is kept by every thread that has columns of the other factor.
      const bool is_summed = of_bias && (!keeps_gradient || columns.first == 0);
      const Factor of_y = {data<BFloat16>(gradient), outputs,
                           is_summed ? writable<double>(bias_sums) + part * outputs : nullptr};
      const Factor of_x = {data<BFloat16>(x), inputs, nullptr};
      multiply_part({.narrow = keeps_gradient ? of_y : of_x,
                     .wide = keeps_gradient ? of_x : of_y,
                     .rows = {rows * part / parts, rows * (part + 1) / parts},
                     .columns = columns,
                     .turns = keeps_gradient == is_transposed,
                     .chunk = chunks.of(task),
                     .panel = panels.of(task),
                     .sum = writable<float>(sums) + part * outputs * inputs});
    }
  });
  const at::Tensor flat = parts == 1 ? sums[0] : sums.sum(0);
  return {is_transposed ? flat.view({inputs, outputs}).t() : flat.view({outputs, inputs}),
          of_bias ? bias_sums.sum(0).to(at::kFloat) : at::Tensor()};
}

WeightGradients weight_gradients_by_blocks(const at::Tensor& gradient, const at::Tensor& x,
                                           bool is_transposed, bool of_bias) {
  const int64_t rows = x.size(0), inputs = x.size(1), outputs = gradient.size(1);
  // The narrower one is turned, as that takes longer than laying the other out, and what becomes of
  // it, where it is the transpose of what is wanted, is turned back.
  const bool turns_x = turns_back(rows, inputs, outputs) ? inputs < outputs : is_transposed;
  const at::Tensor &turned = turns_x ? x : gradient, &paired = turns_x ? gradient : x;
  const int64_t height = turned.size(1), columns = paired.size(1);
  const int64_t chunk_rows = rounded_up(blocks(rows, blocks(rows, kChunkRows)), 2);
  // Rows of the left factor that are not a power of two apart, as some lines of a cache would
  // have to keep them all.
  const int64_t stride = rounded_up(chunk_rows, 64) + 32;
  const at::Tensor left = at::empty({height, stride}, x.options());
  const at::Tensor right = at::empty({chunk_rows, columns}, x.options());
  at::Tensor result = at::empty({height, columns}, x.options().dtype(at::kFloat));
  std::vector<double> bias_sums(of_bias ? outputs : 0);
  std::vector<float> strip_sums(of_bias ? blocks(chunk_rows, kStrip) * outputs : 0);
  const int64_t panel_count = blocks(columns, kPanelColumns);
  for (int64_t begin_row = 0; begin_row < rows; begin_row += chunk_rows) {
    const int64_t count = std::min(chunk_rows, rows - begin_row), strips = blocks(count, kStrip);
    const Chunk chunk = {.left = {writable<BFloat16>(left), stride},
                         .right = writable<BFloat16>(right),
                         .depth = rounded_up(count, 2)};
    in_tasks(strips, [&](int64_t begin, int64_t end, int64_t /*task*/) {
      for (int64_t strip = begin; strip < end; ++strip) {
        const int64_t first = strip * kStrip, row = begin_row + first;
        const int64_t strip_rows = std::min(kStrip, count - first);
        put_rows(first, strip_rows, data<BFloat16>(turned) + row * height, height,
                 data<BFloat16>(paired) + row * columns, columns, chunk);
        if (of_bias) {
          pair_loops().sum_rows(strip_rows, outputs, data<BFloat16>(gradient) + row * outputs,
                                outputs, strip_sums.data() + strip * outputs);
        }
      }
    });
    for (int64_t strip = 0; of_bias && strip < strips; ++strip) {
      const float* const sums = strip_sums.data() + strip * outputs;
      for (int64_t o = 0; o < outputs; ++o) bias_sums[o] += sums[o];
    }
    in_tasks(blocks(height, kGradientRows) * panel_count,
             [&](int64_t begin, int64_t end, int64_t /*task*/) {
               for (int64_t block = begin; block < end; ++block) {
                 const int64_t r = block / panel_count * kGradientRows;
                 const int64_t c = block % panel_count * kPanelColumns;
                 const int64_t width = std::min(kPanelColumns, columns - c);
                 multiply(std::min(kGradientRows, height - r), width, chunk.depth,
                          Block<const BFloat16>{chunk.left.values + r * stride, stride},
                          Block<const BFloat16>{chunk.right + c * chunk.depth, width},
                          {writable<float>(result) + r * columns + c, columns},
                          /*adds=*/begin_row > 0);
               }
             });
  }
  if (turns_x != is_transposed) result = transposed(result);
  at::Tensor bias;
  if (of_bias) {
    bias = at::empty({outputs}, result.options());
    std::copy(bias_sums.begin(), bias_sums.end(), writable<float>(bias));
  }
  return {is_transposed ? result.t() : result, bias};
}

}  // namespace brim::nn::cpu
