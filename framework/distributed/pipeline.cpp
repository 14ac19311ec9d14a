#include "framework/distributed/pipeline.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "framework/base/error.h"

namespace brim::distributed {
namespace {

constexpr const char* kFirstMessage = "the first message of another stage";
constexpr const char* kActivations = "the activations of another stage";
constexpr const char* kGradients = "the gradients of another stage";
constexpr const char* kSharedSum = "the sum of gradients that two stages share";
constexpr const char* kStageState = "the gathering of the stages' state";

/// A dense tensor's memory, which Gloo wants in a row.
at::Tensor row_of_memory(const at::Tensor& tensor) {
  return tensor.as_strided({tensor.numel()}, {1}, tensor.storage_offset());
}

/// Rows of dimension 0 that travel at a time; a scalar has one.
void by_slices(const at::Tensor& layout, const std::function<void(int64_t, int64_t)>& slice) {
  const int64_t rows = layout.dim() == 0 ? 1 : layout.size(0);
  if (layout.numel() == 0) return;
  const int64_t row_bytes = static_cast<int64_t>(layout.nbytes()) / rows;
  const int64_t most = std::max<int64_t>(1, kGatheredBytes / row_bytes);
  for (int64_t first = 0; first < rows; first += most) slice(first, std::min(most, rows - first));
}

at::Tensor without_values(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options().device(at::kMeta).requires_grad(false));
}

std::string layout_text(const optim::State& state) {
  nlohmann::json layout = nlohmann::json::object();
  for (const auto& [name, tensor] : state) {
    layout[name] = {static_cast<int>(tensor.scalar_type()), tensor.sizes().vec()};
  }
  return layout.dump();
}

optim::State read_layout(const std::string& text) {
  optim::State layout;
  const nlohmann::json entries = nlohmann::json::parse(text);
  for (const auto& [name, entry] : entries.items()) {
    const auto type = static_cast<at::ScalarType>(entry[0].get<int>());
    layout[name] =
        at::empty(entry[1].get<std::vector<int64_t>>(), at::device(at::kMeta).dtype(type));
  }
  return layout;
}

/// NCCL connects two ranks in their first message, while both wait. Here they have nothing else to
/// wait for; within a step each may wait for the other's next message instead.
void send_first(Group& pair, c10::Device device, int64_t from) {
  const at::Tensor word = at::zeros({1}, at::device(device).dtype(at::kFloat));
  Pending message = pair.rank() == from ? pair.start_send(word, 1 - from, kFirstMessage)
                                        : pair.start_receive(word, from, kFirstMessage);
  message.wait();
}

}  // namespace

std::string after_dot(const std::string& name) {
  const size_t dot = name.find('.');
  return dot == std::string::npos ? std::string() : name.substr(dot + 1);
}

at::Tensor MessageShape::empty(int64_t samples, c10::Device device) const {
  std::vector<int64_t> all = sizes;
  all.insert(all.begin(), samples);
  return at::empty(
      all, at::device(device).dtype(type),
      is_channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
}

at::Tensor MessageShape::pack(const at::Tensor& tensor) const {
  return tensor.detach().to(type).contiguous(is_channels_last ? at::MemoryFormat::ChannelsLast
                                                              : at::MemoryFormat::Contiguous);
}

Pipeline::Pipeline(std::shared_ptr<Group> group, std::vector<StageLayout> layouts,
                   const std::vector<std::pair<std::string, at::Tensor>>& parameters)
    : group_(std::move(group)), layouts_(std::move(layouts)) {
  for (const auto& [name, parameter] : parameters) {
    const std::vector<int64_t> stages = holders(name);
    if (stages.size() > 2) {
      throw Error(Exit::kRecipe,
                  "[distributed] stages = {}: {} stages share {}; expected at most two. Use fewer "
                  "stages, or another cut",
                  this->stages(), stages.size(), name);
    }
    if (stages.size() == 2) shared_.push_back({stages[0], stages[1], parameter, nullptr});
  }
}

Pipeline::Link Pipeline::connect_pair(int64_t first_stage, c10::Device device) {
  const int64_t first = group_->rank() - stage() + first_stage;
  const std::string parity = first_stage % 2 == 0 ? "even" : "odd";
  const Link link = {
      .activations = group_->part("activations " + parity, first, /*count=*/2, /*stride=*/1),
      .gradients = group_->part("gradients " + parity, first, /*count=*/2, /*stride=*/1)};
  send_first(*link.activations, device, /*from=*/0);
  send_first(*link.gradients, device, /*from=*/1);
  return link;
}

void Pipeline::connect(c10::Device device) {
  const int64_t first = group_->rank() - stage();
  line_ = replicas() == 1 ? group_ : group_->part("stages", first, stages(), /*stride=*/1);
  same_stage_ = group_->part("replicas", stage(), replicas(), /*stride=*/stages());
  for (const int64_t parity : {0, 1}) {
    if (!is_last() && stage() % 2 == parity) after_ = connect_pair(stage(), device);
    if (!is_first() && (stage() - 1) % 2 == parity) before_ = connect_pair(stage() - 1, device);
  }
  for (Shared& shared : shared_) {
    shared.group = group_->part(fmt::format("stages {} and {}", shared.first, shared.second),
                                first + shared.first, /*count=*/2, shared.second - shared.first);
  }
}

MessageRoom Pipeline::room_for_messages(int64_t samples, c10::Device device) const {
  MessageRoom room;
  if (!is_first()) room.before = inputs().empty(samples, device).zero_();
  if (!is_last()) room.after = outputs().empty(samples, device).zero_();
  return room;
}

Pending Pipeline::send_activations(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {};
  return after_.activations->start_send(row_of_memory(tensor), /*to=*/1, kActivations);
}

Pending Pipeline::receive_activations(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {};
  return before_.activations->start_receive(row_of_memory(tensor), /*from=*/0, kActivations);
}

Pending Pipeline::send_gradients(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {};
  return before_.gradients->start_send(row_of_memory(tensor), /*to=*/0, kGradients);
}

Pending Pipeline::receive_gradients(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {};
  return after_.gradients->start_receive(row_of_memory(tensor), /*from=*/1, kGradients);
}

void Pipeline::add_up_shared() {
  const at::NoGradGuard no_grad;
  for (Shared& shared : shared_) {
    if (!shared.parameter.requires_grad()) continue;
    at::Tensor& gradient = shared.parameter.mutable_grad();
    if (!gradient.defined()) gradient = at::zeros_like(shared.parameter);
    const at::Tensor sum = gradient.contiguous();
    shared.group->all_reduce(sum, Reduce::kSum, kSharedSum);
    if (!sum.is_same(gradient)) gradient.copy_(sum);
  }
}

bool Pipeline::counts_elsewhere(const at::Tensor& parameter) const {
  return std::ranges::any_of(shared_, [&](const Shared& shared) {
    return shared.parameter.is_same(parameter) && shared.first != stage();
  });
}

void Pipeline::add_up(at::Tensor& value) {
  const at::Tensor sum = value.to(at::kDouble);
  line_->all_reduce(sum, Reduce::kSum, "the norm of gradients");
  value = sum.to(value.scalar_type());
}

BucketLayout Pipeline::gather_buckets(const BucketLayout& own) {
  BucketLayout all;
  const std::string sent = nlohmann::json(own).dump();
  int64_t stage = 0;
  for (const std::string& text : line_->all_gather(sent, "the buckets of all stages")) {
    for (auto& bucket : nlohmann::json::parse(text).get<BucketLayout>()) {
      for (std::string& name : bucket) name = fmt::format("{}/{}", stage, name);
      all.push_back(std::move(bucket));
    }
    ++stage;
  }
  return all;
}

BucketLayout Pipeline::own_buckets(const BucketLayout& all) const {
  const std::string prefix = fmt::format("{}/", stage());
  BucketLayout own;
  for (const auto& bucket : all) {
    if (bucket.empty() || !bucket.front().starts_with(prefix)) continue;
    auto& names = own.emplace_back();
    for (const std::string& name : bucket) {
      names.push_back(name.substr(std::min(prefix.size(), name.size())));
    }
  }
  return own;
}

std::vector<int64_t> Pipeline::holders(const std::string& name) const {
  for (const std::string& tensor : {name, after_dot(name)}) {
    std::vector<int64_t> stages;
    for (size_t i = 0; i < layouts_.size(); ++i) {
      if (layouts_[i].tensors.contains(tensor)) stages.push_back(static_cast<int64_t>(i));
    }
    if (!stages.empty()) return stages;
  }
  return {};
}

void Pipeline::gather(const optim::State& own, optim::StateWriter* into) {
  if (replica() != 0) return;
  const at::NoGradGuard no_grad;
  optim::State given = own;  // what two stages have, the first of them gives
  std::erase_if(given, [&](const auto& item) {
    const std::vector<int64_t> stages = holders(item.first);
    return stage() != (stages.empty() ? 0 : stages.front());
  });
  std::vector<optim::State> layouts;
  for (const std::string& text : line_->all_gather(layout_text(given), kStageState)) {
    layouts.push_back(read_layout(text));
  }
  if (!is_first()) return send_state(given);
  optim::State all;
  for (const optim::State& layout : layouts) all.insert(layout.begin(), layout.end());
  into->begin(all);
  for (const auto& [name, tensor] : given) {
    into->write(name, 0, tensor.detach().cpu().contiguous());
  }
  for (int64_t stage = 1; stage < stages(); ++stage) {
    receive_state(stage, layouts[static_cast<size_t>(stage)], *into);
  }
}

void Pipeline::send_state(const optim::State& own) {
  for (const auto& entry : own) {
    const at::Tensor& tensor = entry.second;
    by_slices(without_values(tensor), [&](int64_t first, int64_t count) {
      const at::Tensor rows =
          tensor.dim() == 0 ? tensor.detach() : tensor.detach().narrow(0, first, count);
      line_->start_send(rows.cpu().contiguous(), /*to=*/0, kStageState).wait();
    });
  }
}

void Pipeline::receive_state(int64_t stage, const optim::State& layout, optim::StateWriter& into) {
  for (const auto& entry : layout) {
    const at::Tensor& tensor = entry.second;
    by_slices(tensor, [&](int64_t first, int64_t count) {
      std::vector<int64_t> sizes = tensor.sizes().vec();
      if (!sizes.empty()) sizes[0] = count;
      const at::Tensor rows = at::empty(sizes, at::dtype(tensor.scalar_type()));
      line_->start_receive(rows, stage, kStageState).wait();
      into.write(entry.first, first, rows);
    });
  }
}

optim::State Pipeline::local_shard(const optim::State& whole, const optim::State& /*own*/) const {
  optim::State part = whole;
  std::erase_if(part, [&](const auto& item) {
    const std::vector<int64_t> stages = holders(item.first);
    return !stages.empty() && std::ranges::find(stages, stage()) == stages.end();
  });
  return part;
}

}  // namespace brim::distributed
