#include "framework/distributed/sum_after_backward.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/units.h"

namespace brim::distributed {
namespace {

constexpr std::string_view kGradientSum = "the sum of gradients";

int64_t values_of(const std::vector<at::Tensor>& bucket) {
  int64_t values = 0;
  for (const at::Tensor& parameter : bucket) values += parameter.numel();
  return values;
}

/// A part of a bucket's memory for each of its parameters, laid out as that: on every rank alike.
std::vector<at::Tensor> parts_of(const at::Tensor& memory, const std::vector<at::Tensor>& bucket) {
  std::vector<at::Tensor> parts;
  int64_t offset = 0;
  for (const at::Tensor& parameter : bucket) {
    const bool is_dense = parameter.is_non_overlapping_and_dense();
    const at::Tensor part = memory.narrow(0, offset, parameter.numel());
    parts.push_back(is_dense ? part.as_strided(parameter.sizes(), parameter.strides())
                             : part.view(parameter.sizes()));
    offset += parameter.numel();
  }
  return parts;
}

std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& bucket) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : bucket) gradients.push_back(parameter.grad());
  return gradients;
}

}  // namespace

SumAfterBackward::SumAfterBackward(std::shared_ptr<Group> group, const torch::nn::Module& model,
                                   const DataParallelOptions& options)
    : group_(std::move(group)), options_(options) {
  require_same_model(*group_, describe_model(model));
  const double cap = options.bucket_mib * (1 << 20);
  double bytes = 0;
  for (const auto& item : model.named_parameters()) {
    const at::Tensor& parameter = item.value();
    if (!parameter.requires_grad()) continue;
    names_.push_back(item.key());
    parameters_.push_back(parameter);
    const bool has_room = !buckets_.empty() && bytes < cap &&
                          buckets_.back().back().scalar_type() == parameter.scalar_type();
    if (!has_room) {
      buckets_.emplace_back();
      bytes = 0;
    }
    buckets_.back().push_back(parameter);
    bytes += static_cast<double>(parameter.nbytes());
  }
}

void SumAfterBackward::before_forward(bool sums) {
  const bool is_first = !std::exchange(in_step_, !sums);
  if (is_first && timer_) timer_->start();
}

bool SumAfterBackward::backward(const at::Tensor& /*loss*/, bool sums,
                                const std::function<void()>& backward) {
  exposed_s_ = 0;
  backward();
  if (!sums) return true;
  if (timer_) timer_->stop();
  const double start_s = now_s();
  const std::vector<std::string> left_out = without_gradient();
  // A rank that has no memory for it gives up; once ranks agree none may.
  const Memory memory = allocate();
  const bool has_succeeded = agree_on_step(
      *group_, left_out.empty() ? StepOutcome::kSummed : StepOutcome::kLeftOut, left_out, options_);
  if (has_succeeded) sum(memory);
  exposed_s_ = now_s() - start_s;
  return has_succeeded;
}

SumAfterBackward::Memory SumAfterBackward::allocate() const {
  int64_t bytes = 0;
  for (const Tensors& bucket : buckets_) {
    const auto type = travelling(bucket.front().scalar_type(), options_.compress);
    bytes = std::max(bytes, values_of(bucket) * static_cast<int64_t>(c10::elementSize(type)));
  }
  const auto options = parameters_.empty() ? at::TensorOptions() : parameters_.front().options();
  Memory memory;
  for (size_t i = 0; i < std::min(memory.size(), buckets_.size()); ++i) {
    memory[i] = at::empty({bytes}, options.dtype(at::kByte));
  }
  return memory;
}

void SumAfterBackward::sum(const Memory& memory) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> sums;
  std::vector<Pending> under_way;
  const auto start = [&](size_t i) {
    const Tensors& bucket = buckets_[i];
    const auto type = travelling(bucket.front().scalar_type(), options_.compress);
    const int64_t values = values_of(bucket);
    sums.push_back(memory[i % memory.size()]
                       .narrow(0, 0, values * static_cast<int64_t>(c10::elementSize(type)))
                       .view(type));
    Tensors parts = parts_of(sums.back(), bucket);
    at::_foreach_copy_(parts, gradients_of(bucket));
    under_way.push_back(group_->start_all_reduce(sums.back(), Reduce::kSum, kGradientSum));
  };
  const auto finish = [&](size_t i) {
    under_way[i].wait();
    Tensors gradients = gradients_of(buckets_[i]);
    at::_foreach_copy_(gradients, parts_of(sums[i], buckets_[i]));
  };
  for (size_t i = 0; i < buckets_.size(); ++i) {
    start(i);
    if (i > 0) finish(i - 1);
  }
  if (!buckets_.empty()) finish(buckets_.size() - 1);
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
  return timer_ ? timer_->stopped_at() : nullptr;
}

double SumAfterBackward::take_compute_s() {
  if (parameters_.empty()) return 0;
  if (!timer_) timer_.emplace(parameters_.front().device());
  return timer_->take_s();
}

std::vector<std::string> SumAfterBackward::without_gradient() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& gradient = parameters_[i].grad();
    if (!gradient.defined()) {
      names.push_back(names_[i]);
    } else if (gradient.layout() != at::kStrided) {
      throw sparse_gradient(names_[i]);
    }
  }
  return names;
}

}  // namespace brim::distributed
