// Attention of one head after the other, whose factors and blocks of scores a core's caches keep.
// Nothing of the size of the scores is kept for backward, which computes them again; sums are
// float32, bfloat16's weights and scores' gradients are rounded on their way to the next product.
#include "framework/nn/fused/attention_cpu.h"

#include <ATen/ops/empty_like.h>

#include <cmath>

#include "framework/nn/fused/block_product_cpu.h"
#include "framework/nn/fused/loops/attention.h"

namespace brim::nn::cpu {
namespace {

using loops::kScoreColumns;

// A block's most, an even number; of float32 a multiple of a tile's.
template <class T>
constexpr int64_t kScoreRows = kRounds<T> ? 64 : 8 * loops::kTileRows;

template <class T>
const loops::AttentionLoops<T>& attention_loops() {
  static const loops::AttentionTable best = loops::attention_table(loops::best_isa());
  return best.of<T>();
}

/// Where a block of scores is kept as T: float32 stays in place.
template <class T>
T* kept_as(float* scores, T* rounded) {
  if constexpr (kRounds<T>) {
    return rounded;
  } else {
    return scores;
  }
}

struct Shape {
  int64_t texts, length, heads, size;  // of one head

  int64_t width() const { return heads * size; }
  int64_t row() const { return 3 * width(); }
  /// The stride of a block of scores for all tokens.
  int64_t stride() const { return rounded_up(length, kScoreColumns); }
  float scale() const { return static_cast<float>(1 / std::sqrt(static_cast<double>(size))); }
};

Shape shape_of(const at::Tensor& qkv, int64_t heads) {
  const bool is_float = qkv.scalar_type() == at::kFloat;
  TORCH_CHECK(
      qkv.dim() == 3 && qkv.numel() > 0 && heads > 0 &&
          qkv.size(2) % ((is_float ? 3 : 6) * heads) == 0 &&
          (is_float || qkv.scalar_type() == at::kBFloat16) && qkv.is_contiguous(),
      "self_attention: expected float32 [N, L, 3 · W] without gaps, with as many values for "
      "each of ",
      heads, " heads, or bfloat16 with an even number of them, found ", qkv.scalar_type(), " ",
      qkv.sizes(), " with strides ", qkv.strides());
  return {qkv.size(0), qkv.size(1), heads, qkv.size(2) / (3 * heads)};
}

/// Where a head's rows begin in a tensor [N, L, parts · W]; `index` counts the heads of all texts.
template <class T>
T* head_rows(T* values, const Shape& shape, int64_t index, int64_t parts, int64_t part) {
  return values + index / shape.heads * shape.length * parts * shape.width() +
         part * shape.width() + index % shape.heads * shape.size;
}

void store_rows(int64_t rows, int64_t columns, const float* from, Block<BFloat16> to) {
  round_rows(rows, columns, from, to);
}
void store_rows(int64_t rows, int64_t columns, const float* from, Block<float> to) {
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(from + row * columns, columns, to.values + row * to.stride);
  }
}

template <class T>
std::tuple<at::Tensor, at::Tensor> attend(const at::Tensor& qkv, const Shape& shape,
                                          bool is_causal) {
  constexpr int64_t kRows = kScoreRows<T>;
  const auto& loops = attention_loops<T>();
  const int64_t heads = shape.heads, length = shape.length, size = shape.size, row = shape.row();
  at::Tensor out = at::empty({shape.texts, length, shape.width()}, qkv.options());
  at::Tensor log_sums = at::empty({shape.texts, heads, length}, qkv.options().dtype(at::kFloat));
  const auto* const in = data<T>(qkv);
  auto* const outputs = writable<T>(out);
  auto* const logs = writable<float>(log_sums);
  const int64_t of_keys = RightFactor<T>::values(size, length);
  const Scratch<T> factors(of_keys + RightFactor<T>::values(length, size));
  const Scratch<float> all_scores(kRows * shape.stride());
  const Scratch<T> all_weights(kRounds<T> ? kRows * shape.stride() : 0);
  const Scratch<float> all_products(kRows * (size + 1));
  in_tasks(shape.texts * heads, [&](int64_t begin, int64_t end, int64_t task) {
    const RightFactor<T> keys(factors.of(task), size, length);
    const RightFactor<T> values(factors.of(task) + of_keys, length, size);
    float* const scores = all_scores.of(task);
    T* const weights = kept_as<T>(scores, all_weights.of(task));
    float* const products = all_products.of(task);
    float* const sums = products + kRows * size;
    for (int64_t head = begin; head < end; ++head) {
      keys.take_transposed({head_rows(in, shape, head, 3, 1), row});
      values.take({head_rows(in, shape, head, 3, 2), row});
      const T* const queries = head_rows(in, shape, head, 3, 0);
      for (int64_t q = 0; q < length; q += kRows) {
        const int64_t rows = std::min(kRows, length - q);
        const int64_t seen = is_causal ? q + rows : length;
        const int64_t stride = rounded_up(seen, kScoreColumns);
        keys.multiply(rows, seen, size, {queries + q * row, row}, 0, 0, {scores, stride});
        loops.softmax({rows, seen, shape.scale()}, is_causal ? q + 1 : length, is_causal ? 1 : 0,
                      scores, weights, sums, logs + head * length + q);
        values.multiply(rows, size, rounded_up(seen, kSideBySide<T>), {weights, stride}, 0, 0,
                        {products, size});
        loops.normalize(rows, size, products, sums,
                        head_rows(outputs, shape, head, 1, 0) + q * shape.width(), shape.width());
      }
    }
  });
  return {out, log_sums};
}

template <class T>
at::Tensor gradient_of_attention(const at::Tensor& gradient, const at::Tensor& qkv,
                                 const at::Tensor& out, const at::Tensor& log_sums,
                                 const Shape& shape, bool is_causal) {
  constexpr int64_t kRows = kScoreRows<T>;
  const auto& loops = attention_loops<T>();
  const int64_t heads = shape.heads, length = shape.length, size = shape.size, row = shape.row();
  const int64_t width = shape.width();
  at::Tensor result = at::empty_like(qkv);
  const auto* const in = data<T>(qkv);
  const auto* const outputs = data<T>(out);
  const auto* const of_outputs = data<T>(gradient);
  const auto* const logs = data<float>(log_sums);
  auto* const of_in = writable<T>(result);
  const int64_t turned_values = RightFactor<T>::values(size, length);
  const int64_t values = RightFactor<T>::values(length, size), block = kRows * shape.stride();
  const Scratch<T> factors(2 * turned_values + 2 * values + RightFactor<T>::values(kRows, size));
  const Scratch<float> all_of_queries(length * size);
  const Scratch<float> of_rows(2 * shape.stride());
  const Scratch<float> all_scores(2 * block);
  const Scratch<T> all_weights((kRounds<T> ? 3 : 1) * block);
  const Scratch<float> all_products(kRows * size);
  in_tasks(shape.texts * heads, [&](int64_t begin, int64_t end, int64_t task) {
    T* memory = factors.of(task);
    const auto factor = [&](int64_t depth, int64_t columns) {
      const RightFactor<T> made(memory, depth, columns);
      memory += RightFactor<T>::values(depth, columns);
      return made;
    };
    const RightFactor<T> turned_queries = factor(size, length);
    const RightFactor<T> turned_gradients = factor(size, length);
    const RightFactor<T> queries = factor(length, size), gradients = factor(length, size);
    T* const memory_of_keys = memory;  // of a block
    float* const of_queries = all_of_queries.of(task);
    float* const row_logs = of_rows.of(task);
    float* const row_dots = row_logs + shape.stride();
    float* const scores = all_scores.of(task);
    float* const of_weights = scores + block;
    T* const turned = all_weights.of(task);
    T* const weights = kept_as<T>(scores, turned + block);
    T* const of_scores = kept_as<T>(of_weights, turned + 2 * block);
    float* const products = all_products.of(task);
    for (int64_t head = begin; head < end; ++head) {
      const Block<const T> q = {head_rows(in, shape, head, 3, 0), row};
      const T* const k = head_rows(in, shape, head, 3, 1);
      const T* const v = head_rows(in, shape, head, 3, 2);
      const Block<const T> g = {head_rows(of_outputs, shape, head, 1, 0), width};
      turned_queries.take_transposed(q);
      turned_gradients.take_transposed(g);
      queries.take(q);
      gradients.take(g);
      loops.dots(length, size, g.values, width, head_rows(outputs, shape, head, 1, 0), width,
                 row_dots);
      std::copy_n(logs + head * length, length, row_logs);
      for (int64_t first = 0; first < length; first += kRows) {
        const int64_t rows = std::min(kRows, length - first);
        const int64_t depth_of_rows = rounded_up(rows, kSideBySide<T>);
        const int64_t unseen = is_causal ? first : 0;  // queries before the first that sees one
        const int64_t columns = length - unseen, depth = rounded_up(columns, kSideBySide<T>);
        const int64_t stride = rounded_up(columns, kScoreColumns);
        turned_queries.multiply(rows, columns, size, {k + first * row, row}, 0, unseen,
                                {scores, stride});
        turned_gradients.multiply(rows, columns, size, {v + first * row, row}, 0, unseen,
                                  {of_weights, stride});
        loops.gradients({rows, columns, shape.scale()}, is_causal ? 1 : 0, scores, of_weights,
                        row_logs + unseen, row_dots + unseen, weights, of_scores);
        if (rows < depth_of_rows) std::fill_n(of_scores + rows * stride, stride, T{});

        const auto store_product = [&](const T* left, const RightFactor<T>& right, int64_t part) {
          right.multiply(rows, size, depth, {left, stride}, unseen, 0, {products, size});
          store_rows(rows, size, products,
                     {head_rows(of_in, shape, head, 3, part) + first * row, row});
        };
        store_product(weights, gradients, 2);
        store_product(of_scores, queries, 1);
        transpose(depth_of_rows, depth, Block<const T>{of_scores, stride}, turned, depth_of_rows);
        const RightFactor<T> keys(memory_of_keys, rows, size);
        keys.take({k + first * row, row});
        keys.multiply(columns, size, depth_of_rows, {turned, depth_of_rows}, 0, 0,
                      {of_queries + unseen * size, size}, /*adds=*/first > 0);
      }
      store_rows(length, size, of_queries, {head_rows(of_in, shape, head, 3, 0), row});
    }
  });
  return result;
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> self_attention(const at::Tensor& qkv, int64_t heads,
                                                  bool is_causal) {
  const Shape shape = shape_of(qkv, heads);
  return qkv.scalar_type() == at::kFloat ? attend<float>(qkv, shape, is_causal)
                                         : attend<BFloat16>(qkv, shape, is_causal);
}

at::Tensor self_attention_backward(const at::Tensor& gradient, const at::Tensor& qkv,
                                   const at::Tensor& out, const at::Tensor& log_sums, int64_t heads,
                                   bool is_causal) {
  const Shape shape = shape_of(qkv, heads);
  const int64_t width = shape.width();
  for (const at::Tensor& one : {gradient, out}) {
    TORCH_CHECK(one.sizes() == at::IntArrayRef({shape.texts, shape.length, width}) &&
                    one.scalar_type() == qkv.scalar_type() && one.is_contiguous(),
                "self_attention: expected ", qkv.scalar_type(), " outputs and gradients [",
                shape.texts, ", ", shape.length, ", ", width, "] without gaps, found ",
                one.scalar_type(), " ", one.sizes());
  }
  TORCH_CHECK(log_sums.sizes() == at::IntArrayRef({shape.texts, heads, shape.length}) &&
                  log_sums.scalar_type() == at::kFloat && log_sums.is_contiguous(),
              "self_attention: expected float32 sums [", shape.texts, ", ", heads, ", ",
              shape.length, "], found ", log_sums.scalar_type(), " ", log_sums.sizes());
  return qkv.scalar_type() == at::kFloat
             ? gradient_of_attention<float>(gradient, qkv, out, log_sums, shape, is_causal)
             : gradient_of_attention<BFloat16>(gradient, qkv, out, log_sums, shape, is_causal);
}

}  // namespace brim::nn::cpu
