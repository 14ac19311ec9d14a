// Beside many rows, products take most of the time. The right factor is laid out once, in panels of
// a few columns, a weight rounded on its way; then each thread multiplies blocks of rows that its
// own cache keeps by one panel after the other, and a block of the result is rounded, its bias
// added, before it leaves the cache. A weight's gradient is added up over chunks of rows, of which
// one factor is turned and the other laid out in one pass over both, that sums the bias's up too.
#include "framework/nn/fused/many_row_linear_cpu.h"

#include <cstdlib>
#include <vector>

#include "framework/nn/fused/block_product_cpu.h"

namespace brim::nn::cpu {
namespace {

constexpr int64_t kPanelColumns = 64;        // columns of a right factor that lie together
constexpr int64_t kCachedBytes = 256 << 10;  // of a block of rows, which a core's own cache keeps
constexpr int64_t kSmallestBlock = 32;       // of such a block
constexpr int64_t kLargestBlock = 384;       // of which the cache keeps the sums too
constexpr int64_t kProductDepth = 1024;      // of one product, and rows in a chunk
constexpr int64_t kGradientRows = 128;       // of a weight's gradient in one product
constexpr int64_t kStrip = 64;               // rows that one thread turns and lays out
constexpr int64_t kTurned = 32;              // of those at a time: whole lines of the result

/// The panel of `columns` columns that begins at the first-th of a right factor.
void lay_out_panel(const at::Tensor& right, int64_t first, int64_t columns, BFloat16* to,
                   BFloat16* rounded) {
  const int64_t depth = right.size(0);
  const auto* const from = data<float>(right);
  if (right.stride(1) != 1) {
    round_rows(columns, depth, from + first * depth, {rounded, depth});
    lay_out_transposed(columns, depth, Block<const BFloat16>{rounded, depth}, to);
  } else {
    lay_out_rounded(depth, columns, {from + first, right.size(1)}, to);
  }
}

/// All panels of a right factor [K, C], one after the other.
at::Tensor panels_of(const at::Tensor& right) {
  const int64_t depth = right.size(0), columns = right.size(1);
  at::Tensor panels = at::empty({depth * columns}, right.options().dtype(at::kBFloat16));
  const Scratch<BFloat16> rounded(right.stride(1) == 1 ? 0 : depth * kPanelColumns);
  in_tasks(blocks(columns, kPanelColumns), [&](int64_t begin, int64_t end, int64_t task) {
    for (int64_t c = begin * kPanelColumns; c < std::min(end * kPanelColumns, columns);
         c += kPanelColumns) {
      lay_out_panel(right, c, std::min(kPanelColumns, columns - c),
                    writable<BFloat16>(panels) + c * depth, rounded.of(task));
    }
  });
  return panels;
}

/// Has the lines of a block that is about to be written come into the cache while its sums are
/// computed.
void fetch_early(int64_t rows, int64_t columns, Block<BFloat16> block) {
  constexpr int64_t kLine = 64 / sizeof(BFloat16);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t c = 0; c < columns; c += kLine) {
      __builtin_prefetch(block.values + row * block.stride + c, /*for a write*/ 1);
    }
  }
}

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

at::Tensor many_row_product(const at::Tensor& left, const at::Tensor& right,
                            const MaybeTensor& bias) {
  const int64_t rows = left.size(0), depth = left.size(1), columns = right.size(1);
  const at::Tensor panels = panels_of(right);
  at::Tensor y = at::empty({rows, columns}, left.options());
  const auto* const added = data<float>(bias);
  const int64_t fitting = kCachedBytes / static_cast<int64_t>(sizeof(BFloat16)) / depth;
  const int64_t row_blocks = blocks(rows, std::clamp(fitting, kSmallestBlock, kLargestBlock));
  const int64_t panel_count = blocks(columns, kPanelColumns);
  const Scratch<float> sums(blocks(rows, row_blocks) * kPanelColumns);
  in_tasks(row_blocks * panel_count, [&](int64_t begin, int64_t end, int64_t task) {
    float* const sum = sums.of(task);
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = rows * (block / panel_count) / row_blocks;
      const int64_t height = rows * (block / panel_count + 1) / row_blocks - first;
      const int64_t c = block % panel_count * kPanelColumns;
      const int64_t width = std::min(kPanelColumns, columns - c);
      const Block<BFloat16> to = {writable<BFloat16>(y) + first * columns + c, columns};
      fetch_early(height, width, to);
      for (int64_t k = 0; k < depth; k += kProductDepth) {
        multiply(height, width, std::min(kProductDepth, depth - k),
                 Block<const BFloat16>{data<BFloat16>(left) + first * depth + k, depth},
                 Block<const BFloat16>{data<BFloat16>(panels) + c * depth + k * width, width},
                 {sum, width}, /*adds=*/k > 0);
      }
      round_rows(height, width, sum, to, added == nullptr ? nullptr : added + c);
    }
  });
  return y;
}

std::pair<at::Tensor, at::Tensor> many_row_weight_gradients(const at::Tensor& gradient,
                                                            const at::Tensor& x, bool is_transposed,
                                                            bool of_bias) {
  const int64_t rows = x.size(0), inputs = x.size(1), outputs = gradient.size(1);
  // The narrower one is turned, as that takes longer than laying the other out, and what becomes of
  // it, where it is the transpose of what is wanted, is turned back.
  const bool turns_x = turns_back(rows, inputs, outputs) ? inputs < outputs : is_transposed;
  const at::Tensor &turned = turns_x ? x : gradient, &paired = turns_x ? gradient : x;
  const int64_t height = turned.size(1), columns = paired.size(1);
  const int64_t chunk_rows = rounded_up(blocks(rows, blocks(rows, kProductDepth)), 2);
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
                                strip_sums.data() + strip * outputs);
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
  at::Tensor bias_gradient;
  if (of_bias) {
    bias_gradient = at::empty({outputs}, result.options());
    std::copy(bias_sums.begin(), bias_sums.end(), writable<float>(bias_gradient));
  }
  return {is_transposed ? result.t() : result, bias_gradient};
}

}  // namespace brim::nn::cpu
