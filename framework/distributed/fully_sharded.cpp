#include "framework/distributed/fully_sharded.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>

#include "framework/base/error.h"
#include "framework/base/units.h"

namespace brim::distributed {
namespace {

constexpr const char* kGatherRows = "the gathering of the state";
constexpr const char* kPassOutcome = "the outcome of the pass";
constexpr size_t kRoot = 0;

}  // namespace

FullySharded::FullySharded(std::shared_ptr<Group> group, std::shared_ptr<torch::nn::Module> model,
                           const Fill& fill, c10::Device device, c10::ScalarType compute,
                           int64_t shards, const DataParallelOptions& options)
    : group_(std::move(group)),
      shard_count_(shards),
      model_(std::move(model)),
      exchange_{.shards = nullptr,
                .replicas = nullptr,
                .compress = options.compress,
                .unused_parameters = options.unused_parameters} {
  if (group_->world() % shard_count_ != 0) {
    throw Error(
        Exit::kRecipe,
        "[distributed] shards = {} does not divide the {} ranks: choose a number that does, "
        "or another number of ranks",
        shard_count_, group_->world());
  }
  units_.emplace_back("");
  for (const auto& [name, block] : nn::named_blocks(*model_)) {
    if (!blocks_.empty() && name.starts_with(units_.back().name() + ".")) continue;
    places_[block] = units_.size();
    units_.emplace_back(name);
    blocks_.push_back(block);
    block->observe(this);
  }
  take_apart(fill, device, compute);
  for (auto& item : model_->named_buffers()) {
    at::Tensor& buffer = item.value();
    fill(buffer, {.first = 0, .count = row_count(buffer)});
    description_[item.key()] = describe(buffer);
    buffer.set_data(buffer.to(device));
  }
  is_summed_.resize(units_.size());
  inputs_.resize(units_.size());
}

void FullySharded::take_apart(const Fill& fill, c10::Device device, c10::ScalarType compute) {
  std::map<const void*, size_t> uses;  // of a parameter, under different names
  for (const auto& item : model_->named_parameters()) {
    uses[item.value().unsafeGetTensorImpl()] += 1;
  }
  std::map<const void*, std::pair<size_t, size_t>> known;
  for (auto& item : model_->named_parameters()) {
    at::Tensor& parameter = item.value();
    const void* identity = parameter.unsafeGetTensorImpl();
    const size_t index = unit_of(item.key(), uses[identity]);
    ShardedUnit& unit = units_[index];
    const auto [place, is_new] = known.try_emplace(identity, index, unit.pieces().size());
    if (is_new) {
      const bool is_cast = index != kRoot && is_matrix(parameter);
      const bool is_whole = fill(parameter, rows_to_fill(row_count(parameter)));
      description_[item.key()] =
          describe(parameter, is_whole ? std::nullopt : std::optional<int64_t>(1));
      unit.add(item.key(), parameter, device, is_cast ? compute : parameter.scalar_type(),
               group_->rank() % shard_count_, shard_count_);
    }
    pieces_[item.key()] = place->second;
    const ShardedUnit::Piece& piece = *find(item.key());
    description_[item.key()] = description_.at(piece.name);
    shards_.emplace_back(item.key(), piece.shard);
  }
}

FullySharded::~FullySharded() {
  for (nn::Block* block : blocks_) block->observe(nullptr);
}

/// What has several names may be used in several blocks.
size_t FullySharded::unit_of(const std::string& parameter, size_t uses) const {
  if (uses > 1) return kRoot;
  for (size_t i = 1; i < units_.size(); ++i) {
    if (parameter.starts_with(units_[i].name() + ".")) return i;
  }
  return kRoot;
}

RowRange FullySharded::own_rows(int64_t rows) const {
  return rows_of_rank(rows, group_->rank() % shard_count_, shard_count_);
}

/// Replicas compare all of their values. A rank that has none reads its own.
RowRange FullySharded::rows_to_fill(int64_t rows) const {
  return shard_count_ == group_->world() ? own_rows(rows) : RowRange{.first = 0, .count = rows};
}

void FullySharded::connect() {
  if (exchange_.shards != nullptr) return;
  const int64_t place = group_->rank() % shard_count_;
  exchange_.shards =
      shard_count_ == group_->world()
          ? group_
          : group_->part("shards", group_->rank() - place, shard_count_, /*stride=*/1);
  exchange_.replicas =
      group_->part("replicas", place, group_->world() / shard_count_, /*stride=*/shard_count_);
}

void FullySharded::add_up(at::Tensor& values) {
  connect();
  exchange_.shards->all_reduce(values, Reduce::kSum, "the norm of gradients");
}

void FullySharded::require_same_model() {
  connect();
  distributed::require_same_model(*group_, std::exchange(description_, {}));
}

void FullySharded::start_gather(size_t unit) {
  if (units_[unit].is_gathered()) return;
  units_[unit].start_gather(exchange_);
  begun_.push_back({.is_sum = false, .unit = unit});
}

void FullySharded::make_whole(size_t unit) {
  start_gather(unit);
  units_[unit].make_whole(exchange_);
}

void FullySharded::before_forward(bool /*sums*/) {
  started_s_ = now_s();
  exchange_.waited_s = 0;
  is_backward_ = false;
  connect();
  make_whole(kRoot);
  waited_before_s_ = exchange_.waited_s;
  begun_.clear();
}

void FullySharded::before(nn::Block& block, const at::Tensor& x) {
  const size_t unit = places_.at(&block);
  make_whole(unit);
  if (unit + 1 < units_.size()) start_gather(unit + 1);
  if (!at::GradMode::is_enabled() || !x.requires_grad()) return;
  inputs_[unit] = x.unsafeGetTensorImpl();
  x.register_hook([this, unit](const at::Tensor&) { end_backward(unit); });
}

void FullySharded::after(nn::Block& block, const at::Tensor& /*x*/, const at::Tensor& y) {
  const size_t unit = places_.at(&block);
  const bool has_backward = at::GradMode::is_enabled() && y.requires_grad();
  const bool is_last = unit + 1 == units_.size();  // its backward pass is what follows
  if (!has_backward || !is_last) units_[unit].free();
  if (!has_backward) return;
  y.register_hook([this, unit, output = y.unsafeGetTensorImpl()](const at::Tensor&) {
    // The block after this one is through: its memory is free before this one takes some.
    if (unit + 1 < units_.size() && inputs_[unit + 1] == output) end_backward(unit + 1);
    make_whole(unit);
    if (unit > 1) start_gather(unit - 1);
  });
}

bool FullySharded::backward(const at::Tensor& /*loss*/, bool sums,
                            const std::function<void()>& backward) {
  const double waited_in_forward_s = exchange_.waited_s;
  forward_ = std::exchange(begun_, {});
  is_backward_ = true;
  for (size_t i = 0; i < units_.size(); ++i) is_summed_[i] = !units_[i].is_trained();
  backward();
  for (size_t i = units_.size(); i-- > 0;) {
    if (i != kRoot || sums) units_[i].free();
    if (!is_summed_[i]) start_sum(i);
  }
  advance_sums();
  advance_sums();
  backward_ = std::exchange(begun_, {});
  is_backward_ = false;
  exposed_s_ = exchange_.waited_s - waited_in_forward_s;
  compute_s_ += now_s() - started_s_ - exchange_.waited_s;
  return !group_->any(false, kPassOutcome);
}

void FullySharded::end_backward(size_t unit) {
  units_[unit].free();
  // Where ranks may lack different gradients, all units are summed at the end, in one order.
  if (is_summed_[unit] || exchange_.unused_parameters || !units_[unit].has_all_gradients()) return;
  start_sum(unit);
}

void FullySharded::start_sum(size_t unit) {
  advance_sums();  // one unit at a stage, which bounds the memory
  units_[unit].start_sum(exchange_);
  is_summed_[unit] = true;
  summing_ = unit;
  begun_.push_back({.is_sum = true, .unit = unit});
}

void FullySharded::advance_sums() {
  if (replicating_) units_[*std::exchange(replicating_, std::nullopt)].finish_sum(exchange_);
  if (!summing_) return;
  units_[*summing_].start_sum_of_replicas(exchange_);
  replicating_ = std::exchange(summing_, std::nullopt);
  if (exchange_.replicas->is_single_rank()) {
    units_[*std::exchange(replicating_, std::nullopt)].finish_sum(exchange_);
  }
}

/// As the last one was, or as it is where blocks are used in their order.
std::vector<FullySharded::Collective> FullySharded::expected_forward() const {
  if (!forward_.empty()) return forward_;
  std::vector<Collective> expected;
  for (size_t i = 1; i < units_.size(); ++i) expected.push_back({.is_sum = false, .unit = i});
  return expected;
}

std::vector<FullySharded::Collective> FullySharded::expected_backward() const {
  if (!backward_.empty()) return backward_;
  std::vector<Collective> expected;
  const auto sum = [&](size_t unit) {
    if (units_[unit].is_trained()) expected.push_back({.is_sum = true, .unit = unit});
  };
  const size_t last = units_.size() - 1;
  for (size_t i = last; i > 0; --i) {
    if (i < last && !exchange_.unused_parameters) sum(i + 1);
    if (i > 1) expected.push_back({.is_sum = false, .unit = i - 1});
  }
  const size_t left = exchange_.unused_parameters ? last : std::min<size_t>(last, 1);
  for (size_t i = left + 1; i-- > 0;) sum(i);
  return expected;
}

void FullySharded::take_part_in_rest(const std::vector<Collective>& expected) {
  for (size_t i = begun_.size(); i < expected.size(); ++i) {
    ShardedUnit& unit = units_[expected[i].unit];
    if (expected[i].is_sum) {
      unit.start_empty_sum(exchange_);
      unit.start_sum_of_replicas(exchange_);
    } else {
      unit.start_gather(exchange_);
    }
    unit.reset();
  }
  begun_.clear();
}

void FullySharded::give_up_forward() {
  const bool has_root = units_[kRoot].is_gathered();
  for (size_t i = 1; i < units_.size(); ++i) units_[i].reset();
  if (!has_root) make_whole(kRoot);
  take_part_in_rest(expected_forward());
}

void FullySharded::give_up() {
  if (!exchange_.is_apart) {
    if (!is_backward_) give_up_forward();
    // Replicas wait for what was on its way to them.
    if (summing_) units_[*std::exchange(summing_, std::nullopt)].start_sum_of_replicas(exchange_);
    for (size_t i = 1; i < units_.size(); ++i) units_[i].reset();
    take_part_in_rest(expected_backward());
  }
  group_->any(true, kPassOutcome);
}

void FullySharded::reset() {
  summing_.reset();
  replicating_.reset();
  is_backward_ = false;
  begun_.clear();
  for (ShardedUnit& unit : units_) unit.reset();
}

FullySharded::Evaluation::~Evaluation() {
  try {
    model_.reset();
  } catch (const std::exception&) {
    // Another rank is gone: the pass ends with what it threw, or the next collective says so.
  }
}

const ShardedUnit::Piece* FullySharded::find(const std::string& name) const {
  auto found = pieces_.find(name);
  if (found == pieces_.end()) found = pieces_.find(after_dot(name));
  if (found == pieces_.end()) return nullptr;
  return &units_[found->second.first].pieces()[found->second.second];
}

void FullySharded::gather(const optim::State& own, optim::StateWriter* into) {
  const at::NoGradGuard no_grad;
  connect();
  const auto piece_of = [&](const std::string& name, const at::Tensor& tensor) {
    return tensor.dim() == 0 ? nullptr : find(name);  // a number is not split
  };
  if (into != nullptr) {
    optim::State layout;
    for (const auto& [name, tensor] : own) {
      const ShardedUnit::Piece* piece = piece_of(name, tensor);
      layout[name] = at::empty(piece == nullptr ? tensor.sizes() : piece->parameter.sizes(),
                               tensor.options().device(at::kMeta).requires_grad(false));
    }
    into->begin(layout);
  }
  for (const auto& [name, tensor] : own) {
    if (const ShardedUnit::Piece* piece = piece_of(name, tensor)) {
      gather_rows(name, tensor.detach(), *piece, into);
    } else if (into != nullptr) {
      into->write(name, 0, tensor.detach().cpu().contiguous());
    }
  }
}

void FullySharded::gather_rows(const std::string& name, const at::Tensor& own,
                               const ShardedUnit::Piece& piece, optim::StateWriter* into) {
  if (piece.row == 0) return;
  const int64_t row_bytes = piece.row * static_cast<int64_t>(own.element_size());
  const int64_t most = std::max<int64_t>(1, kGatheredBytes / row_bytes);
  std::vector<int64_t> sizes = own.sizes().vec();
  Group& shards = *exchange_.shards;
  for (int64_t owner = 0; owner < shards.world(); ++owner) {
    const RowRange range = rows_of_rank(piece.rows, owner, shards.world());
    for (int64_t first = 0; first < range.count; first += most) {
      sizes[0] = std::min(most, range.count - first);
      const at::Tensor rows = owner == shards.rank() ? own.narrow(0, first, sizes[0]).contiguous()
                                                     : at::empty(sizes, own.options());
      shards.broadcast(rows, kGatherRows, owner);
      if (into != nullptr) into->write(name, range.first + first, rows.cpu());
    }
  }
}

optim::State FullySharded::local_shard(const optim::State& whole, const optim::State& own) const {
  optim::State parts;
  for (const auto& [name, tensor] : whole) {
    parts[name] = tensor;  // what fits nothing stays: whoever loads it says so
    const auto ours = own.find(name);
    const ShardedUnit::Piece* piece = find(name);
    if (ours == own.end() || piece == nullptr || ours->second.sizes() == tensor.sizes() ||
        tensor.sizes() != piece->parameter.sizes()) {
      continue;
    }
    const RowRange range = own_rows(piece->rows);
    const at::Tensor rows = tensor.dim() == 0 ? tensor.view({1}) : tensor;
    parts[name] = rows.narrow(0, range.first, range.count);
  }
  return parts;
}

std::string FullySharded::text() const {
  int64_t own = 0, all = 0;
  for (const auto& unit : units_) {
    for (const ShardedUnit::Piece& piece : unit.pieces()) {
      own += static_cast<int64_t>(piece.shard.nbytes());
      all += piece.rows * piece.row * static_cast<int64_t>(piece.shard.element_size());
    }
  }
  const std::string copies = shard_count_ == group_->world()
                                 ? std::string()
                                 : fmt::format("{} copies of ", group_->world() / shard_count_);
  return fmt::format("{}{}, of whose {} each rank keeps {}", copies,
                     format_plural(static_cast<int64_t>(units_.size()), "unit"), format_bytes(all),
                     format_bytes(own));
}

}  // namespace brim::distributed
