// Attention of one head after the other, whose factors and blocks of scores a core's caches keep.
// Nothing of the size of the scores is kept for backward, which computes them again; sums are
// float32, weights and the scores' gradients are rounded on their way to the next product.
#include "framework/nn/fused/attention_cpu.h"

#include <ATen/ops/empty_like.h>

#include <cmath>

#include "framework/nn/fused/block_product_cpu.h"
#include "framework/nn/fused/loops/attention.h"

namespace brim::nn::cpu {
namespace {

using loops::kScoreColumns;

constexpr int64_t kScoreRows = 64;  // of scores: a block's most, an even number

const loops::AttentionLoops& attention_loops() {
  static const loops::AttentionLoops best = loops::attention_table(loops::best_isa());
  return best;
}

struct Shape {
  int64_t texts, length, heads, size;  // of one head

  int64_t width() const { return heads * size; }
  int64_t row() const { return 3 * width(); }
  int64_t even_length() const { return rounded_up(length, 2); }
  /// The stride of a block of scores for all tokens.
  int64_t stride() const { return rounded_up(length, kScoreColumns); }
  float scale() const { return static_cast<float>(1 / std::sqrt(static_cast<double>(size))); }
};

Shape shape_of(const at::Tensor& qkv, int64_t heads) {
  TORCH_CHECK(
      qkv.dim() == 3 && qkv.numel() > 0 && heads > 0 && qkv.size(2) % (6 * heads) == 0 &&
          qkv.scalar_type() == at::kBFloat16 && qkv.is_contiguous(),
      "self_attention: expected bfloat16 [N, L, 3 · W] without gaps, with an even number of "
      "values for each of ",
      heads, " heads, found ", qkv.scalar_type(), " ", qkv.sizes(), " with strides ",
      qkv.strides());
  return {qkv.size(0), qkv.size(1), heads, qkv.size(2) / (3 * heads)};
}

/// Where a head's rows begin in a tensor [N, L, parts · W]; `index` counts the heads of all texts.
template <class T>
T* head_rows(T* values, const Shape& shape, int64_t index, int64_t parts, int64_t part) {
  return values + index / shape.heads * shape.length * parts * shape.width() +
         part * shape.width() + index % shape.heads * shape.size;
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> self_attention(const at::Tensor& qkv, int64_t heads,
                                                  bool is_causal) {
  const Shape shape = shape_of(qkv, heads);
  const int64_t length = shape.length, size = shape.size, row = shape.row();
  at::Tensor out = at::empty({shape.texts, length, shape.width()}, qkv.options());
  at::Tensor log_sums = at::empty({shape.texts, heads, length}, qkv.options().dtype(at::kFloat));
  const auto* const in = data<BFloat16>(qkv);
  auto* const outputs = writable<BFloat16>(out);
  auto* const logs = writable<float>(log_sums);
  const Scratch<BFloat16> factors(2 * shape.even_length() * size);
  const Scratch<float> all_scores(kScoreRows * shape.stride());
  const Scratch<BFloat16> all_weights(kScoreRows * shape.stride());
  const Scratch<float> all_products(kScoreRows * (size + 1));
  in_tasks(shape.texts * heads, [&](int64_t begin, int64_t end, int64_t task) {
    BFloat16* const keys = factors.of(task);                     // [size/2, length, 2]
    BFloat16* const values = keys + shape.even_length() * size;  // [even length/2, size, 2]
    float* const scores = all_scores.of(task);
    BFloat16* const weights = all_weights.of(task);
    float* const products = all_products.of(task);
    float* const sums = products + kScoreRows * size;
    for (int64_t head = begin; head < end; ++head) {
      pair_loops().pair_transposed(length, size, head_rows(in, shape, head, 3, 1), row, keys);
      lay_out(length, size, {head_rows(in, shape, head, 3, 2), row}, values);
      const BFloat16* const queries = head_rows(in, shape, head, 3, 0);
      for (int64_t q = 0; q < length; q += kScoreRows) {
        const int64_t rows = std::min(kScoreRows, length - q);
        const int64_t seen = is_causal ? q + rows : length;
        const int64_t stride = rounded_up(seen, kScoreColumns);
        multiply(rows, seen, size, {queries + q * row, row}, {keys, length}, {scores, stride});
        attention_loops().softmax({rows, seen, shape.scale()}, is_causal ? q + 1 : length,
                                  is_causal ? 1 : 0, scores, weights, sums,
                                  logs + head * length + q);
        multiply(rows, size, rounded_up(seen, 2), {weights, stride}, {values, size},
                 {products, size});
        attention_loops().normalize(rows, size, products, sums,
                                    head_rows(outputs, shape, head, 1, 0) + q * shape.width(),
                                    shape.width());
      }
    }
  });
  return {out, log_sums};
}

at::Tensor self_attention_backward(const at::Tensor& gradient, const at::Tensor& qkv,
                                   const at::Tensor& out, const at::Tensor& log_sums, int64_t heads,
                                   bool is_causal) {
  const Shape shape = shape_of(qkv, heads);
  const int64_t length = shape.length, size = shape.size, row = shape.row();
  const int64_t width = shape.width(), even_length = shape.even_length();
  for (const at::Tensor& one : {gradient, out}) {
    TORCH_CHECK(one.sizes() == at::IntArrayRef({shape.texts, length, width}) &&
                    one.scalar_type() == at::kBFloat16 && one.is_contiguous(),
                "self_attention: expected bfloat16 outputs and gradients [", shape.texts, ", ",
                length, ", ", width, "] without gaps, found ", one.scalar_type(), " ", one.sizes());
  }
  TORCH_CHECK(log_sums.sizes() == at::IntArrayRef({shape.texts, heads, length}) &&
                  log_sums.scalar_type() == at::kFloat && log_sums.is_contiguous(),
              "self_attention: expected float32 sums [", shape.texts, ", ", heads, ", ", length,
              "], found ", log_sums.scalar_type(), " ", log_sums.sizes());
  at::Tensor result = at::empty_like(qkv);
  const auto* const in = data<BFloat16>(qkv);
  const auto* const outputs = data<BFloat16>(out);
  const auto* const of_outputs = data<BFloat16>(gradient);
  const auto* const logs = data<float>(log_sums);
  auto* const of_in = writable<BFloat16>(result);
  const Scratch<BFloat16> factors(4 * even_length * size + kScoreRows * size);
  const Scratch<float> all_of_queries(length * size);
  const Scratch<float> of_rows(2 * shape.stride());
  const Scratch<float> all_scores(2 * kScoreRows * shape.stride());
  const Scratch<BFloat16> all_weights(3 * kScoreRows * shape.stride());
  const Scratch<float> all_products(kScoreRows * size);
  in_tasks(shape.texts * heads, [&](int64_t begin, int64_t end, int64_t task) {
    const int64_t factor = even_length * size, block = kScoreRows * shape.stride();
    BFloat16* const turned_queries = factors.of(task);           // [size/2, length, 2]
    BFloat16* const turned_gradients = turned_queries + factor;  // the same
    BFloat16* const queries = turned_gradients + factor;         // [even length/2, size, 2]
    BFloat16* const gradients = queries + factor;                // the same
    BFloat16* const keys = gradients + factor;                   // a block's, in pairs too
    float* const of_queries = all_of_queries.of(task);
    float* const row_logs = of_rows.of(task);
    float* const row_dots = row_logs + shape.stride();
    float* const scores = all_scores.of(task);
    float* const of_weights = scores + block;
    BFloat16* const weights = all_weights.of(task);
    BFloat16* const of_scores = weights + block;
    BFloat16* const turned = of_scores + block;
    float* const products = all_products.of(task);
    for (int64_t head = begin; head < end; ++head) {
      const Block<const BFloat16> q = {head_rows(in, shape, head, 3, 0), row};
      const BFloat16* const k = head_rows(in, shape, head, 3, 1);
      const BFloat16* const v = head_rows(in, shape, head, 3, 2);
      const Block<const BFloat16> g = {head_rows(of_outputs, shape, head, 1, 0), width};
      pair_loops().pair_transposed(length, size, q.values, row, turned_queries);
      pair_loops().pair_transposed(length, size, g.values, width, turned_gradients);
      lay_out(length, size, q, queries);
      lay_out(length, size, g, gradients);
      attention_loops().dots(length, size, g.values, width, head_rows(outputs, shape, head, 1, 0),
                             width, row_dots);
      std::copy_n(logs + head * length, length, row_logs);
      for (int64_t first = 0; first < length; first += kScoreRows) {
        const int64_t rows = std::min(kScoreRows, length - first), even_rows = rounded_up(rows, 2);
        const int64_t unseen = is_causal ? first : 0;  // queries before the first that sees one
        const int64_t columns = length - unseen, even_columns = rounded_up(columns, 2);
        const int64_t stride = rounded_up(columns, kScoreColumns);
        multiply(rows, columns, size, {k + first * row, row}, {turned_queries + 2 * unseen, length},
                 {scores, stride});
        multiply(rows, columns, size, {v + first * row, row},
                 {turned_gradients + 2 * unseen, length}, {of_weights, stride});
        attention_loops().gradients({rows, columns, shape.scale()}, is_causal ? 1 : 0, scores,
                                    of_weights, row_logs + unseen, row_dots + unseen, weights,
                                    of_scores);
        if (rows < even_rows) std::fill_n(of_scores + rows * stride, stride, BFloat16{});

        multiply(rows, size, even_columns, {weights, stride}, {gradients + unseen * size, size},
                 {products, size});
        round_rows(rows, size, products, {head_rows(of_in, shape, head, 3, 2) + first * row, row});
        multiply(rows, size, even_columns, {of_scores, stride}, {queries + unseen * size, size},
                 {products, size});
        round_rows(rows, size, products, {head_rows(of_in, shape, head, 3, 1) + first * row, row});
        pair_loops().transpose(even_rows, even_columns, of_scores, stride, turned, even_rows);
        lay_out(rows, size, {k + first * row, row}, keys);
        multiply(columns, size, even_rows, {turned, even_rows}, {keys, size},
                 {of_queries + unseen * size, size}, /*adds=*/first > 0);
      }
      round_rows(length, size, of_queries, {head_rows(of_in, shape, head, 3, 0), row});
    }
  });
  return result;
}

}  // namespace brim::nn::cpu
