// Of a panel of tokens, the exponentials of all logits are kept, relative to their block's highest,
// in x's format: once their sums are known they become the logits' gradients, block by block, each
// multiplied twice while a core's caches have it. Sums are float32, in an order that does not
// depend on the number of threads.
#include "framework/nn/fused/linear_cross_entropy_cpu.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#include <type_traits>

#include "framework/nn/fused/block_product_cpu.h"
#include "framework/nn/fused/cross_entropy_cpu.h"
#include "framework/nn/fused/loops/linear_cross_entropy.h"
#include "framework/nn/fused/weight_gradient_cpu.h"

namespace brim::nn::cpu {
namespace {

using loops::kBlockTokens;

constexpr int64_t kBlockClasses = 128;
constexpr int64_t kPanelTokens = 1024;   // at most, a multiple of kBlockTokens
constexpr int64_t kProductColumns = 64;  // of the weight's gradient
constexpr int64_t kMaxChunks = 32;       // of classes, each with a sum for the gradient of x

/// To the transpose, rounded.
void round_transposed(int64_t rows, int64_t columns, const float* from, BFloat16* to) {
  pair_loops().round_transposed(rows, columns, from, /*bias=*/nullptr, to, rows);
}
void round_transposed(int64_t rows, int64_t columns, const float* from, float* to) {
  lay_out_transposed(rows, columns, {from, columns}, to);
}

/// f(i, task) for each of 0 … count.
template <class F>
void for_each_in_tasks(int64_t count, const F& f) {
  in_tasks(count, [&](int64_t begin, int64_t end, int64_t task) {
    for (int64_t i = begin; i < end; ++i) f(i, task);
  });
}

/// Rows of the weight and of logits.
struct Classes {
  int64_t first, count;
};

/// Of x stored as X; `Factor` is what products take.
template <class X, class Factor>
class LossOfTokens {
 public:
  LossOfTokens(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
               int64_t ignore_index, std::array<bool, 2> wanted)
      : x_(x.to(kFactor)),
        labels_(data<int64_t>(labels)),
        ignore_index_(ignore_index),
        width_(x.size(1)),
        classes_(weight.size(0)),
        share_(1 / static_cast<double>(std::max<int64_t>(
                       1, x.size(0) - std::count(labels_, labels_ + x.size(0), ignore_index)))),
        weight_(weight.to(kFactor)),
        stride_(rounded_up(std::min(x.size(0), kPanelTokens), kBlockTokens)),
        columns_(at::empty({stride_ * width_}, x_.options())),
        rows_(at::empty({RightFactor<Factor>::values(stride_, width_)}, x_.options())),
        of_tokens_(at::empty({3, stride_}, weight.options())),
        of_blocks_(at::empty({2, blocks(classes_, kBlockClasses), stride_}, weight.options())) {
    if (wanted[0]) of_x_ = at::empty(x.sizes(), x.options());
    if (wanted[1]) of_weight_ = at::empty(weight.sizes(), weight.options());
    if (wanted[0] || wanted[1]) exponentials_ = at::empty({classes_, stride_}, x.options());
    if (wanted[0]) {
      sums_of_x_ = at::empty({chunks(), stride_ * width_}, weight.options());
    }
  }

  void add(int64_t first, int64_t tokens) {
    first_ = first;
    tokens_ = tokens;
    lay_out_tokens();
    take_exponentials();
    merge_blocks();
    if (!exponentials_.defined()) return;
    take_gradients();
    if (of_x_.defined()) store_gradient_of_x();
  }

  double loss() const { return loss_ * share_; }
  const at::Tensor& of_x() const { return of_x_; }
  const at::Tensor& of_weight() const { return of_weight_; }

 private:
  using Operand = Block<const Factor>;
  /// Classes as a product over them takes them.
  static int64_t even(int64_t classes) { return rounded_up(classes, kSideBySide<Factor>); }
  static constexpr at::ScalarType kFactor =
      std::is_same_v<Factor, float> ? at::kFloat : at::kBFloat16;

  int64_t block_count() const { return blocks(classes_, kBlockClasses); }
  Classes block(int64_t index) const {
    const int64_t first = index * kBlockClasses;
    return {first, std::min(kBlockClasses, classes_ - first)};
  }
  int64_t chunks() const { return std::min(kMaxChunks, block_count()); }
  int64_t groups() const { return blocks(tokens_, kBlockTokens); }

  /// f(token, row in the block) for the tokens of a group, or of all, whose label is there.
  template <class F>
  void for_each_label(Classes block, int64_t begin, int64_t end, const F& f) const {
    for (int64_t token = begin; token < std::min(end, tokens_); ++token) {
      const int64_t label = labels_[first_ + token];
      if (label >= block.first && label < block.first + block.count && label != ignore_index_)
        f(token, label - block.first);
    }
  }

  // The tokens of a panel, in groups of kBlockTokens whose last one is filled up with zeros.

  /// Of a group: [W, kBlockTokens].
  RightFactor<Factor> columns(int64_t group) const {
    return {writable<Factor>(columns_) + group * kBlockTokens * width_, width_, kBlockTokens};
  }
  /// Of all: [tokens, W].
  RightFactor<Factor> rows() const { return {writable<Factor>(rows_), stride_, width_}; }
  const Factor* weight(Classes block) const { return data<Factor>(weight_) + block.first * width_; }
  float* label_logits() const { return writable<float>(of_tokens_); }
  float* log_sums() const { return label_logits() + stride_; }
  float* shares() const { return log_sums() + stride_; }
  /// Of a block's tokens: the highest logits, later the factors of the exponentials.
  float* highest(int64_t block) const { return writable<float>(of_blocks_) + block * stride_; }
  float* sums(int64_t block) const { return highest(block_count() + block); }
  X* exponentials(Classes block) const {
    return writable<X>(exponentials_) + block.first * stride_;
  }
  /// A chunk's sum for the gradients of a group's tokens: [W, kBlockTokens].
  float* sum_of_x(int64_t chunk, int64_t group) const {
    return writable<float>(sums_of_x_) + (chunk * stride_ + group * kBlockTokens) * width_;
  }

  void lay_out_tokens() {
    const Scratch<Factor> last_group(kBlockTokens * width_);
    for_each_in_tasks(groups(), [&](int64_t group, int64_t task) {
      const int64_t begin = group * kBlockTokens, count = std::min(kBlockTokens, tokens_ - begin);
      const Factor* from = data<Factor>(x_) + (first_ + begin) * width_;
      if (count < kBlockTokens) {
        Factor* const filled = last_group.of(task);
        std::fill_n(std::copy_n(from, count * width_, filled), (kBlockTokens - count) * width_,
                    Factor{});
        from = filled;
      }
      columns(group).take_transposed({from, width_});
      rows().take_rows(begin, kBlockTokens, {from, width_});
      for (int64_t token = begin; token < begin + kBlockTokens; ++token) {
        const bool counts = token < tokens_ && labels_[first_ + token] != ignore_index_;
        shares()[token] = counts ? static_cast<float>(share_) : 0.F;
      }
    });
  }

  void take_exponentials() {
    const Scratch<float> all_logits(kBlockClasses * kBlockTokens);
    const Scratch<X> unused(kBlockClasses * kBlockTokens);
    for_each_in_tasks(block_count(), [&](int64_t index, int64_t task) {
      const Classes of = block(index);
      float* const logits = all_logits.of(task);
      for (int64_t t = 0; t < groups() * kBlockTokens; t += kBlockTokens) {
        columns(t / kBlockTokens)
            .multiply(of.count, kBlockTokens, width_, {weight(of), width_}, 0, 0,
                      {logits, kBlockTokens});
        for_each_label(of, t, t + kBlockTokens, [&](int64_t token, int64_t row) {
          label_logits()[token] = logits[row * kBlockTokens + token - t];
        });
        const bool are_kept = exponentials_.defined();
        loops::linear_cross_entropy_loops<X>().exponentials(
            of.count, logits, highest(index) + t, sums(index) + t,
            are_kept ? exponentials(of) + t : unused.of(task), are_kept ? stride_ : kBlockTokens);
      }
    });
  }

  void merge_blocks() {
    for_each_in_tasks(groups(), [&](int64_t group, int64_t /*task*/) {
      const int64_t t = group * kBlockTokens;
      loops::linear_cross_entropy_loops<X>().merge(block_count(), stride_, sums(0) + t,
                                                   shares() + t, highest(0) + t, log_sums() + t);
    });
    for (int64_t token = 0; token < tokens_; ++token) {
      if (shares()[token] > 0) loss_ += double{log_sums()[token]} - double{label_logits()[token]};
    }
  }

  void take_gradients() {
    const int64_t depth = groups() * kBlockTokens;
    const Scratch<Factor> all_gradients(kBlockClasses * stride_);
    const Scratch<Factor> all_laid_out(kBlockClasses * width_);
    for_each_in_tasks(chunks(), [&](int64_t chunk, int64_t task) {
      const int64_t begin = block_count() * chunk / chunks();
      const int64_t end = block_count() * (chunk + 1) / chunks();
      for (int64_t index = begin; index < end; ++index) {
        const Classes of = block(index);
        const Factor* left = nullptr;   // the logits' gradients [classes, depth]
        const Factor* right = nullptr;  // the same as a right factor, in bfloat16 group by group
        int64_t left_stride = 0;
        Factor* const gradients = all_gradients.of(task);
        if constexpr (std::is_same_v<Factor, BFloat16>) {
          X* const in_place = exponentials(of);
          scale(of, depth, highest(index), in_place, stride_);
          left = in_place, left_stride = stride_;
          for (int64_t t = 0; of_x_.defined() && t < depth; t += kBlockTokens) {
            lay_out(of.count, kBlockTokens, {in_place + t, stride_},
                    gradients + t * even(of.count));
          }
          right = gradients;
        } else {
          scale(of, depth, highest(index), gradients, depth);
          left = right = gradients, left_stride = depth;
        }
        if (of_weight_.defined()) add_to_weight(of, depth, {left, left_stride});
        if (of_x_.defined())
          add_to_x(of, depth, right, all_laid_out.of(task), chunk, /*adds=*/index > begin);
      }
    });
  }

  /// The exponentials of a block to gradients.
  void scale(Classes of, int64_t depth, const float* factors, Factor* to, int64_t to_stride) const {
    const auto& loop = loops::linear_cross_entropy_loops<X>();
    if constexpr (std::is_same_v<X, Factor>) {
      loop.scale(of.count, depth, factors, exponentials(of), stride_, to, to_stride);
    } else {
      loop.scale_to_float(of.count, depth, factors, exponentials(of), stride_, to, to_stride);
    }
    for_each_label(of, 0, tokens_, [&](int64_t token, int64_t row) {
      Factor& gradient = to[row * to_stride + token];
      loops::store(loops::wide(gradient) - shares()[token], &gradient);
    });
  }

  void add_to_weight(Classes of, int64_t depth, Operand gradients) const {
    float* const to = writable<float>(of_weight_) + of.first * width_;
    const int64_t together = RightFactor<Factor>::is_in_tiles() ? width_ : kProductColumns;
    for (int64_t i = 0; i < width_; i += together) {
      rows().multiply(of.count, std::min(together, width_ - i), depth, gradients, 0, i,
                      {to + i, width_}, /*adds=*/first_ > 0);
    }
  }

  /// `laid_out` has room for the block's weight.
  void add_to_x(Classes of, int64_t depth, const Factor* gradients, Factor* laid_out, int64_t chunk,
                bool adds) const {
    if constexpr (std::is_same_v<Factor, BFloat16>) {
      if (multiplies_over_rows()) {
        add_over_rows(of, depth, gradients, laid_out, chunk, adds);
        return;
      }
    }
    const int64_t classes = even(of.count);
    transpose(of.count, width_, Operand{weight(of), width_}, laid_out, classes);
    for (int64_t t = 0; t < depth; t += kBlockTokens) {
      const Operand group = std::is_same_v<Factor, float>
                                ? Operand{gradients + t, depth}
                                : Operand{gradients + t * classes, kBlockTokens};
      multiply(width_, kBlockTokens, classes, Operand{laid_out, classes}, group,
               {sum_of_x(chunk, t / kBlockTokens), kBlockTokens}, adds);
    }
  }

  /// The same by the product of the weight and the gradients over their rows, the classes.
  void add_over_rows(Classes of, int64_t depth, const BFloat16* gradients, BFloat16* laid_out,
                     int64_t chunk, bool adds) const {
    const int64_t classes = even(of.count);
    for (int64_t i = 0; i < width_; i += kPanelColumns) {
      lay_out(of.count, std::min(kPanelColumns, width_ - i),
              Block<const BFloat16>{weight(of) + i, width_}, laid_out + i * classes);
    }
    for (int64_t t = 0; t < depth; t += kBlockTokens) {
      for (int64_t i = 0; i < width_; i += kPanelColumns) {
        const int64_t columns = std::min(kPanelColumns, width_ - i);
        pair_loops().multiply_over_rows(
            {.rows = columns,
             .columns = kBlockTokens,
             .pairs = classes / 2,
             .left = laid_out + i * classes,
             .left_stride = 2 * columns,
             .right = gradients + t * classes,
             .right_stride = 2 * kBlockTokens,
             .sum = sum_of_x(chunk, t / kBlockTokens) + i * kBlockTokens,
             .sum_stride = kBlockTokens,
             .adds = adds,
             .ahead = gradients + t * classes,
             .ahead_stride = 0});
      }
    }
  }

  void store_gradient_of_x() const {
    const int64_t values = kBlockTokens * width_;
    const Scratch<X> rounded(values);
    for_each_in_tasks(groups(), [&](int64_t group, int64_t task) {
      float* const sum = sum_of_x(0, group);
      for (int64_t chunk = 1; chunk < chunks(); ++chunk) {
        const float* const part = sum_of_x(chunk, group);
        for (int64_t i = 0; i < values; ++i) sum[i] += part[i];
      }
      round_transposed(width_, kBlockTokens, sum, rounded.of(task));
      const int64_t begin = group * kBlockTokens, count = std::min(kBlockTokens, tokens_ - begin);
      std::copy_n(rounded.of(task), count * width_, writable<X>(of_x_) + (first_ + begin) * width_);
    });
  }

  at::Tensor x_;
  const int64_t* labels_;
  int64_t ignore_index_, width_, classes_;
  double share_;  // of each token in the mean
  at::Tensor weight_;
  at::Tensor of_x_, of_weight_;
  double loss_ = 0;

  // A panel's:
  int64_t first_ = 0, tokens_ = 0;
  int64_t stride_;  // tokens, rounded up
  at::Tensor columns_, rows_, of_tokens_, of_blocks_, exponentials_, sums_of_x_;
};

template <class X, class Factor>
std::tuple<at::Tensor, at::Tensor, at::Tensor> loss_of_panels(const at::Tensor& x,
                                                              const at::Tensor& weight,
                                                              const at::Tensor& labels,
                                                              int64_t ignore_index,
                                                              std::array<bool, 2> wanted) {
  LossOfTokens<X, Factor> loss(x, weight, labels, ignore_index, wanted);
  for (int64_t first = 0; first < x.size(0); first += kPanelTokens) {
    loss.add(first, std::min(kPanelTokens, x.size(0) - first));
  }
  return {at::scalar_tensor(loss.loss(), weight.options()), loss.of_x(), loss.of_weight()};
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> linear_cross_entropy(
    const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels, int64_t ignore_index,
    bool upcasts, std::array<bool, 2> wanted) {
  const bool is_float = x.scalar_type() == at::kFloat;
  TORCH_CHECK(x.dim() == 2 && weight.dim() == 2 && x.numel() > 0 && weight.numel() > 0 &&
                  x.size(1) == weight.size(1) && (is_float || x.scalar_type() == at::kBFloat16) &&
                  (is_float || upcasts || x.size(1) % 2 == 0) &&
                  weight.scalar_type() == at::kFloat && x.is_contiguous() && weight.is_contiguous(),
              "linear_cross_entropy: expected float32 or bfloat16 x [N, W] and a float32 weight "
              "[V, W] without gaps, with an even W where bfloat16 is multiplied, found ",
              x.scalar_type(), " ", x.sizes(), " with strides ", x.strides(), " and ",
              weight.scalar_type(), " ", weight.sizes(), " with strides ", weight.strides());
  TORCH_CHECK(labels.sizes() == at::IntArrayRef({x.size(0)}) && labels.scalar_type() == at::kLong &&
                  labels.is_contiguous(),
              "linear_cross_entropy: expected int64 labels [", x.size(0), "], found ",
              labels.scalar_type(), " ", labels.sizes());
  check_labels(data<int64_t>(labels), x.size(0), weight.size(0), ignore_index);
  const auto loss = is_float  ? &loss_of_panels<float, float>
                    : upcasts ? &loss_of_panels<BFloat16, float>
                              : &loss_of_panels<BFloat16, BFloat16>;
  return loss(x, weight, labels, ignore_index, wanted);
}

}  // namespace brim::nn::cpu
