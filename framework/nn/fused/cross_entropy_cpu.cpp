// Rows are shared out to the threads here; what is done with a row's logits is
// loops/cross_entropy.cpp's.
#include "framework/nn/fused/cross_entropy_cpu.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#include <array>
#include <cmath>

#include "framework/base/error.h"
#include "framework/nn/fused/loops/cross_entropy.h"

namespace brim::nn::cpu {
namespace {

/// A row's labels, each with its part of the target; parts of missing ones are 0.
struct RowTarget {
  struct Label {
    int64_t index;
    double part;
  };
  std::array<Label, 2> labels;
  double sum() const { return labels[0].part + labels[1].part; }
  double part_of(int64_t index) const {
    double part = 0;
    for (const Label& label : labels) part += label.index == index ? label.part : 0;
    return part;
  }
};

class Targets {
 public:
  Targets(const at::Tensor& labels, const MaybeTensor& partner_labels,
          const MaybeTensor& label_shares, int64_t ignore_index)
      : labels_(data<int64_t>(labels)),
        partners_(data<int64_t>(partner_labels)),
        shares_(data<float>(label_shares)),
        ignore_index_(ignore_index) {}

  RowTarget operator[](int64_t row) const {
    const double share = partners_ == nullptr ? 1 : shares_[row];
    return {
        {part(labels_[row], share), part(partners_ == nullptr ? 0 : partners_[row], 1 - share)}};
  }

  /// Throws unless each label is a class or missing.
  void check(int64_t rows, int64_t classes) const {
    for (const int64_t* all : {labels_, partners_}) {
      if (all != nullptr) check_labels(all, rows, classes, ignore_index_);
    }
  }

  /// Rows that the mean is over.
  int64_t count(int64_t rows) const {
    if (partners_ != nullptr) return rows;
    return rows - std::count(labels_, labels_ + rows, ignore_index_);
  }

 private:
  RowTarget::Label part(int64_t label, double share) const {
    return label == ignore_index_ ? RowTarget::Label{0, 0} : RowTarget::Label{label, share};
  }

  const int64_t* labels_;
  const int64_t* partners_;  // null: a row has one label
  const float* shares_;
  int64_t ignore_index_;
};

/// f(row) for each, rows on several threads.
template <class F>
void for_each_row(const at::Tensor& logits, const F& f) {
  at::parallel_for(0, logits.size(0), grain_of(logits.size(1)), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) f(row);
  });
}

void check(const at::Tensor& logits, const at::Tensor& labels, const MaybeTensor& partner_labels,
           const MaybeTensor& label_shares) {
  TORCH_CHECK(logits.dim() == 2 && logits.size(1) > 0 && logits.stride(1) == 1,
              "cross_entropy: expected logits [N, C] with a row's side by side, found ",
              logits.sizes(), " with strides ", logits.strides());
  const auto check_rows = [&](const at::Tensor& values, at::ScalarType type) {
    TORCH_CHECK(values.dim() == 1 && values.size(0) == logits.size(0) &&
                    values.scalar_type() == type && values.is_contiguous(),
                "cross_entropy: expected ", type, " [", logits.size(0), "] for each row, found ",
                values.scalar_type(), " ", values.sizes());
  };
  check_rows(labels, at::kLong);
  TORCH_CHECK(partner_labels.has_value() == label_shares.has_value(),
              "cross_entropy: partner_labels and label_shares come together");
  if (!partner_labels) return;
  check_rows(*partner_labels, at::kLong);
  check_rows(*label_shares, at::kFloat);
}

/// A row's loss, from what its softmax is made of.
template <class S>
double loss_of(const S* x, int64_t classes, const loops::SoftmaxSums<S>& sums,
               const RowTarget& target, double smoothing) {
  const double highest = sums.highest, log_sum = std::log(sums.exponentials);
  double loss = 0;
  for (const auto& [label, part] : target.labels) {
    if (part == 0) continue;
    const double own = (highest - static_cast<double>(loops::wide(x[label]))) + log_sum;
    loss += part * (1 - smoothing) * own;
    if (smoothing == 0) continue;
    const double mean = sums.values / static_cast<double>(classes);
    loss += part * smoothing * ((highest - mean) + log_sum);
  }
  return loss;
}

}  // namespace

void check_labels(const int64_t* labels, int64_t rows, int64_t classes, int64_t ignore_index) {
  for (int64_t row = 0; row < rows; ++row) {
    if ((labels[row] >= 0 && labels[row] < classes) || labels[row] == ignore_index) continue;
    throw Error(Exit::kData,
                "cross-entropy: expected labels from 0 to {} for {} classes, found {} in row {} of "
                "{}; do the data fit the model?",
                classes - 1, classes, labels[row], row, rows);
  }
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> cross_entropy(
    const at::Tensor& logits, const at::Tensor& labels, const MaybeTensor& partner_labels,
    const MaybeTensor& label_shares, int64_t ignore_index, double smoothing) {
  check(logits, labels, partner_labels, label_shares);
  const int64_t count = logits.size(0), classes = logits.size(1), stride = logits.stride(0);
  const Targets targets(labels, partner_labels, label_shares, ignore_index);
  targets.check(count, classes);
  return with_format_of("cross_entropy", logits, [&]<class S>() {
    using W = Wide<S>;
    const loops::CrossEntropyLoops<S>& loop = loops::cross_entropy_loops<S>();
    const auto options = logits.options().dtype(c10::CppTypeToScalarType<W>::value);
    at::Tensor rows = at::empty({2, count}, options);
    W* highest = writable<W>(rows);
    W* inverse = highest + count;
    const at::Tensor losses = at::empty({count}, options.dtype(at::kDouble));
    auto* loss = writable<double>(losses);
    const S* values = data<S>(logits);
    for_each_row(logits, [&](int64_t row) {
      const S* x = values + row * stride;
      const loops::SoftmaxSums<S> sums = loop.sums(x, classes);
      highest[row] = sums.highest;
      inverse[row] = static_cast<W>(1 / sums.exponentials);
      loss[row] = loss_of(x, classes, sums, targets[row], smoothing);
    });
    double sum = 0;
    for (int64_t row = 0; row < count; ++row) sum += loss[row];
    const double share = 1 / static_cast<double>(std::max<int64_t>(1, targets.count(count)));
    return std::tuple(at::scalar_tensor(sum * share, options), rows,
                      at::scalar_tensor(share, options));
  });
}

at::Tensor cross_entropy_backward(const at::Tensor& gradient, const at::Tensor& logits,
                                  const at::Tensor& labels, const MaybeTensor& partner_labels,
                                  const MaybeTensor& label_shares, const at::Tensor& rows,
                                  const at::Tensor& share, int64_t ignore_index, double smoothing) {
  check(logits, labels, partner_labels, label_shares);
  const int64_t count = logits.size(0), classes = logits.size(1), stride = logits.stride(0);
  TORCH_CHECK(rows.is_contiguous() && rows.numel() == 2 * count,
              "cross_entropy: expected rows [2, ", count, "], found ", rows.sizes());
  const Targets targets(labels, partner_labels, label_shares, ignore_index);
  const double factor = gradient.item<double>() * share.item<double>();
  at::Tensor result = at::empty({count, classes}, logits.options());
  with_format_of("cross_entropy", logits, [&]<class S>() {
    using W = Wide<S>;
    const loops::CrossEntropyLoops<S>& loop = loops::cross_entropy_loops<S>();
    TORCH_CHECK(rows.scalar_type() == c10::CppTypeToScalarType<W>::value,
                "cross_entropy: rows are ", rows.scalar_type());
    const W* highest = data<W>(rows);
    const W* inverse = highest + count;
    const S* values = data<S>(logits);
    S* out = writable<S>(result);
    for_each_row(logits, [&](int64_t row) {
      const S* x = values + row * stride;
      S* to = out + row * classes;
      const RowTarget target = targets[row];
      const double part = factor * target.sum();
      if (target.sum() == 0) {
        std::fill(to, to + classes, S{});
        return;
      }
      const double scale = part * static_cast<double>(inverse[row]);
      const double offset = part * smoothing / static_cast<double>(classes);
      loop.gradient(x, classes, highest[row], static_cast<W>(scale), static_cast<W>(offset), to);
      for (const auto& [label, own] : target.labels) {
        if (own == 0) continue;
        const double x_label = static_cast<double>(loops::wide(x[label]));
        const double spread = scale * std::exp(x_label - static_cast<double>(highest[row]));
        const double aimed = factor * (1 - smoothing) * target.part_of(label);
        loops::store(static_cast<W>(spread - offset - aimed), to + label);
      }
    });
  });
  return result;
}

}  // namespace brim::nn::cpu
