// Beside many rows, products take most of the time. The right factor is laid out once, in panels of
// a few columns, a weight rounded on its way; then each thread multiplies blocks of rows that its
// own cache keeps by one panel after the other, and a block of the result is rounded, its bias
// added, before it leaves the cache.
#include "framework/nn/fused/many_row_linear_cpu.h"

#include "framework/nn/fused/block_product_cpu.h"

namespace brim::nn::cpu {
namespace {

constexpr int64_t kCachedBytes = 256 << 10;  // of a block of rows, which a core's own cache keeps
constexpr int64_t kSmallestBlock = 32;       // of such a block
constexpr int64_t kLargestBlock = 384;       // of which the cache keeps the sums too
constexpr int64_t kProductDepth = 1024;      // of one product

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

}  // namespace brim::nn::cpu
