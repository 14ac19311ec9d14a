// Of few rows (of many: many_row_linear_cpu.cpp, and implicit_gemm_cpu.cpp in float32). Each weight
// is read where it lies, once for each product. One that is rounded to bfloat16 is rounded and laid
// out block by block, just before a block is multiplied while it is in the cache; LibTorch's whole
// products take a rounded copy, which is written to memory, read, and laid out again.
#include "framework/nn/fused/block_linear_cpu.h"

#include <ATen/ops/sum.h>

#include "framework/nn/fused/block_product_cpu.h"
#include "framework/nn/fused/implicit_gemm_cpu.h"
#include "framework/nn/fused/many_row_linear_cpu.h"
#include "framework/nn/fused/weight_gradient_cpu.h"

namespace brim::nn::cpu {
namespace {

constexpr int64_t kBlockBytes = 128 << 10;  // of a weight's block, which a core's own cache keeps
constexpr int64_t kBlockRows = 64;          // of the weight: a block's most
constexpr int64_t kBlockColumns = 64;       // of a gradient of x
constexpr int64_t kDepth = 1024;            // rows of the weight in one product for that gradient
constexpr int64_t kGradientColumns = 256;   // of a weight's gradient in one product
constexpr int64_t kPanel = 64;              // columns that a thread lays out at least

bool has_many_rows(const at::Tensor& x) { return x.size(0) > kFewRows; }

/// A transposed weight lies as the products of many rows take it.
bool goes_by_rows(const at::Tensor& x, const at::Tensor& weight) {
  return has_many_rows(x) || !weight.is_contiguous();
}

/// Rows as the pixels of an image of that width.
Patches pixels_of(const at::Tensor& x) {
  return {.image = {1, x.size(1), 1, x.size(0)}, .kernel = {1, 1}, .steps = {}};
}

void check_factors(const at::Tensor& x, const at::Tensor& weight) {
  const bool is_float = x.scalar_type() == at::kFloat;
  TORCH_CHECK(x.dim() == 2 && weight.dim() == 2 && x.numel() > 0 && x.size(1) == weight.size(1) &&
                  weight.size(0) > 0 &&
                  (is_float || (x.size(1) % 2 == 0 && weight.size(0) % 2 == 0)),
              "block_linear: expected x [N, I] and a weight [O, I], with even I and O where x is "
              "bfloat16, found ",
              x.sizes(), " and ", weight.sizes());
  TORCH_CHECK(!is_float || !has_many_rows(x) || multiplies_float_tiles(),
              "block_linear: expected at most ", kFewRows,
              " rows of float32 on a CPU without AVX2, "
              "or with AVX-512, found ",
              x.size(0));
  TORCH_CHECK((is_float || x.scalar_type() == at::kBFloat16) &&
                  weight.scalar_type() == at::kFloat && x.is_contiguous() &&
                  (weight.is_contiguous() ||
                   (weight.t().is_contiguous() && (!is_float || multiplies_float_tiles()))),
              "block_linear: expected bfloat16 or float32 x and a float32 weight without gaps, "
              "found ",
              x.scalar_type(), " with strides ", x.strides(), " and ", weight.scalar_type(),
              " with strides ", weight.strides());
}

/// The right factor xᵀ of x [N, I].
template <class T>
at::Tensor laid_out_transposed(const at::Tensor& x) {
  const int64_t rows = x.size(0), inputs = x.size(1);
  at::Tensor result = at::empty({inputs * rows}, x.options());
  const T* const from = data<T>(x);
  T* const to = writable<T>(result);
  at::parallel_for(
      0, blocks(inputs, kPanel), grain_of(kPanel * rows), [&](int64_t begin, int64_t end) {
        const int64_t first = begin * kPanel;
        const int64_t count = std::min(end * kPanel, inputs) - first;
        lay_out_transposed(rows, count, Block<const T>{from + first, inputs}, to + first * rows);
      });
  return result;
}

/// The right factor x of x [N, I].
template <class T>
at::Tensor laid_out(const at::Tensor& x) {
  if constexpr (!kRounds<T>) {
    return x;
  } else {
    const int64_t rows = x.size(0), inputs = x.size(1);
    at::Tensor result = at::empty({rounded_up(rows, 2), inputs}, x.options());
    at::parallel_for(0, blocks(rows, 2), grain_of(2 * inputs), [&](int64_t begin, int64_t end) {
      lay_out(std::min(2 * end, rows) - 2 * begin, inputs,
              {data<T>(x) + 2 * begin * inputs, inputs}, writable<T>(result) + 2 * begin * inputs);
    });
    return result;
  }
}

/// to [N, count] = sumᵀ, plus the bias [count] where there is one; `turned` has room for as much.
void store_transposed(int64_t count, int64_t rows, const float* sum, const float* bias,
                      Block<BFloat16> to, BFloat16* /*turned*/) {
  pair_loops().round_transposed(count, rows, sum, bias, to.values, to.stride);
}
void store_transposed(int64_t count, int64_t rows, const float* sum, const float* bias,
                      Block<float> to, float* turned) {
  lay_out_transposed(count, rows, {sum, rows}, turned);
  for (int64_t row = 0; row < rows; ++row, turned += count) {
    float* const out = to.values + row * to.stride;
    for (int64_t i = 0; i < count; ++i) out[i] = bias == nullptr ? turned[i] : turned[i] + bias[i];
  }
}

template <class T>
at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const MaybeTensor& bias) {
  const int64_t rows = x.size(0), inputs = x.size(1), outputs = weight.size(0);
  const at::Tensor right = laid_out_transposed<T>(x);
  at::Tensor y = at::empty({rows, outputs}, x.options());
  const auto* factors = data<float>(weight);
  const auto* added = data<float>(bias);
  const T* const columns = data<T>(right);
  T* const out = writable<T>(y);
  const int64_t fitting = kBlockBytes / static_cast<int64_t>(sizeof(T)) / inputs;
  const int64_t height = std::clamp<int64_t>(fitting / 16 * 16, 16, kBlockRows);
  const Scratch<T> all_rounded(kRounds<T> ? height * inputs : 0);
  const Scratch<T> all_turned(kRounds<T> ? 0 : height * rows);
  const Scratch<float> sums(height * rows);
  in_tasks(blocks(outputs, height), [&](int64_t begin, int64_t end, int64_t task) {
    float* const sum = sums.of(task);
    for (int64_t o = begin * height; o < std::min(end * height, outputs); o += height) {
      const int64_t count = std::min(height, outputs - o);
      const T* left = nullptr;
      if constexpr (!kRounds<T>) {
        left = factors + o * inputs;
      } else {
        T* const rounded = all_rounded.of(task);
        round_rows(count, inputs, factors + o * inputs, {rounded, inputs});
        left = rounded;
      }
      multiply(count, rows, inputs, Block<const T>{left, inputs}, Block<const T>{columns, rows},
               {sum, rows});
      store_transposed(count, rows, sum, added == nullptr ? nullptr : added + o,
                       Block<T>{out + o, outputs}, all_turned.of(task));
    }
  });
  return y;
}

/// gradient · weight: [N, O] by [O, I] to [N, I]
template <class T>
at::Tensor gradient_of_x(const at::Tensor& gradient, const at::Tensor& weight) {
  const int64_t rows = gradient.size(0), outputs = weight.size(0), inputs = weight.size(1);
  at::Tensor result = at::empty({rows, inputs}, gradient.options());
  const T* const of_y = data<T>(gradient);
  const auto* factors = data<float>(weight);
  T* const of_x = writable<T>(result);
  const int64_t deepest = std::min(kDepth, outputs);
  const Scratch<T> laid_out(kRounds<T> ? deepest * kBlockColumns : 0);
  const Scratch<float> sums(kRounds<T> ? rows * kBlockColumns : 0);
  in_tasks(blocks(inputs, kBlockColumns), [&](int64_t begin, int64_t end, int64_t task) {
    for (int64_t i = begin * kBlockColumns; i < std::min(end * kBlockColumns, inputs);
         i += kBlockColumns) {
      const int64_t columns = std::min(kBlockColumns, inputs - i);
      for (int64_t o = 0; o < outputs; o += kDepth) {
        const int64_t depth = std::min(kDepth, outputs - o);
        const float* const from = factors + o * inputs + i;
        const Block<const T> left{of_y + o, outputs};
        if constexpr (!kRounds<T>) {
          multiply(rows, columns, depth, left, {from, inputs}, {of_x + i, inputs}, /*adds=*/o > 0);
        } else {
          T* const block = laid_out.of(task);
          lay_out_rounded(depth, columns, {from, inputs}, block);
          multiply(rows, columns, depth, left, Block<const T>{block, columns},
                   {sums.of(task), columns}, /*adds=*/o > 0);
        }
      }
      if constexpr (kRounds<T>) {
        round_rows(rows, columns, sums.of(task), {of_x + i, inputs});
      }
    }
  });
  return result;
}

/// gradientᵀ · x: [O, N] by [N, I] to [O, I]
template <class T>
at::Tensor gradient_of_weight(const at::Tensor& gradient, const at::Tensor& x) {
  const int64_t rows = x.size(0), inputs = x.size(1), outputs = gradient.size(1);
  const int64_t depth = rounded_up(rows, kSideBySide<T>);
  const at::Tensor right = laid_out<T>(x);
  const at::Tensor turned = at::empty({outputs, depth}, x.options());
  at::Tensor result = at::empty({outputs, inputs}, x.options().dtype(at::kFloat));
  const T* const of_y = data<T>(gradient);
  const T* const factors = data<T>(right);
  T* const left = writable<T>(turned);
  auto* of_weight = writable<float>(result);
  in_tasks(blocks(outputs, kBlockRows), [&](int64_t begin, int64_t end, int64_t /*task*/) {
    for (int64_t o = begin * kBlockRows; o < std::min(end * kBlockRows, outputs); o += kBlockRows) {
      const int64_t height = std::min(kBlockRows, outputs - o);
      transpose(rows, height, Block<const T>{of_y + o, outputs}, left + o * depth, depth);
      for (int64_t i = 0; i < inputs; i += kGradientColumns) {
        multiply(height, std::min(kGradientColumns, inputs - i), depth,
                 Block<const T>{left + o * depth, depth},
                 Block<const T>{factors + i * kSideBySide<T>, inputs},
                 {of_weight + o * inputs + i, inputs});
      }
    }
  });
  return result;
}

/// Of a gradient [N, O]: [O] in float32. Of few rows that takes less time than a second thread.
at::Tensor column_sums(const at::Tensor& gradient) {
  if (gradient.scalar_type() != at::kBFloat16 || gradient.size(0) > kFewRows) {
    return gradient.sum(0, /*keepdim=*/false, at::kFloat);
  }
  at::Tensor sums = at::empty({gradient.size(1)}, gradient.options().dtype(at::kFloat));
  pair_loops().sum_rows(gradient.size(0), gradient.size(1), data<BFloat16>(gradient),
                        gradient.size(1), writable<float>(sums));
  return sums;
}

// --- float32 by tiles: the smaller factor is laid out --------------------------------------------

/// Of few rows: x beside the weight's, to the transpose, which is turned back.
at::Tensor product_in_tiles(const at::Tensor& x, const at::Tensor& weight,
                            const MaybeTensor& bias) {
  if (goes_by_rows(x, weight)) return implicit_gemm(x, weight, bias, pixels_of(x));
  const int64_t rows = x.size(0), outputs = weight.size(0);
  const at::Tensor product = implicit_gemm(weight, x, std::nullopt, pixels_of(weight));
  at::Tensor y = at::empty({rows, outputs}, x.options());
  const auto* const sums = data<float>(product);
  const auto* const added = data<float>(bias);
  const Scratch<float> turned(kBlockRows * rows);
  in_tasks(blocks(outputs, kBlockRows), [&](int64_t begin, int64_t end, int64_t task) {
    for (int64_t o = begin * kBlockRows; o < std::min(end * kBlockRows, outputs); o += kBlockRows) {
      store_transposed(std::min(kBlockRows, outputs - o), rows, sums + o * rows,
                       added == nullptr ? nullptr : added + o,
                       Block<float>{writable<float>(y) + o, outputs}, turned.of(task));
    }
  });
  return y;
}

at::Tensor gradient_of_x_in_tiles(const at::Tensor& gradient, const at::Tensor& weight) {
  if (!goes_by_rows(gradient, weight)) return gradient_of_x<float>(gradient, weight);
  at::Tensor result = at::empty({gradient.size(0), weight.size(1)}, gradient.options());
  implicit_gemm_of_images(gradient, weight, pixels_of(result), result, /*adds=*/false);
  return result;
}

/// Laid out as the weight.
at::Tensor gradient_of_weight_in_tiles(const at::Tensor& gradient, const at::Tensor& x,
                                       const at::Tensor& weight) {
  return weight.is_contiguous() ? implicit_gemm_of_weight(gradient, x, pixels_of(x))
                                : implicit_gemm_of_weight(x, gradient, pixels_of(gradient)).t();
}

}  // namespace

at::Tensor block_linear(const at::Tensor& x, const at::Tensor& weight, const MaybeTensor& bias) {
  check_factors(x, weight);
  TORCH_CHECK(!bias || (bias->sizes() == at::IntArrayRef({weight.size(0)}) &&
                        bias->scalar_type() == at::kFloat && bias->is_contiguous()),
              "block_linear: expected a float32 bias [", weight.size(0), "]");
  if (x.scalar_type() == at::kFloat) {
    return multiplies_float_tiles() ? product_in_tiles(x, weight, bias)
                                    : product<float>(x, weight, bias);
  }
  return goes_by_rows(x, weight) ? many_row_product(x, weight.t(), bias)
                                 : product<BFloat16>(x, weight, bias);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> block_linear_backward(const at::Tensor& gradient,
                                                                     const at::Tensor& x,
                                                                     const at::Tensor& weight,
                                                                     std::array<bool, 3> wanted) {
  check_factors(x, weight);
  TORCH_CHECK(gradient.sizes() == at::IntArrayRef({x.size(0), weight.size(0)}) &&
                  gradient.scalar_type() == x.scalar_type() && gradient.is_contiguous(),
              "block_linear: expected a gradient [", x.size(0), ", ", weight.size(0),
              "] without gaps in the format of x, ", x.scalar_type(), ", found ",
              gradient.scalar_type(), " ", gradient.sizes());
  const at::Tensor none;
  if (x.scalar_type() == at::kFloat && multiplies_float_tiles()) {
    return {wanted[0] ? gradient_of_x_in_tiles(gradient, weight) : none,
            wanted[1] ? gradient_of_weight_in_tiles(gradient, x, weight) : none,
            wanted[2] ? column_sums(gradient) : none};
  }
  if (goes_by_rows(x, weight)) {
    const at::Tensor of_x = wanted[0] ? many_row_product(gradient, weight, std::nullopt) : none;
    if (!wanted[1]) return {of_x, none, wanted[2] ? column_sums(gradient) : none};
    auto [of_weight, of_bias] = weight_gradients(gradient, x, !weight.is_contiguous(), wanted[2]);
    return {of_x, of_weight, of_bias};
  }
  const bool is_float = x.scalar_type() == at::kFloat;
  const auto of_x = is_float ? gradient_of_x<float> : gradient_of_x<BFloat16>;
  const auto of_weight = is_float ? gradient_of_weight<float> : gradient_of_weight<BFloat16>;
  return {wanted[0] ? of_x(gradient, weight) : none, wanted[1] ? of_weight(gradient, x) : none,
          wanted[2] ? column_sums(gradient) : none};
}

}  // namespace brim::nn::cpu
