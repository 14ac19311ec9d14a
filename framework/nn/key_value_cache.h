// Keys and values that attention has computed for the tokens of some texts, so that a further token
// takes a pass over one position instead of all (transformers' past_key_values). Which texts are in
// which rows is the caller's (train/inference/next_logits.h).
//
// Shapes: N texts of a pass, T new tokens of each, S tokens up to and including them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace brim::nn {

class KeyValueCache {
 public:
  /// For so many texts of up to `capacity` tokens. Memory for all of them is taken once, by the
  /// first pass, in the format that attention computes in.
  KeyValueCache(int64_t rows, int64_t capacity);

  /// Tokens of a row's text that are in the cache.
  int64_t length(int64_t row) const { return lengths_[static_cast<size_t>(row)]; }
  /// The row is empty again.
  void clear(int64_t row) { lengths_[static_cast<size_t>(row)] = 0; }
  /// Row `to` becomes a copy of row `from`.
  void copy_row(int64_t from, int64_t to);

 private:
  friend class CachedPass;

  struct Layer {
    at::Tensor keys, values;  // [rows, capacity, width]
  };

  int64_t capacity_;
  std::vector<int64_t> lengths_;  // by row
  std::vector<Layer> layers_;
};

/// A pass of a model over the next tokens of texts that have neighbouring rows: each layer's
/// attention calls extend() once, in the same order in every pass, and the model commit() at the
/// end. A pass that is not committed leaves the texts as they were.
class CachedPass {
 public:
  /// `tokens` [N, T] follow what is in the rows from `first_row` on.
  CachedPass(KeyValueCache& cache, int64_t first_row, const at::Tensor& tokens);

  /// Of the tokens in their texts, int64 [N, T].
  const at::Tensor& positions() const { return positions_; }
  /// What each token may look at: bool [N, 1, T, S]; undefined where is_causal(), or where all of
  /// them may look at everything.
  const at::Tensor& mask() const { return mask_; }
  /// Whether the rows were empty: attention is then that of a pass without a cache.
  bool is_causal() const { return is_causal_; }

  /// Stores a layer's keys and values [N, T, width], and returns those of all tokens [N, S, width].
  /// What lies behind a shorter text's end is any finite number; mask() leaves it out.
  std::pair<at::Tensor, at::Tensor> extend(const at::Tensor& keys, const at::Tensor& values);

  void commit();

 private:
  KeyValueCache& cache_;
  int64_t first_row_, count_, new_tokens_, seen_ = 0;  // N, T and S
  bool is_causal_ = false;
  at::Tensor positions_, mask_;
  at::Tensor places_;  // of the tokens in the rows' memory, int64 [N * T]
  size_t next_layer_ = 0;
};

/// A text model that can continue texts by a cache, beside its forward().
class IncrementalDecoder {
 public:
  virtual ~IncrementalDecoder() = default;
  /// Logits [N, V] of the token that follows the last of `tokens`, int64 [N, T], which follow what
  /// is in the cache's rows from `first_row` on; adds them to it. In evaluation mode, without
  /// gradients, and with no more tokens in a row than the model's context and the cache's capacity.
  virtual at::Tensor forward_next(const at::Tensor& tokens, KeyValueCache& cache,
                                  int64_t first_row) = 0;
};

}  // namespace brim::nn
