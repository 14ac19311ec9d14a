// Image classification: cross-entropy with label smoothing; top-1 and top-5 accuracy.
#pragma once

#include "framework/train/tasks/task.h"

namespace brim::train {

/// Mean cross-entropy of logits [N, classes] against the batch's labels, spread over all classes by
/// label_smoothing; where images are mixed, against both labels in their shares. Fused, by
/// nn/fused/cross_entropy.h wherever that has a form for it.
at::Tensor loss_of(const at::Tensor& logits, const data::DeviceBatch& batch, double label_smoothing,
                   bool fused);

class Classification final : public Task {
 public:
  Classification(double label_smoothing, int64_t classes)
      : label_smoothing_(label_smoothing), classes_(classes) {}

  at::Tensor loss(nn::Model& model, const data::DeviceBatch& batch) const override;
  Losses losses(nn::Model& model, const data::DeviceBatch& batch) const override;
  /// [cross-entropy without smoothing, correct in the first 1, correct in the first 5, samples],
  /// then a row of samples for each class: by predicted class, or, beyond kLargestConfusion
  /// classes, those that are wrong and those that are correct.
  at::Tensor evaluation_sums(nn::Model& model, const data::DeviceBatch& batch) const override {
    return evaluate(model, batch).sums;
  }
  Evaluated evaluate(nn::Model& model, const data::DeviceBatch& batch) const override;
  /// "loss", "top1" and, where there are more than five classes, "top5"; accuracies in percent.
  Metrics metrics(const at::Tensor& sums) const override;
  std::vector<ClassResult> by_class(const at::Tensor& sums) const override;
  BestBy best_by() const override { return {"top1"}; }

 private:
  Losses losses_of(nn::Model& model, const data::DeviceBatch& batch, bool has_unsmoothed) const;
  /// Whether samples are counted by label and predicted class, and how many numbers a row has.
  bool has_confusion() const { return classes_ <= kLargestConfusion; }
  int64_t row() const { return has_confusion() ? classes_ : 2; }

  static constexpr int64_t kLargestConfusion = 200;  // classes, of which the square is counted
  double label_smoothing_;
  int64_t classes_;
};

struct ClassificationConfig final : TaskConfig {
  void fields(recipe::Fields& /*f*/) override {}
  bool takes(nn::InputKind kind) const override { return kind == nn::InputKind::kImages; }
  std::unique_ptr<Task> build(const TaskOptions& options) const override {
    return std::make_unique<Classification>(options.label_smoothing, options.input.classes);
  }
};

}  // namespace brim::train
