#include "framework/distributed/data_parallel.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_map>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/units.h"
#include "framework/distributed/compute_timer.h"

namespace brim::distributed {

struct DataParallel::Round {
  size_t started = 0;                 // sums of buckets
  bool is_complete = false;           // all have
  std::vector<char> has_gradient;     // in the last micro-batch, by place in the list
  double last_filled_s = 0;           // when backward had filled the last one, on the host
  std::optional<ComputeTimer> timer;  // from the first take_compute_s() on

  void end_filling() {
    if (std::exchange(is_complete, true)) return;
    last_filled_s = now_s();
    if (timer) timer->stop();
  }
};

namespace {

constexpr const char* kSum = "the sum of gradients";
constexpr const char* kStepOutcome = "the outcome of the step";
constexpr size_t kMaxLeftOut = 8;  // of parameters in a message

/// Sums a bucket over the ranks as soon as backward has filled it.
class SumBuckets : public c10d::CommHookInterface {
 public:
  /// `on_bucket` is told whether the bucket is the last one.
  SumBuckets(c10::intrusive_ptr<c10d::ProcessGroup> group, Compress compress,
             std::function<void(bool)> on_bucket)
      : group_(std::move(group)), compress_(compress), on_bucket_(std::move(on_bucket)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    on_bucket_(bucket.isLast());
    const at::Tensor& gradients = bucket.getBuffer();
    if (compress_ == Compress::kNone) return sum(gradients);
    return sum(gradients.to(travelling(gradients.scalar_type(), compress_)))
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
  std::function<void(bool)> on_bucket_;
};

struct Trained {
  std::vector<at::Tensor> parameters;
  std::unordered_map<size_t, std::string> names;
};

Trained trained_parameters(const torch::nn::Module& model) {
  Trained trained;
  for (const auto& item : model.named_parameters()) {
    if (!item.value().requires_grad()) continue;
    trained.names[trained.parameters.size()] = item.key();
    trained.parameters.push_back(item.value());
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

std::unique_ptr<c10d::Reducer> build_reducer(const Group& group, const Trained& trained,
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

/// Some of the names.
std::string text_of(const std::vector<std::string>& left_out) {
  if (left_out.empty()) return "a use of a parameter";
  const auto shown = std::span(left_out).first(std::min(left_out.size(), kMaxLeftOut));
  std::string text = fmt::format("{}", fmt::join(shown, ", "));
  if (left_out.size() > shown.size()) {
    text += fmt::format(" and {} more", left_out.size() - shown.size());
  }
  return text;
}

/// What rank `rank` lacks, and which option would let it.
Error left_out_error(const DataParallelOptions& options, int64_t rank, const std::string& names) {
  if (options.static_graph) {
    return {Exit::kRecipe,
            "rank {}'s loss leaves out {}, which an earlier step used. Set "
            "distributed.static_graph = false and distributed.unused_parameters = true "
            "(DataParallelOptions in a program of your own)",
            rank, names};
  }
  if (options.unused_parameters) {
    return {Exit::kRecipe, "rank {}'s loss depends on no parameter: expected one at least", rank};
  }
  return {Exit::kRecipe,
          "rank {}'s loss leaves out {}. Set distributed.unused_parameters = true "
          "(DataParallelOptions::unused_parameters in a program of your own), or freeze what no "
          "loss uses (model.freeze)",
          rank, names};
}

/// The reducer leaves gradients that autograd takes for views, which the zero_grad() of LibTorch's
/// optimizers refuses to detach. Aliases of the same memory are as good to the reducer.
void forget_views(const std::vector<at::Tensor>& parameters) {
  const at::AutoDispatchBelowADInplaceOrView untracked;
  for (const at::Tensor& parameter : parameters) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (gradient.defined() && gradient.is_view()) gradient = gradient.alias();
  }
}

}  // namespace

at::ScalarType travelling(at::ScalarType gradients, Compress compress) {
  if (compress == Compress::kNone) return gradients;
  return compress == Compress::kBf16 ? at::kBFloat16 : at::kHalf;
}

Error sparse_gradient(const std::string& parameter) {
  return {Exit::kRecipe,
          "sparse gradients are not supported: parameter {}. Leave out sparse = true of its "
          "embedding",
          parameter};
}

bool agree_on_step(Group& group, StepOutcome own, const std::vector<std::string>& left_out,
                   const DataParallelOptions& options) {
  const at::Tensor outcome = at::full({1}, static_cast<int>(own), at::kInt);
  group.all_reduce(outcome, Reduce::kMax, kStepOutcome);
  const auto worst = static_cast<StepOutcome>(outcome.item<int>());
  if (worst == StepOutcome::kLeftOut) {
    const auto all =
        group.all_gather(own == StepOutcome::kLeftOut ? text_of(left_out) : "", kStepOutcome);
    const auto first = std::ranges::find_if(all, [](const auto& names) { return !names.empty(); });
    throw left_out_error(options, first - all.begin(), *first);
  }
  return worst == StepOutcome::kSummed;
}

DataParallel::DataParallel(std::shared_ptr<Group> group, const torch::nn::Module& model,
                           const DataParallelOptions& options, const BucketLayout& layout)
    : group_(std::move(group)), options_(options) {
  if (group_->is_single_rank()) return;
  require_same_model(*group_, describe_model(model));
  Trained trained = trained_parameters(model);
  names_ = std::move(trained.names);
  parameters_ = std::move(trained.parameters);
  if (parameters_.empty()) return;  // a stage that is frozen
  round_ = std::make_shared<Round>();
  watch_gradients();
  make_reducer(layout);
}

/// Notes which parameters have one, and gives gradients their parameters' strides, which the
/// reducer's buckets have: it warns on stderr of others, as LibTorch's own layers make them where
/// images are channels_last.
void DataParallel::watch_gradients() {
  round_->has_gradient.resize(parameters_.size());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].register_hook(
        [round = round_, i, name = names_.at(i),
         strides = parameters_[i].strides().vec()](const at::Tensor& gradient) {
          round->has_gradient[i] = 1;
          if (!gradient.defined()) return gradient;
          if (gradient.layout() != at::kStrided) {
            throw sparse_gradient(name);
          }
          if (gradient.strides() == strides) return gradient;
          return at::empty_strided(gradient.sizes(), strides, gradient.options()).copy_(gradient);
        });
  }
}

void DataParallel::make_reducer(const BucketLayout& layout) {
  reducer_ = build_reducer(*group_, {parameters_, names_}, options_, layout);
  reducer_->register_comm_hook(std::make_unique<SumBuckets>(
      group_->process_group(), options_.compress, [round = round_](bool is_last) {
        // Whoever fails from here on takes part in the other sums without this bucket.
        round->started += 1;
        if (is_last) round->end_filling();
      }));
  if (options_.static_graph) reducer_->set_static_graph();
  knows_graph_ = false;
}

void DataParallel::renew_reducer() {
  reducer_->remove_autograd_hooks();
  reducer_.reset();
  make_reducer(layout_);
}

DataParallel::~DataParallel() {
  if (reducer_) reducer_->remove_autograd_hooks();
}

/// After the first backward the buckets are rebuilt, in the order in which gradients came.
void DataParallel::settle_buckets() {
  bool is_new = layout_.empty();
  group_->run(kSum, [&] { is_new |= reducer_->rebuild_buckets(); });
  if (!is_new) return;
  layout_.clear();
  std::unordered_map<const void*, std::string> by_tensor;
  for (const auto& [place, name] : names_) {
    by_tensor[parameters_[place].unsafeGetTensorImpl()] = name;
  }
  for (const c10d::GradBucket& bucket : reducer_->get_grad_buckets(/*return_zero_tensors=*/false)) {
    auto& list = layout_.emplace_back();
    for (const at::Tensor& parameter : bucket.getParameters()) {
      list.push_back(by_tensor.at(parameter.unsafeGetTensorImpl()));
    }
  }
}

BucketLayout DataParallel::layout() {
  if (reducer_) settle_buckets();
  return layout_;
}

double DataParallel::take_compute_s() {
  if (!reducer_) return 0;
  if (!round_->timer) round_->timer.emplace(parameters_.at(0).device());
  return round_->timer->take_s();
}

std::shared_ptr<const device::StreamEvent> DataParallel::own_work_done() const {
  if (!reducer_ || !round_->timer) return nullptr;
  return round_->timer->stopped_at();
}

void DataParallel::before_forward(bool sums) {
  if (!reducer_) return;
  const bool is_first = !std::exchange(in_step_, !sums);
  if (is_first) {
    if (round_->timer) round_->timer->start();
    round_->started = 0;
    is_ready_to_sum_ = false;
  }
  if (!sums) return;
  is_ready_to_sum_ = true;
  // Of a static graph the reducer counts how often each gradient comes in its first step, and waits
  // for as many in later sums: it must not see the passes that aren't summed.
  if (!is_first && options_.static_graph && !knows_graph_) renew_reducer();
  settle_buckets();
}

bool DataParallel::backward(const at::Tensor& loss, bool sums,
                            const std::function<void()>& backward) {
  exposed_s_ = 0;
  if (!reducer_ || !sums) {
    backward();
    return true;
  }
  const bool searches = options_.unused_parameters && !options_.static_graph;
  reducer_->prepare_for_backward(searches ? std::vector<at::Tensor>{loss}
                                          : std::vector<at::Tensor>{});
  round_->is_complete = false;
  std::ranges::fill(round_->has_gradient, 0);
  group_->run(kSum, [&] {
    backward();
    if (!options_.static_graph || std::exchange(knows_graph_, true)) return;
    round_->end_filling();
    reducer_->delay_all_reduce();
  });
  forget_views(parameters_);
  if (!round_->is_complete) take_part_in_rest();
  const bool has_succeeded =
      all_ranks_summed(round_->is_complete ? StepOutcome::kSummed : StepOutcome::kLeftOut);
  exposed_s_ = std::max(0.0, now_s() - round_->last_filled_s);
  return has_succeeded;
}

std::vector<std::string> DataParallel::left_out() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (round_->has_gradient[i] == 0) names.push_back(names_.at(i));
  }
  return names;
}

bool DataParallel::all_ranks_summed(StepOutcome own) {
  in_step_ = false;
  is_ready_to_sum_ = false;
  return agree_on_step(*group_, own,
                       own == StepOutcome::kLeftOut ? left_out() : std::vector<std::string>(),
                       options_);
}

void DataParallel::give_up() {
  if (!reducer_) return;
  if (!is_ready_to_sum_) {
    if (!in_step_) round_->started = 0;  // not even the first forward pass has begun
    settle_buckets();
  }
  take_part_in_rest();
  all_ranks_summed(StepOutcome::kGivenUp);
}

/// In the sums of this step that this rank has not started, without gradients of its own.
void DataParallel::take_part_in_rest() {
  const at::NoGradGuard no_grad;
  group_->run(kSum, [this] {
    const auto take_part = [&](at::Tensor values) {
      std::vector<at::Tensor> tensors = {std::move(values)};
      group_->process_group()->allreduce(tensors)->wait();
    };
    // The reducer's own sum of which parameters were used.
    const auto take_part_in_used = [&] {
      take_part(at::zeros({static_cast<int64_t>(parameters_.size())},
                          parameters_.front().options().dtype(at::kInt)));
    };
    if (options_.static_graph && !knows_graph_) take_part_in_used();
    const auto buckets = reducer_->get_grad_buckets(/*return_zero_tensors=*/false);
    for (size_t i = round_->started; i < buckets.size(); ++i) {
      const at::Tensor& gradients = buckets[i].getBuffer();
      // Whatever lies there: the sum is of no use. There may be no memory for another tensor.
      take_part(gradients.to(travelling(gradients.scalar_type(), options_.compress)));
    }
    if (options_.unused_parameters && !options_.static_graph) take_part_in_used();
  });
}

void DataParallel::reset() {
  if (!reducer_) return;
  for (const at::Tensor& parameter : parameters_) parameter.mutable_grad() = at::Tensor();
  renew_reducer();
}

}  // namespace brim::distributed
