#include "framework/distributed/sum_after_backward.h"

#include <ATen/ATen.h>

#include <utility>

#include "framework/base/units.h"

namespace brim::distributed {
namespace {

constexpr std::string_view kGradientSum = "the sum of gradients";

/// A part of a bucket's memory for each of its parameters, laid out as that: on every rank alike.
std::vector<at::Tensor> parts_of(const at::Tensor& memory,
                                 const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> parts;
  int64_t offset = 0;
  for (const at::Tensor& parameter : parameters) {
    const bool is_dense = parameter.is_non_overlapping_and_dense();
    const at::Tensor part = memory.narrow(0, offset, parameter.numel());
    parts.push_back(is_dense ? part.as_strided(parameter.sizes(), parameter.strides())
                             : part.view(parameter.sizes()));
    offset += parameter.numel();
  }
  return parts;
}

}  // namespace

SumAfterBackward::SumAfterBackward(std::shared_ptr<Group> group, const torch::nn::Module& model,
                                   const DataParallelOptions& options)
    : group_(std::move(group)), options_(options), timer_(c10::Device(c10::kCPU)) {
  require_same_model(*group_, describe_model(model));
  const double cap = options.bucket_mib * (1 << 20);
  double bytes = 0;
  for (const auto& item : model.named_parameters()) {
    if (!item.value().requires_grad()) continue;
    names_.push_back(item.key());
    parameters_.push_back(item.value());
    const bool is_of_last = !buckets_.empty() &&
                            buckets_.back().back().scalar_type() == item.value().scalar_type() &&
                            bytes < cap;
    if (!is_of_last) {
      buckets_.emplace_back();
      bytes = 0;
    }
    buckets_.back().push_back(item.value());
    bytes += static_cast<double>(item.value().nbytes());
  }
  if (!parameters_.empty()) timer_ = ComputeTimer(parameters_.front().device());
}

void SumAfterBackward::before_forward(bool sums) {
  if (!std::exchange(in_step_, !sums)) timer_.start();
}

bool SumAfterBackward::backward(const at::Tensor& /*loss*/, bool sums,
                                const std::function<void()>& backward) {
  exposed_s_ = 0;
  backward();
  if (!sums) return true;
  timer_.stop();
  const double start_s = now_s();
  const std::vector<std::string> left_out = without_gradient();
  const bool has_succeeded = agree_on_step(
      *group_, left_out.empty() ? StepOutcome::kSummed : StepOutcome::kLeftOut, left_out, options_);
  if (has_succeeded) sum();
  exposed_s_ = now_s() - start_s;
  return has_succeeded;
}

/// Ranks have told each other that all come here.
void SumAfterBackward::sum() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> sums;
  std::vector<Pending> under_way;
  const auto gradients_of = [](const std::vector<at::Tensor>& parameters) {
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : parameters) gradients.push_back(parameter.grad());
    return gradients;
  };
  for (const std::vector<at::Tensor>& bucket : buckets_) {
    int64_t values = 0;
    for (const at::Tensor& parameter : bucket) values += parameter.numel();
    const auto type = travelling(bucket.front().scalar_type(), options_.compress);
    sums.push_back(at::empty({values}, bucket.front().options().dtype(type)));
    std::vector<at::Tensor> parts = parts_of(sums.back(), bucket);
    at::_foreach_copy_(parts, gradients_of(bucket));
    under_way.push_back(group_->start_all_reduce(sums.back(), Reduce::kSum, kGradientSum));
  }
  for (size_t i = 0; i < buckets_.size(); ++i) {
    under_way[i].wait();
    std::vector<at::Tensor> gradients = gradients_of(buckets_[i]);
    at::_foreach_copy_(gradients, parts_of(sums[i], buckets_[i]));
  }
}

void SumAfterBackward::give_up() {
  in_step_ = false;
  agree_on_step(*group_, StepOutcome::kGivenUp, {}, options_);
}

void SumAfterBackward::reset() {
  in_step_ = false;
  for (const at::Tensor& parameter : parameters_) parameter.mutable_grad() = at::Tensor();
}

std::shared_ptr<const device::StreamEvent> SumAfterBackward::own_work_done() const {
  return timer_.stopped_at();
}

double SumAfterBackward::take_compute_s() { return timer_.take_s(); }

std::vector<std::string> SumAfterBackward::without_gradient() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].grad().defined()) names.push_back(names_[i]);
  }
  return names;
}

}  // namespace brim::distributed
