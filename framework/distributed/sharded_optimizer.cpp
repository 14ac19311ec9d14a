#include "framework/distributed/sharded_optimizer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/units.h"

namespace brim::distributed {
namespace {

constexpr const char* kUpdate = "the exchange of updated parameters";
constexpr const char* kGather = "the gathering of the optimizer's state";

/// What is as large travels from and to the parameter itself: gathered in a row first, all of that
/// would take as much memory again as the parameters.
constexpr int64_t kSentAlone = 1 << 20;
/// Of the optimizer's state, what is gathered at a time.
constexpr int64_t kPieceBytes = 16 << 20;

/// A dense tensor's memory as one row.
at::Tensor flat_view(const at::Tensor& tensor) {
  return tensor.as_strided({tensor.numel()}, {1}, tensor.storage_offset());
}

/// What all views of a tensor have in common.
const void* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

int64_t rows_of(const at::Tensor& tensor) { return tensor.dim() == 0 ? 1 : tensor.size(0); }

at::Tensor rows_of(const at::Tensor& tensor, const Shard& shard) {
  if (shard.rows == rows_of(tensor)) return tensor;
  return tensor.narrow(0, shard.first_row, shard.rows);
}

std::vector<RowSizes> row_sizes(const std::vector<std::pair<std::string, at::Tensor>>& parameters) {
  std::vector<RowSizes> sizes;
  for (const auto& [name, tensor] : parameters) {
    const int64_t rows = rows_of(tensor);
    sizes.push_back({rows, rows == 0 ? 0 : static_cast<int64_t>(tensor.nbytes()) / rows});
  }
  return sizes;
}

/// A kind of state ("momentum") and whether it is a number, not a tensor like the parameter.
struct Kind {
  std::string name;
  bool is_number = false;
};

std::vector<Kind> parse_kinds(const std::string& text) {
  std::vector<Kind> kinds;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find(' ', at);
    kinds.push_back({text.substr(at + 1, end - at - 1), text[at] == '#'});
    at = end + 1;
  }
  return kinds;
}

}  // namespace

namespace {

/// Rank r has the bytes from r / world to (r + 1) / world of all, in whole rows: each parameter is
/// cut where one rank's part ends and nowhere else.
std::vector<Shard> split_by_rows(const std::vector<RowSizes>& sizes, int64_t world, double total) {
  std::vector<Shard> shards;
  double before = 0;  // bytes of earlier rows
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto owner_of = [&](int64_t row) {
      const double at = before + static_cast<double>(row) * static_cast<double>(sizes[i].row_bytes);
      return total == 0 ? 0 : std::min(static_cast<int64_t>(at * double(world) / total), world - 1);
    };
    shards.push_back({i, 0, sizes[i].rows, owner_of(0)});
    for (int64_t row = 1; row < sizes[i].rows; ++row) {
      if (owner_of(row) == shards.back().owner) continue;
      shards.back().rows = row - shards.back().first_row;
      shards.push_back({i, row, sizes[i].rows - row, owner_of(row)});
    }
    before += static_cast<double>(sizes[i].rows) * static_cast<double>(sizes[i].row_bytes);
  }
  return shards;
}

}  // namespace

std::vector<Shard> split_over_ranks(const std::vector<RowSizes>& sizes, int64_t world,
                                    bool cuts_rows) {
  const auto bytes = [&](size_t i) { return sizes[i].rows * sizes[i].row_bytes; };
  int64_t total = 0;
  for (size_t i = 0; i < sizes.size(); ++i) total += bytes(i);
  if (cuts_rows) return split_by_rows(sizes, world, static_cast<double>(total));
  std::vector<Shard> shards;
  for (size_t i = 0; i < sizes.size(); ++i) shards.push_back({i, 0, sizes[i].rows, 0});
  std::vector<size_t> order(shards.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return bytes(a) > bytes(b); });
  std::vector<int64_t> load(static_cast<size_t>(world));
  for (const size_t i : order) {
    const auto least = std::min_element(load.begin(), load.end());
    shards[i].owner = least - load.begin();
    *least += bytes(i);
  }
  return shards;
}

ShardedOptimizer::ShardedOptimizer(std::shared_ptr<Group> group, torch::nn::Module& model,
                                   std::vector<optim::ParameterGroup> groups, bool cuts_rows,
                                   int64_t bucket_bytes, const Build& build)
    : Optimizer(std::move(groups)), group_(std::move(group)) {
  std::vector<const optim::ParameterGroup*> group_of;  // each parameter
  for (const auto& parameter_group : groups_) {
    for (const auto& item : parameter_group.parameters) {
      parameters_.push_back(item);
      group_of.push_back(&parameter_group);
    }
  }
  shards_ = split_over_ranks(row_sizes(parameters_), group_->world(), cuts_rows);
  std::vector<optim::ParameterGroup> own;
  for (const Shard& shard : shards_) {
    const auto& [name, parameter] = parameters_[shard.parameter];
    const bool is_whole = shard.rows == rows_of(parameter);
    names_.push_back(
        is_whole ? name
                 : fmt::format("{}[{}:{}]", name, shard.first_row, shard.first_row + shard.rows));
    tensors_.push_back(rows_of(parameter.detach(), shard));
    if (shard.owner != group_->rank()) continue;
    const auto& [unused, weight_decay, rate_scale] = *group_of[shard.parameter];
    if (own.empty() || own.back().weight_decay != weight_decay ||
        own.back().rate_scale != rate_scale) {
      own.push_back({{}, weight_decay, rate_scale});
    }
    own.back().parameters.emplace_back(names_.back(), tensors_.back());
  }
  make_buckets(bucket_bytes);
  find_users(model);
  inner_ = build(std::move(own));
}

ShardedOptimizer::~ShardedOptimizer() {
  for (const auto& [block, buckets] : buckets_of_) block->observe(nullptr);
}

void ShardedOptimizer::find_users(torch::nn::Module& model) {
  std::map<const void*, std::set<size_t>> by_memory;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    for (const at::Tensor& shard : buckets_[i].shards) by_memory[storage_of(shard)].insert(i);
  }
  // A bucket that a block shares with the root is waited for before the pass.
  std::set<const void*> inside;
  for (const auto& [name, block] : nn::named_blocks(model)) {
    for (const at::Tensor& parameter : block->parameters()) {
      inside.insert(storage_of(parameter));
      const auto found = by_memory.find(storage_of(parameter));
      if (found == by_memory.end()) continue;
      buckets_of_[block].insert(found->second.begin(), found->second.end());
    }
    block->observe(this);
  }
  for (const auto& [memory, buckets] : by_memory) {
    if (!inside.contains(memory)) buckets_of_root_.insert(buckets.begin(), buckets.end());
  }
}

void ShardedOptimizer::make_buckets(int64_t bucket_bytes) {
  struct Open {
    size_t bucket = 0;
    int64_t bytes = 0;
  };
  std::map<std::pair<int64_t, at::ScalarType>, Open> open;  // by owner and type
  for (size_t i = 0; i < shards_.size(); ++i) {
    const at::Tensor& tensor = tensors_[i];
    if (tensor.numel() == 0) continue;
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    if (bytes >= kSentAlone) {
      buckets_.push_back(
          {.owner = shards_[i].owner, .shards = {tensor}, .flat = {}, .pending = {}});
      continue;
    }
    const auto [found, is_new] = open.try_emplace({shards_[i].owner, tensor.scalar_type()});
    Open& into = found->second;
    if (is_new || into.bytes + bytes > bucket_bytes) {
      into = {.bucket = buckets_.size(), .bytes = 0};
      buckets_.push_back({.owner = shards_[i].owner, .shards = {}, .flat = {}, .pending = {}});
    }
    buckets_[into.bucket].shards.push_back(tensor);
    into.bytes += bytes;
  }
  for (Bucket& bucket : buckets_) {
    if (bucket.shards.size() == 1) {
      bucket.flat = flat_view(bucket.shards.front());
      continue;
    }
    int64_t size = 0;
    for (const at::Tensor& shard : bucket.shards) size += shard.numel();
    bucket.flat = at::empty({size}, bucket.shards.front().options());
  }
}

void ShardedOptimizer::step(double learning_rate, const optim::StepScale& scale) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < shards_.size(); ++i) {
    if (shards_[i].owner != group_->rank()) continue;
    const at::Tensor& gradient = parameters_[shards_[i].parameter].second.grad();
    tensors_[i].mutable_grad() = gradient.defined() ? rows_of(gradient, shards_[i]) : at::Tensor();
  }
  inner_->step(learning_rate, scale);
  for (Bucket& bucket : buckets_) {
    if (bucket.owner == group_->rank() && bucket.shards.size() > 1) {
      std::vector<at::Tensor> rows;
      for (const at::Tensor& shard : bucket.shards) rows.push_back(flat_view(shard));
      at::cat_out(bucket.flat, rows);
    }
    bucket.pending = group_->start_broadcast(bucket.flat, kUpdate, bucket.owner);
  }
}

void ShardedOptimizer::receive(Bucket& bucket) {
  if (!bucket.pending.is_under_way()) return;
  const double start_s = now_s();
  bucket.pending.wait();
  waited_s_ += now_s() - start_s;
  if (bucket.owner == group_->rank() || bucket.shards.size() == 1) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> shards, received;
  int64_t first = 0;
  for (const at::Tensor& shard : bucket.shards) {
    shards.push_back(flat_view(shard));
    received.push_back(bucket.flat.narrow(0, first, shard.numel()));
    first += shard.numel();
  }
  at::_foreach_copy_(shards, received);
}

void ShardedOptimizer::begin_forward() {
  waited_s_ = 0;
  for (const size_t i : buckets_of_root_) receive(buckets_[i]);
  // A block that no one calls by run() doesn't tell when it is used.
  for (const auto& [block, buckets] : buckets_of_) {
    if (has_run_.contains(block)) continue;
    for (const size_t i : buckets) receive(buckets_[i]);
  }
}

void ShardedOptimizer::before(nn::Block& block, const at::Tensor& /*x*/) {
  has_run_.insert(&block);
  for (const size_t i : buckets_of_[&block]) receive(buckets_[i]);
}

void ShardedOptimizer::finish_step() {
  for (Bucket& bucket : buckets_) receive(bucket);
}

void ShardedOptimizer::zero_grad() {
  Optimizer::zero_grad();
  inner_->zero_grad();
}

std::string ShardedOptimizer::kinds_of_state(const optim::State& own) {
  // A rank may have no part: the kinds of state are those of one that has.
  std::string text;
  for (size_t i = 0; i < shards_.size() && text.empty(); ++i) {
    if (shards_[i].owner != group_->rank()) continue;
    for (const auto& [name, tensor] : own) {
      const size_t dot = name.find('.');  // kinds have none
      if (dot == std::string::npos || name.substr(dot + 1) != names_[i]) continue;
      const std::string kind = name.substr(0, dot);
      text += (tensor.dim() == 0 && tensors_[i].dim() > 0 ? "#" : "=") + kind + " ";
    }
  }
  const std::vector<std::string> texts = group_->all_gather(text, kGather);
  const auto found = std::find_if(texts.begin(), texts.end(), [](auto& t) { return !t.empty(); });
  return found == texts.end() ? std::string() : *found;
}

void ShardedOptimizer::gather_state(optim::StateWriter* into) {
  const at::NoGradGuard no_grad;
  const optim::State own = inner_->state();
  const std::vector<Kind> kinds = parse_kinds(kinds_of_state(own));
  const auto is_count = [](const std::string& name) { return name.find('.') == std::string::npos; };
  if (into != nullptr) {
    optim::State layout;
    for (const auto& [name, tensor] : own) {
      if (is_count(name)) layout[name] = tensor;  // of no parameter
    }
    for (const Kind& kind : kinds) {
      for (const auto& [name, parameter] : parameters_) {
        layout[kind.name + "." + name] =
            kind.is_number ? at::empty({}, at::TensorOptions(at::kMeta).dtype(at::kFloat))
                           : at::empty(parameter.sizes(), parameter.options().device(at::kMeta));
      }
    }
    into->begin(layout);
    for (const auto& [name, tensor] : own) {
      if (is_count(name)) into->write(name, 0, tensor.cpu().contiguous());
    }
  }
  for (const Kind& kind : kinds) {
    for (size_t i = 0; i < shards_.size(); ++i) {
      const Shard& shard = shards_[i];
      const auto& [name, parameter] = parameters_[shard.parameter];
      const bool is_own = shard.owner == group_->rank();
      const at::Tensor part = is_own ? own.at(kind.name + "." + names_[i]) : at::Tensor();
      if (kind.is_number) {
        const at::Tensor number =
            is_own ? part : at::empty({}, parameter.options().dtype(at::kFloat));
        group_->broadcast(number, kGather, shard.owner);
        // One for all shards of a parameter.
        if (into != nullptr && shard.first_row == 0) {
          into->write(kind.name + "." + name, 0, number.cpu());
        }
        continue;
      }
      if (tensors_[i].numel() == 0) continue;
      const int64_t row_bytes = static_cast<int64_t>(tensors_[i].nbytes()) / shard.rows;
      const int64_t most = std::max<int64_t>(1, kPieceBytes / row_bytes);
      for (int64_t first = 0; first < shard.rows; first += most) {
        const Shard piece = {.parameter = shard.parameter,
                             .first_row = first,
                             .rows = std::min(most, shard.rows - first),
                             .owner = shard.owner};
        const at::Tensor rows =
            is_own ? rows_of(part, piece) : at::empty_like(rows_of(tensors_[i], piece));
        group_->broadcast(flat_view(rows), kGather, shard.owner);
        if (into == nullptr) continue;
        into->write(kind.name + "." + name, shard.first_row + first, rows.cpu().contiguous());
      }
    }
  }
}

optim::State ShardedOptimizer::local_shard(const optim::State& whole) {
  optim::State parts;
  std::map<std::string, size_t> by_name;
  for (size_t i = 0; i < parameters_.size(); ++i) by_name[parameters_[i].first] = i;
  for (const auto& [name, tensor] : whole) {
    const size_t dot = name.find('.');
    const auto parameter = by_name.find(dot == std::string::npos ? name : name.substr(dot + 1));
    if (parameter == by_name.end()) {
      parts[name] = tensor;  // not ours: whoever loads it says so
      continue;
    }
    for (size_t i = 0; i < shards_.size(); ++i) {
      if (shards_[i].parameter != parameter->second || shards_[i].owner != group_->rank()) continue;
      const bool has_rows = tensor.sizes() == parameters_[parameter->second].second.sizes();
      parts[name.substr(0, dot + 1) + names_[i]] = has_rows ? rows_of(tensor, shards_[i]) : tensor;
    }
  }
  return parts;
}

}  // namespace brim::distributed
