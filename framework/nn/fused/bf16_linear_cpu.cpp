// A weight is rounded and laid out block by block, just before a block is multiplied while it is in
// the cache; oneDNN's whole products take a rounded copy, which is written to memory, read, and laid
// out again.
#include "framework/nn/fused/bf16_linear_cpu.h"

#include <ATen/ops/sum.h>

#include "framework/nn/fused/block_product_cpu.h"

namespace brim::nn::cpu {
namespace {

constexpr int64_t kBlockBytes = 128 << 10;  // of a weight's block, which a core's own cache keeps
constexpr int64_t kBlockRows = 64;          // of the weight: a block's most
constexpr int64_t kBlockColumns = 64;       // of a gradient of x
constexpr int64_t kDepth = 1024;            // rows of the weight in one product for that gradient
constexpr int64_t kGradientColumns = 256;   // of a weight's gradient in one product
constexpr int64_t kPanel = 32;              // columns or rows that a thread lays out at least

void check_factors(const at::Tensor& x, const at::Tensor& weight) {
  TORCH_CHECK(x.dim() == 2 && weight.dim() == 2 && x.numel() > 0 && x.size(1) == weight.size(1) &&
                  x.size(1) % 2 == 0 && weight.size(0) % 2 == 0 && weight.size(0) > 0,
              "bf16_linear: expected x [N, I] and a weight [O, I] with even I and O, found ",
              x.sizes(), " and ", weight.sizes());
  TORCH_CHECK(x.scalar_type() == at::kBFloat16 && weight.scalar_type() == at::kFloat &&
                  x.is_contiguous() && weight.is_contiguous(),
              "bf16_linear: expected bfloat16 x and a float32 weight without gaps, found ",
              x.scalar_type(), " with strides ", x.strides(), " and ", weight.scalar_type(),
              " with strides ", weight.strides());
}

/// x [N, I] to [I/2, N, 2].
at::Tensor pairs_of_transpose(const at::Tensor& x) {
  const int64_t rows = x.size(0), pairs = x.size(1) / 2;
  at::Tensor result = at::empty({pairs, rows, 2}, x.options());
  const auto* from = data<BFloat16>(x);
  auto* to = writable<BFloat16>(result);
  at::parallel_for(0, blocks(pairs, kPanel), grain_of(2 * kPanel * rows),
                   [&](int64_t begin, int64_t end) {
                     const int64_t first = begin * kPanel;
                     const int64_t count = std::min(end * kPanel, pairs) - first;
                     pair_loops().pair_transposed(rows, 2 * count, from + 2 * first, x.size(1),
                                                  to + 2 * first * rows);
                   });
  return result;
}

/// weight · gradient: [N, O] by [O, I] to [N, I]
at::Tensor gradient_of_x(const at::Tensor& gradient, const at::Tensor& weight) {
  const int64_t rows = gradient.size(0), outputs = weight.size(0), inputs = weight.size(1);
  at::Tensor result = at::empty({rows, inputs}, gradient.options());
  const auto* of_y = data<BFloat16>(gradient);
  const auto* factors = data<float>(weight);
  auto* of_x = writable<BFloat16>(result);
  const int64_t deepest = std::min(kDepth, outputs);
  const Scratch<BFloat16> laid_out(deepest * kBlockColumns);
  const Scratch<float> sums(rows * kBlockColumns);
  in_tasks(blocks(inputs, kBlockColumns), [&](int64_t begin, int64_t end, int64_t task) {
    BFloat16* const block = laid_out.of(task);
    float* const sum = sums.of(task);
    for (int64_t i = begin * kBlockColumns; i < std::min(end * kBlockColumns, inputs);
         i += kBlockColumns) {
      const int64_t columns = std::min(kBlockColumns, inputs - i);
      for (int64_t o = 0; o < outputs; o += kDepth) {
        const int64_t depth = std::min(kDepth, outputs - o);
        for (int64_t row = 0; row < depth; row += 2) {
          const float* const even = factors + (o + row) * inputs + i;
          pair_loops().pair_rounded(columns, even, even + inputs, block + row * columns);
        }
        multiply(rows, columns, depth, {of_y + o, outputs}, {block, columns}, {sum, columns},
                 /*adds=*/o > 0);
      }
      round_rows(rows, columns, sum, {of_x + i, inputs});
    }
  });
  return result;
}

/// gradientᵀ · x: [O, N] by [N, I] to [O, I]
at::Tensor gradient_of_weight(const at::Tensor& gradient, const at::Tensor& x) {
  const int64_t rows = x.size(0), inputs = x.size(1), outputs = gradient.size(1);
  const int64_t pairs = blocks(rows, 2), depth = 2 * pairs;
  const at::Tensor paired = at::empty({pairs, inputs, 2}, x.options());
  const auto* from = data<BFloat16>(x);
  auto* right = writable<BFloat16>(paired);
  at::parallel_for(0, pairs, grain_of(2 * inputs), [&](int64_t begin, int64_t end) {
    pair_rows(std::min(2 * end, rows) - 2 * begin, inputs, {from + 2 * begin * inputs, inputs},
              right + 2 * begin * inputs);
  });
  const at::Tensor turned = at::empty({outputs, depth}, x.options());
  at::Tensor result = at::empty({outputs, inputs}, x.options().dtype(at::kFloat));
  const auto* of_y = data<BFloat16>(gradient);
  auto* left = writable<BFloat16>(turned);
  auto* of_weight = writable<float>(result);
  in_tasks(blocks(outputs, kBlockRows), [&](int64_t begin, int64_t end, int64_t /*task*/) {
    for (int64_t o = begin * kBlockRows; o < std::min(end * kBlockRows, outputs); o += kBlockRows) {
      const int64_t height = std::min(kBlockRows, outputs - o);
      pair_loops().transpose(rows, height, of_y + o, outputs, left + o * depth, depth);
      if (rows < depth) {
        for (int64_t row = o; row < o + height; ++row) left[row * depth + rows] = {};
      }
      for (int64_t i = 0; i < inputs; i += kGradientColumns) {
        multiply(height, std::min(kGradientColumns, inputs - i), depth, {left + o * depth, depth},
                 {right + 2 * i, inputs}, {of_weight + o * inputs + i, inputs});
      }
    }
  });
  return result;
}

}  // namespace

at::Tensor bf16_linear(const at::Tensor& x, const at::Tensor& weight, const MaybeTensor& bias) {
  check_factors(x, weight);
  const int64_t rows = x.size(0), inputs = x.size(1), outputs = weight.size(0);
  TORCH_CHECK(!bias || (bias->sizes() == at::IntArrayRef({outputs}) &&
                        bias->scalar_type() == at::kFloat && bias->is_contiguous()),
              "bf16_linear: expected a float32 bias [", outputs, "]");
  const at::Tensor right = pairs_of_transpose(x);
  at::Tensor y = at::empty({rows, outputs}, x.options());
  const auto* factors = data<float>(weight);
  const auto* added = data<float>(bias);
  const auto* pairs = data<BFloat16>(right);
  auto* out = writable<BFloat16>(y);
  const int64_t fitting = kBlockBytes / static_cast<int64_t>(sizeof(BFloat16)) / inputs;
  const int64_t height = std::clamp<int64_t>(fitting / 16 * 16, 16, kBlockRows);
  const Scratch<BFloat16> rounded(height * inputs);
  const Scratch<float> sums(height * rows);
  in_tasks(blocks(outputs, height), [&](int64_t begin, int64_t end, int64_t task) {
    BFloat16* const block = rounded.of(task);
    float* const sum = sums.of(task);
    for (int64_t o = begin * height; o < std::min(end * height, outputs); o += height) {
      const int64_t count = std::min(height, outputs - o);
      pair_loops().round(count * inputs, factors + o * inputs, block);
      multiply(count, rows, inputs, {block, inputs}, {pairs, rows}, {sum, rows});
      pair_loops().round_transposed(count, rows, sum, added == nullptr ? nullptr : added + o,
                                    out + o, outputs);
    }
  });
  return y;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> bf16_linear_backward(const at::Tensor& gradient,
                                                                    const at::Tensor& x,
                                                                    const at::Tensor& weight,
                                                                    std::array<bool, 3> wanted) {
  check_factors(x, weight);
  TORCH_CHECK(gradient.sizes() == at::IntArrayRef({x.size(0), weight.size(0)}) &&
                  gradient.scalar_type() == at::kBFloat16 && gradient.is_contiguous(),
              "bf16_linear: expected a bfloat16 gradient [", x.size(0), ", ", weight.size(0),
              "] without gaps, found ", gradient.scalar_type(), " ", gradient.sizes());
  return {wanted[0] ? gradient_of_x(gradient, weight) : at::Tensor(),
          wanted[1] ? gradient_of_weight(gradient, x) : at::Tensor(),
          wanted[2] ? gradient.sum(0, /*keepdim=*/false, at::kFloat) : at::Tensor()};
}

}  // namespace brim::nn::cpu
