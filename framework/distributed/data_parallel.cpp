#include "framework/distributed/data_parallel.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <optional>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_map>
#include <utility>

#include "framework/base/units.h"
#include "framework/distributed/compute_timer.h"

namespace brim::distributed {

struct DataParallel::LastBucket {
  double host_s = 0;
  std::optional<ComputeTimer> timer;  // from the first take_compute_s() on
};

namespace {

constexpr const char* kSum = "the sum of gradients";

/// Sums a bucket over the ranks as soon as backward has filled it.
class SumBuckets : public c10d::CommHookInterface {
 public:
  SumBuckets(c10::intrusive_ptr<c10d::ProcessGroup> group, Compress compress,
             std::function<void()> on_last_bucket)
      : group_(std::move(group)), compress_(compress), on_last_bucket_(std::move(on_last_bucket)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    if (bucket.isLast()) on_last_bucket_();
    const at::Tensor& gradients = bucket.getBuffer();
    if (compress_ == Compress::kNone) return sum(gradients);
    const at::ScalarType type = compress_ == Compress::kBf16 ? at::kBFloat16 : at::kHalf;
    return sum(gradients.to(type))
        ->then(
            [gradients](c10::ivalue::Future& summed) {
              gradients.copy_(c10d::detail::parseCppCommHookResult(summed.value()));
              return c10::IValue(gradients);
            },
            c10::TensorType::get());
  }

  at::Tensor parseHookResult(const c10::IValue& result) override {
    return c10d::detail::parseCppCommHookResult(result);
  }

 private:
  c10::intrusive_ptr<c10::ivalue::Future> sum(const at::Tensor& tensor) {
    std::vector<at::Tensor> tensors = {tensor};
    return group_->allreduce(tensors)->getFuture();
  }

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  Compress compress_;
  std::function<void()> on_last_bucket_;
};

struct Trained {
  std::vector<at::Tensor> parameters;
  std::unordered_map<size_t, std::string> names;
  int64_t bytes = 0;
};

Trained trained_parameters(const nn::Model& model) {
  Trained trained;
  for (const auto& item : model.named_parameters()) {
    if (!item.value().requires_grad()) continue;
    trained.names[trained.parameters.size()] = item.key();
    trained.parameters.push_back(item.value());
    trained.bytes += static_cast<int64_t>(item.value().nbytes());
  }
  return trained;
}

/// The layout as places in the list of parameters; empty unless it names each of them once.
std::vector<std::vector<size_t>> places(const BucketLayout& layout, const Trained& trained) {
  std::map<std::string, size_t> left;
  for (const auto& [place, name] : trained.names) left[name] = place;
  std::vector<std::vector<size_t>> buckets;
  for (const auto& bucket : layout) {
    auto& list = buckets.emplace_back();
    for (const std::string& name : bucket) {
      const auto node = left.extract(name);
      if (!node) return {};
      list.push_back(node.mapped());
    }
    if (list.empty()) return {};
  }
  return left.empty() ? buckets : std::vector<std::vector<size_t>>{};
}

std::unique_ptr<c10d::Reducer> make_reducer(const Group& group, const Trained& trained,
                                            const DataParallelOptions& options,
                                            const BucketLayout& layout) {
  const auto cap = static_cast<size_t>(options.bucket_mib * (1 << 20));
  const std::vector<bool> is_sparse(trained.parameters.size(), false);
  // A small first bucket starts the overlap early.
  const size_t first_cap = std::min<size_t>(c10d::kDefaultFirstBucketBytes, cap);
  auto buckets = places(layout, trained);
  if (buckets.empty()) {
    buckets = std::get<0>(
        c10d::compute_bucket_assignment_by_size(trained.parameters, {first_cap, cap}, is_sparse));
    // Backward reaches the last parameters first.
    std::reverse(buckets.begin(), buckets.end());
  }
  return std::make_unique<c10d::Reducer>(
      trained.parameters, std::move(buckets), group.process_group(), is_sparse,
      static_cast<int64_t>(cap), options.unused_parameters, /*gradient_as_bucket_view=*/true,
      trained.names, static_cast<int64_t>(first_cap), /*skip_all_reduce_unused_params=*/false,
      /*use_python_reducer=*/false, std::vector<int64_t>{});
}

}  // namespace

DataParallel::DataParallel(std::shared_ptr<Group> group, const nn::Model& model,
                           const DataParallelOptions& options, const BucketLayout& layout)
    : group_(std::move(group)), options_(options) {
  if (group_->is_alone()) return;
  require_same_model(*group_, model);
  const Trained trained = trained_parameters(model);
  gradient_bytes_ = trained.bytes;
  names_ = trained.names;
  parameters_ = trained.parameters;
  last_bucket_ = std::make_shared<LastBucket>();
  reducer_ = make_reducer(*group_, trained, options_, layout);
  reducer_->register_comm_hook(std::make_unique<SumBuckets>(
      group_->process_group(), options_.compress, [last = last_bucket_] {
        last->host_s = now_s();
        if (last->timer) last->timer->stop();
      }));
  if (options_.static_graph) reducer_->set_static_graph();
}

DataParallel::~DataParallel() {
  if (reducer_) reducer_->remove_autograd_hooks();
}

BucketLayout DataParallel::layout() {
  if (!reducer_) return {};
  group_->run(kSum, [this] { reducer_->rebuild_buckets(); });
  std::unordered_map<const void*, std::string> by_tensor;
  for (const auto& [place, name] : names_) {
    by_tensor[parameters_[place].unsafeGetTensorImpl()] = name;
  }
  BucketLayout layout;
  for (const c10d::GradBucket& bucket : reducer_->get_grad_buckets(/*return_zero_tensors=*/false)) {
    auto& list = layout.emplace_back();
    for (const at::Tensor& parameter : bucket.getParameters()) {
      list.push_back(by_tensor.at(parameter.unsafeGetTensorImpl()));
    }
  }
  return layout;
}

double DataParallel::take_compute_s() {
  if (!reducer_) return 0;
  if (!last_bucket_->timer) last_bucket_->timer.emplace(parameters_.at(0).device());
  return last_bucket_->timer->take_s();
}

void DataParallel::before_forward(bool sums) {
  if (!reducer_) return;
  const bool is_first = !std::exchange(in_step_, !sums);
  if (is_first && last_bucket_->timer) last_bucket_->timer->start();
  if (!sums) return;
  // After the first backward the buckets are made anew, in the order in which gradients came.
  group_->run(kSum, [this] { reducer_->rebuild_buckets(); });
}

void DataParallel::backward(const at::Tensor& loss, bool sums,
                            const std::function<void()>& backward) {
  exposed_s_ = 0;
  if (!reducer_ || !sums) return backward();
  const bool searches = options_.unused_parameters && !options_.static_graph;
  reducer_->prepare_for_backward(searches ? std::vector<at::Tensor>{loss}
                                          : std::vector<at::Tensor>{});
  group_->run(kSum, [&] {
    backward();
    if (options_.static_graph && !std::exchange(knows_graph_, true)) reducer_->delay_all_reduce();
  });
  exposed_s_ = std::max(0.0, now_s() - last_bucket_->host_s);
}

}  // namespace brim::distributed
