#include "framework/distributed/fully_sharded.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <set>

#include "framework/base/error.h"
#include "framework/base/units.h"
#include "framework/nn/model.h"

namespace brim::distributed {
namespace {

constexpr const char* kGatherWeights = "the gathering of a block's weights";
constexpr const char* kSumRows = "the sum of a block's gradients";
constexpr const char* kGatherState = "the gathering of the state";
constexpr const char* kOutcome = "the outcome of the step";
/// Of a checkpoint, what is gathered at a time.
constexpr int64_t kGatheredBytes = 16 << 20;

/// Parameters without dimensions count as one row.
int64_t row_count(const at::Tensor& tensor) { return tensor.dim() == 0 ? 1 : tensor.size(0); }

/// A dense tensor's memory.
at::Tensor as_row(const at::Tensor& tensor) {
  return tensor.as_strided({tensor.numel()}, {1}, tensor.storage_offset());
}

/// A product of it with something else is what takes time: it has rows of more than one element.
bool is_matrix(const at::Tensor& tensor) {
  return std::ranges::count_if(tensor.sizes(), [](int64_t size) { return size > 1; }) > 1;
}

/// Dense, with one row after the other in memory; `rows` of them, in their order where it is so.
at::Tensor empty_rows(const at::Tensor& like, int64_t rows, const at::TensorOptions& options) {
  if (like.dim() == 0) return at::empty({rows}, options);
  std::vector<int64_t> sizes = like.sizes().vec();
  sizes[0] = rows;
  const bool has_rows = like.numel() > 0 && like.is_non_overlapping_and_dense() &&
                        (like.size(0) == 1 || like.stride(0) == like.numel() / like.size(0));
  if (!has_rows || rows == 0) return at::empty(sizes, options);
  return at::empty_strided(sizes, like.strides(), options);
}

c10::StorageImpl& memory_of(const at::Tensor& tensor) {
  return *tensor.storage().unsafeGetStorageImpl();
}

void free_memory(const at::Tensor& tensor) {
  memory_of(tensor).set_data_ptr_noswap(c10::DataPtr(nullptr, tensor.device()));
  memory_of(tensor).unsafe_set_nbytes(0);
}

void allocate_memory(const at::Tensor& tensor) {
  const size_t bytes = tensor.nbytes();
  memory_of(tensor).set_data_ptr_noswap(memory_of(tensor).allocator()->allocate(bytes));
  memory_of(tensor).unsafe_set_nbytes(bytes);
}

std::vector<int64_t> sizes_of(const at::Tensor& rows, int64_t count) {
  std::vector<int64_t> sizes = rows.sizes().vec();
  sizes[0] = count;
  return sizes;
}

/// `tensor` with the strides of `order`.
at::Tensor in_order_of(const at::Tensor& order, const at::Tensor& tensor) {
  if (tensor.strides() == order.strides()) return tensor;
  return at::empty_strided(order.sizes(), order.strides(), tensor.options()).copy_(tensor);
}

/// The type in which gradients travel.
at::ScalarType type_between_ranks(at::ScalarType type, Compress compress) {
  if (compress == Compress::kNone) return type;
  return compress == Compress::kBf16 ? at::kBFloat16 : at::kHalf;
}

/// "exp_avg.layer1.weight" is of "layer1.weight".
std::string after_dot(const std::string& name) {
  const size_t dot = name.find('.');
  return dot == std::string::npos ? std::string() : name.substr(dot + 1);
}

}  // namespace

RowRange rows_of_rank(int64_t rows, int64_t rank, int64_t world) {
  const int64_t chunk = (rows + world - 1) / world;
  const int64_t first = std::min(rank * chunk, rows);
  return {.first = first, .count = std::min(chunk, rows - first)};
}

struct FullySharded::Piece {
  std::string name;
  at::Tensor parameter;  // the model's own
  at::Tensor whole;    // the same memory, apart from autograd; freed while no one computes with it
  at::Tensor shard;    // this rank's rows
  int64_t rows = 0;    // of the whole
  int64_t row = 0;     // elements in one
  int64_t chunk = 0;   // elements that travel from a rank, the last rows' padding included
  int64_t offset = 0;  // of them in what travels from a rank
  int64_t gradient_offset = -1;  // the same for gradients; none: it is frozen

  int64_t elements_of(int64_t rank, int64_t world) const {
    return rows_of_rank(rows, rank, world).count * row;
  }
};

struct FullySharded::Flat {
  explicit Flat(at::ScalarType of) : type(of) {}
  at::ScalarType type;
  std::vector<size_t> pieces;  // of the unit
  int64_t size = 0;            // elements that travel from a rank
  int64_t gradient_size = 0;
  at::Tensor own, all;  // being gathered: [size], [world * size]
  Pending gathering;
  at::Tensor sent, received;  // being summed: [world, gradient_size]
  Pending summing;
};

struct FullySharded::Unit {
  std::string name;  // the block's; empty: the root
  nn::Block* block = nullptr;
  std::vector<Piece> pieces;
  std::vector<Flat> flats;  // one a type
  bool is_whole = false;
  bool is_gathering = false;
  bool is_summed = false;       // in this pass, or under way
  const void* input = nullptr;  // of the last use, to compare with
  bool has_gradients() const {
    return std::ranges::any_of(flats, [](const Flat& flat) { return flat.gradient_size > 0; });
  }
  bool has_all_gradients() const {
    return std::ranges::all_of(pieces, [](const Piece& piece) {
      return piece.gradient_offset < 0 || piece.parameter.grad().defined();
    });
  }
};

FullySharded::Piece FullySharded::make_piece(const std::string& name, const at::Tensor& parameter,
                                             c10::Device device, c10::ScalarType type) const {
  const int64_t world = group_->world();
  const at::TensorOptions options = parameter.options().device(device).requires_grad(false);
  Piece piece;
  piece.name = name;
  piece.parameter = parameter;
  piece.rows = row_count(parameter);
  piece.row = piece.rows == 0 ? 0 : parameter.numel() / piece.rows;
  piece.chunk = (piece.rows + world - 1) / world * piece.row;
  const RowRange own = rows_of_rank(piece.rows, group_->rank(), world);
  // The CPU's values, in the order that their rows keep in memory.
  const at::Tensor values = parameter.detach();
  const at::Tensor ordered = empty_rows(values, piece.rows, values.options());
  piece.shard = empty_rows(ordered, own.count, options);
  if (own.count > 0) {
    const at::Tensor rows =
        values.dim() == 0 ? values.view({1}) : values.narrow(0, own.first, own.count);
    piece.shard.copy_(rows);
  }
  piece.shard.set_requires_grad(parameter.requires_grad());
  piece.whole = at::empty_strided(values.sizes(), ordered.view(values.sizes()).strides(),
                                  options.dtype(type));
  return piece;
}

FullySharded::FullySharded(std::shared_ptr<Group> group, std::shared_ptr<torch::nn::Module> model,
                           c10::Device device, c10::ScalarType compute,
                           const DataParallelOptions& options)
    : group_(std::move(group)), model_(std::move(model)), options_(options) {
  const at::NoGradGuard no_grad;
  description_ = describe_model(*model_);
  units_.push_back(std::make_unique<Unit>());
  for (const auto& [name, block] : nn::named_blocks(*model_)) {
    if (units_.size() > 1 && name.starts_with(units_.back()->name + ".")) continue;
    auto unit = std::make_unique<Unit>();
    unit->name = name;
    unit->block = block;
    units_.push_back(std::move(unit));
    unit_of_[block] = units_.size() - 1;
    block->observe(this);
  }
  // A parameter under two names has its place where it was first seen, or in the root.
  std::map<const void*, size_t> uses;
  for (const auto& item : model_->named_parameters()) {
    uses[item.value().unsafeGetTensorImpl()] += 1;
  }
  std::map<const void*, std::pair<size_t, size_t>> seen;
  for (auto& item : model_->named_parameters()) {
    const auto in_unit = std::ranges::find_if(units_, [&](const auto& unit) {
      return unit->block != nullptr && item.key().starts_with(unit->name + ".");
    });
    const void* identity = item.value().unsafeGetTensorImpl();
    const size_t index = in_unit == units_.end() || uses[identity] > 1
                             ? 0
                             : static_cast<size_t>(in_unit - units_.begin());
    Unit& unit = *units_[index];
    const auto [place, is_new] = seen.try_emplace(identity, index, unit.pieces.size());
    places_[item.key()] = place->second;
    if (is_new) {
      const bool is_cast = unit.block != nullptr && is_matrix(item.value());
      unit.pieces.push_back(make_piece(item.key(), item.value(), device,
                                       is_cast ? compute : item.value().scalar_type()));
      item.value().set_data(unit.pieces.back().whole);
      free_memory(unit.pieces.back().whole);
    }
    shards_.emplace_back(item.key(),
                         units_[place->second.first]->pieces[place->second.second].shard);
  }
  for (auto& unit : units_) {
    for (size_t i = 0; i < unit->pieces.size(); ++i) {
      Piece& piece = unit->pieces[i];
      const at::ScalarType type = piece.whole.scalar_type();
      auto flat = std::ranges::find(unit->flats, type, &Flat::type);
      if (flat == unit->flats.end()) flat = unit->flats.emplace(flat, type);
      flat->pieces.push_back(i);
      piece.offset = flat->size;
      flat->size += piece.chunk;
      if (piece.parameter.requires_grad()) {
        piece.gradient_offset = flat->gradient_size;
        flat->gradient_size += piece.chunk;
      }
    }
    // Last comes, for each parameter, whether it has a gradient.
    for (Flat& flat : unit->flats) {
      if (flat.gradient_size > 0) flat.gradient_size += static_cast<int64_t>(flat.pieces.size());
    }
  }
  for (at::Tensor& buffer : model_->buffers()) buffer.set_data(buffer.to(device));
}

FullySharded::~FullySharded() {
  for (const auto& unit : units_) {
    if (unit->block != nullptr) unit->block->observe(nullptr);
  }
}

FullySharded::Whole::~Whole() {
  try {
    model_.release();
  } catch (const std::exception&) {
    // Another rank is gone: the pass ends with what it threw, or the next collective says so.
  }
}

void FullySharded::require_same_model() {
  distributed::require_same_model(*group_, std::exchange(description_, {}));
}

void FullySharded::start_gather(Unit& unit) {
  if (unit.is_whole || unit.is_gathering) return;
  const at::NoGradGuard no_grad;
  unit.is_gathering = true;
  for (Flat& flat : unit.flats) {
    const at::Device device = unit.pieces[flat.pieces.front()].shard.device();
    flat.own = at::empty({flat.size}, at::device(device).dtype(flat.type));
    for (const size_t i : flat.pieces) {
      const Piece& piece = unit.pieces[i];
      if (piece.shard.numel() == 0) continue;
      flat.own.narrow(0, piece.offset, piece.shard.numel()).copy_(as_row(piece.shard));
    }
    flat.all = at::empty({group_->world() * flat.size}, flat.own.options());
    if (is_apart_) {
      flat.all.view({group_->world(), flat.size}).copy_(flat.own);
    } else {
      flat.gathering = group_->start_all_gather(flat.all, flat.own, kGatherWeights);
    }
  }
}

void FullySharded::make_whole(Unit& unit) {
  if (unit.is_whole) return;
  start_gather(unit);
  const at::NoGradGuard no_grad;
  const int64_t world = group_->world();
  for (Flat& flat : unit.flats) {
    const double start_s = now_s();
    flat.gathering.wait();
    waited_s_ += now_s() - start_s;
    flat.own.reset();
    const at::Tensor by_rank = flat.all.view({world, flat.size});
    for (const size_t i : flat.pieces) {
      const Piece& piece = unit.pieces[i];
      allocate_memory(piece.whole);
      const at::Tensor into = as_row(piece.whole);
      const int64_t even = piece.chunk == 0 ? 0 : into.numel() / piece.chunk;  // ranks with as many
      if (even > 0) {
        into.narrow(0, 0, even * piece.chunk)
            .view({even, piece.chunk})
            .copy_(by_rank.narrow(0, 0, even).narrow(1, piece.offset, piece.chunk));
      }
      const int64_t rest = into.numel() - even * piece.chunk;
      if (rest > 0) {
        into.narrow(0, even * piece.chunk, rest)
            .copy_(by_rank.select(0, even).narrow(0, piece.offset, rest));
      }
    }
    flat.all.reset();
  }
  unit.is_gathering = false;
  unit.is_whole = true;
}

void FullySharded::free(Unit& unit) {
  if (!unit.is_whole) return;
  for (const Piece& piece : unit.pieces) free_memory(piece.whole);
  unit.is_whole = false;
}

void FullySharded::release() {
  for (auto& unit : units_) {
    for (Flat& flat : unit->flats) {
      flat.gathering.wait();
      flat.own.reset();
      flat.all.reset();
    }
    unit->is_gathering = false;
    free(*unit);
  }
}

void FullySharded::gather_root() { make_whole(*units_.front()); }

void FullySharded::before(nn::Block& block, const at::Tensor& x) {
  const size_t index = unit_of_.at(&block);
  Unit& unit = *units_[index];
  make_whole(unit);
  if (index + 1 < units_.size()) start_gather(*units_[index + 1]);
  if (!at::GradMode::is_enabled() || !x.requires_grad()) return;
  unit.input = x.unsafeGetTensorImpl();
  x.register_hook([this, index](const at::Tensor&) { end_backward(*units_[index]); });
}

void FullySharded::after(nn::Block& block, const at::Tensor& /*x*/, const at::Tensor& y) {
  const size_t index = unit_of_.at(&block);
  const bool has_backward = at::GradMode::is_enabled() && y.requires_grad();
  const bool is_last = index + 1 == units_.size();  // its backward pass is what follows
  if (!has_backward || !is_last) free(*units_[index]);
  if (!has_backward) return;
  y.register_hook([this, index, output = y.unsafeGetTensorImpl()](const at::Tensor&) {
    // The block after this one is through, and its memory free, before this one takes some.
    if (index + 1 < units_.size() && units_[index + 1]->input == output) {
      end_backward(*units_[index + 1]);
    }
    make_whole(*units_[index]);
    if (index > 1) start_gather(*units_[index - 1]);
  });
}

void FullySharded::end_backward(Unit& unit) {
  free(unit);
  // Where ranks may lack different gradients, all units are summed at the end, in one order.
  if (!unit.is_summed && !options_.unused_parameters && unit.has_all_gradients()) start_sum(unit);
}

void FullySharded::start_sum(Unit& unit) {
  finish_sums();  // one unit at a time: it bounds the memory
  unit.is_summed = true;
  const at::NoGradGuard no_grad;
  const int64_t world = group_->world();
  for (Flat& flat : unit.flats) {
    if (flat.gradient_size == 0) continue;
    const at::ScalarType type = type_between_ranks(flat.type, options_.compress);
    const at::Device device = unit.pieces[flat.pieces.front()].shard.device();
    flat.sent = at::empty({world, flat.gradient_size}, at::device(device).dtype(type));
    const auto flags = static_cast<int64_t>(flat.pieces.size());
    const at::Tensor has_gradient = at::zeros({flags});
    for (int64_t k = 0; k < flags; ++k) {
      const Piece& piece = unit.pieces[flat.pieces[static_cast<size_t>(k)]];
      if (piece.gradient_offset < 0) continue;
      const at::Tensor into = flat.sent.narrow(1, piece.gradient_offset, piece.chunk);
      at::Tensor& gradient = piece.parameter.mutable_grad();
      if (!gradient.defined()) {
        if (!options_.unused_parameters) {
          throw Error(
              Exit::kRecipe,
              "{} has no gradient: the loss leaves it out. Freeze it (model.freeze), or set "
              "distributed.unused_parameters = true",
              piece.name);
        }
        into.zero_();
        continue;
      }
      has_gradient[k] = 1;
      const at::Tensor rows = as_row(in_order_of(piece.whole, gradient));
      const int64_t even = piece.chunk == 0 ? 0 : rows.numel() / piece.chunk;
      if (even > 0) {
        into.narrow(0, 0, even)
            .copy_(rows.narrow(0, 0, even * piece.chunk).view({even, piece.chunk}));
      }
      const int64_t rest = rows.numel() - even * piece.chunk;
      if (rest > 0)
        into.select(0, even).narrow(0, 0, rest).copy_(rows.narrow(0, even * piece.chunk, rest));
      gradient = at::Tensor();
    }
    flat.sent.narrow(1, flat.gradient_size - flags, flags).copy_(has_gradient);
    flat.received = at::empty_like(flat.sent);
    if (is_apart_) {
      flat.received.copy_(flat.sent.select(0, group_->rank()));
    } else {
      flat.summing = group_->start_all_to_all(flat.received, flat.sent, kSumRows);
    }
  }
  summing_ = &unit;
}

void FullySharded::finish_sums() {
  if (summing_ == nullptr) return;
  const at::NoGradGuard no_grad;
  Unit& unit = *std::exchange(summing_, nullptr);
  for (Flat& flat : unit.flats) {
    if (flat.gradient_size == 0) continue;
    const double start_s = now_s();
    flat.summing.wait();
    waited_s_ += now_s() - start_s;
    flat.sent.reset();
    at::Tensor counts;  // of ranks that have a gradient
    if (options_.unused_parameters) {
      const auto flags = static_cast<int64_t>(flat.pieces.size());
      counts = flat.received.narrow(1, flat.gradient_size - flags, flags)
                   .sum({0}, /*keepdim=*/false, at::kFloat)
                   .cpu();
    }
    for (size_t k = 0; k < flat.pieces.size(); ++k) {
      const Piece& piece = unit.pieces[flat.pieces[k]];
      if (piece.gradient_offset < 0) continue;
      if (counts.defined() && counts[static_cast<int64_t>(k)].item<float>() == 0) continue;
      const at::Tensor sum = flat.received.narrow(1, piece.gradient_offset, piece.shard.numel())
                                 .sum({0}, /*keepdim=*/false, piece.shard.scalar_type());
      at::Tensor& gradient = piece.shard.mutable_grad();
      if (gradient.defined()) {
        as_row(gradient).add_(sum);
      } else {
        gradient = at::empty_like(piece.shard);
        as_row(gradient).copy_(sum);
      }
    }
    flat.received.reset();
  }
}

void FullySharded::before_forward(bool /*sums*/) {
  started_s_ = now_s();
  waited_s_ = 0;
  gather_root();
}

bool FullySharded::backward(const at::Tensor& /*loss*/, bool sums,
                            const std::function<void()>& backward) {
  const double waited_in_forward_s = waited_s_;
  for (auto& unit : units_) unit->is_summed = !unit->has_gradients();
  backward();
  for (size_t i = units_.size(); i-- > 0;) {
    if (i > 0 || sums) free(*units_[i]);
    if (!units_[i]->is_summed) start_sum(*units_[i]);
  }
  finish_sums();
  if (sums) release();
  exposed_s_ = waited_s_ - waited_in_forward_s;
  compute_s_ += now_s() - started_s_ - waited_s_;
  return !is_apart_ || !sums || !group_->any(false, kOutcome);
}

void FullySharded::give_up() { group_->any(true, kOutcome); }

void FullySharded::reset() {
  summing_ = nullptr;
  for (auto& unit : units_) {
    for (Flat& flat : unit->flats) {
      flat.summing.wait();
      flat.sent.reset();
      flat.received.reset();
    }
    for (Piece& piece : unit->pieces) {
      piece.parameter.mutable_grad() = at::Tensor();
      piece.shard.mutable_grad() = at::Tensor();
    }
  }
  release();
}

const FullySharded::Piece* FullySharded::find(const std::string& name) const {
  auto found = places_.find(name);
  if (found == places_.end()) found = places_.find(after_dot(name));
  if (found == places_.end()) return nullptr;
  return &units_[found->second.first]->pieces[found->second.second];
}

void FullySharded::gather(const optim::State& own, optim::StateWriter* into) {
  const at::NoGradGuard no_grad;
  const auto rows_of = [&](const std::string& name, const at::Tensor& tensor) {
    return tensor.dim() == 0 ? nullptr : find(name);  // a number is not split
  };
  if (into != nullptr) {
    optim::State layout;
    for (const auto& [name, tensor] : own) {
      const Piece* piece = rows_of(name, tensor);
      layout[name] = at::empty(piece == nullptr ? tensor.sizes() : piece->parameter.sizes(),
                               tensor.options().device(at::kMeta).requires_grad(false));
    }
    into->begin(layout);
  }
  for (const auto& [name, tensor] : own) {
    const Piece* piece = rows_of(name, tensor);
    if (piece == nullptr) {
      if (into != nullptr) into->write(name, 0, tensor.detach().cpu().contiguous());
      continue;
    }
    const int64_t row_bytes = piece->row * static_cast<int64_t>(tensor.element_size());
    const int64_t most = std::max<int64_t>(1, kGatheredBytes / std::max<int64_t>(1, row_bytes));
    for (int64_t owner = 0; owner < group_->world(); ++owner) {
      const RowRange range = rows_of_rank(piece->rows, owner, group_->world());
      for (int64_t first = 0; first < range.count && piece->row > 0; first += most) {
        const int64_t count = std::min(most, range.count - first);
        // As rows lie in a file.
        const at::Tensor rows =
            owner == group_->rank()
                ? tensor.detach().narrow(0, first, count).contiguous()
                : at::empty(sizes_of(tensor, count), tensor.options().requires_grad(false));
        group_->broadcast(rows, kGatherState, owner);
        if (into != nullptr) into->write(name, range.first + first, rows.cpu());
      }
    }
  }
}

optim::State FullySharded::local_shard(const optim::State& whole, const optim::State& own) const {
  optim::State parts;
  for (const auto& [name, tensor] : whole) {
    parts[name] = tensor;  // what fits nothing stays: whoever loads it says so
    const auto ours = own.find(name);
    const Piece* piece = find(name);
    if (ours == own.end() || piece == nullptr || ours->second.sizes() == tensor.sizes() ||
        tensor.sizes() != piece->parameter.sizes()) {
      continue;
    }
    const RowRange range = rows_of_rank(piece->rows, group_->rank(), group_->world());
    const at::Tensor rows = tensor.dim() == 0 ? tensor.view({1}) : tensor;
    parts[name] = rows.narrow(0, range.first, range.count);
  }
  return parts;
}

std::string FullySharded::text() const {
  int64_t own = 0, all = 0;
  for (const auto& unit : units_) {
    for (const Piece& piece : unit->pieces) {
      own += static_cast<int64_t>(piece.shard.nbytes());
      all += piece.rows * piece.row * static_cast<int64_t>(piece.shard.element_size());
    }
  }
  return fmt::format("{}, of whose {} each rank keeps {}",
                     format_plural(static_cast<int64_t>(units_.size()), "unit"), format_bytes(all),
                     format_bytes(own));
}

}  // namespace brim::distributed
