#include "framework/distributed/sharded_unit.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "framework/base/error.h"
#include "framework/base/units.h"

namespace brim::distributed {
namespace {

constexpr const char* kGatherWeights = "the gathering of a block's weights";
constexpr const char* kSumRows = "the sum of a block's gradients";

/// A dense tensor's memory.
at::Tensor memory_row(const at::Tensor& tensor) {
  return tensor.as_strided({tensor.numel()}, {1}, tensor.storage_offset());
}

/// `rows` rows like those of `like`, one after the other in memory, and inside in its order where
/// that can be.
at::Tensor empty_rows(const at::Tensor& like, int64_t rows, const at::TensorOptions& options) {
  if (like.dim() == 0) return at::empty({rows}, options);
  std::vector<int64_t> sizes = like.sizes().vec();
  sizes[0] = rows;
  const bool has_rows = like.numel() > 0 && like.is_non_overlapping_and_dense() &&
                        (like.size(0) == 1 || like.stride(0) == like.numel() / like.size(0));
  if (!has_rows || rows == 0) return at::empty(sizes, options);
  return at::empty_strided(sizes, like.strides(), options);
}

/// `tensor` with the strides of `order`.
at::Tensor in_order_of(const at::Tensor& order, const at::Tensor& tensor) {
  if (tensor.strides() == order.strides()) return tensor;
  return at::empty_strided(order.sizes(), order.strides(), tensor.options()).copy_(tensor);
}

c10::StorageImpl& storage_impl(const at::Tensor& tensor) {
  return *tensor.storage().unsafeGetStorageImpl();
}

void free_memory(const at::Tensor& tensor) {
  storage_impl(tensor).set_data_ptr_noswap(c10::DataPtr(nullptr, tensor.device()));
  storage_impl(tensor).unsafe_set_nbytes(0);
}

/// Memory that messages have used, which are waited for: Gloo's threads may hold the tensor a while
/// longer.
void release(at::Tensor& tensor) {
  if (tensor.defined()) free_memory(tensor);
  tensor.reset();
}

void allocate_memory(const at::Tensor& tensor) {
  const size_t bytes = tensor.nbytes();
  storage_impl(tensor).set_data_ptr_noswap(storage_impl(tensor).allocator()->allocate(bytes));
  storage_impl(tensor).unsafe_set_nbytes(bytes);
}

/// Between a parameter's elements in a row and `by_rank`, [world, n] of which chunk elements from
/// `offset` on are each rank's: calls copy(row's part, ranks' part) for the ranks that have a full
/// chunk, and for the one that has the rest.
template <class Copy>
void by_chunks(const at::Tensor& row, const at::Tensor& by_rank, int64_t offset, int64_t chunk,
               const Copy& copy) {
  if (chunk == 0) return;
  const int64_t full = row.numel() / chunk, rest = row.numel() % chunk;
  if (full > 0) {
    copy(row.narrow(0, 0, full * chunk).view({full, chunk}),
         by_rank.narrow(0, 0, full).narrow(1, offset, chunk));
  }
  if (rest > 0) {
    copy(row.narrow(0, full * chunk, rest), by_rank.select(0, full).narrow(0, offset, rest));
  }
}

/// The type in which gradients travel.
at::ScalarType type_between_ranks(at::ScalarType type, Compress compress) {
  if (compress == Compress::kNone) return type;
  return compress == Compress::kBf16 ? at::kBFloat16 : at::kHalf;
}

/// The sum of the rows of `parts`, in that type. LibTorch would make all of them that type first,
/// beside them, on a CPU: here a slice at a time.
at::Tensor sum_of_rows(const at::Tensor& parts, at::ScalarType type) {
  constexpr int64_t kSlice = 1 << 16;
  if (parts.is_cuda() || parts.scalar_type() == type)
    return parts.sum({0}, /*keepdim=*/false, type);
  const at::Tensor sum = at::empty({parts.size(1)}, parts.options().dtype(type));
  for (int64_t first = 0; first < sum.numel(); first += kSlice) {
    const int64_t count = std::min(kSlice, sum.numel() - first);
    at::Tensor slice = sum.narrow(0, first, count);
    at::sum_out(slice, parts.narrow(1, first, count), {0}, /*keepdim=*/false);
  }
  return sum;
}

void wait_for(Pending& pending, ShardedExchange& exchange) {
  const double start_s = now_s();
  pending.wait();
  exchange.waited_s += now_s() - start_s;
}

}  // namespace

int64_t row_count(const at::Tensor& tensor) { return tensor.dim() == 0 ? 1 : tensor.size(0); }

RowRange rows_of_rank(int64_t rows, int64_t rank, int64_t world) {
  const int64_t chunk = (rows + world - 1) / world;
  const int64_t first = std::min(rank * chunk, rows);
  return {.first = first, .count = std::min(chunk, rows - first)};
}

bool is_matrix(const at::Tensor& parameter) {
  return std::ranges::count_if(parameter.sizes(), [](int64_t size) { return size > 1; }) > 1;
}

void ShardedUnit::add(const std::string& name, at::Tensor& parameter, c10::Device device,
                      c10::ScalarType type, int64_t rank, int64_t world) {
  const at::NoGradGuard no_grad;
  const at::TensorOptions options = parameter.options().device(device).requires_grad(false);
  const bool is_trained = parameter.requires_grad();
  Piece piece;
  piece.name = name;
  piece.parameter = parameter;
  piece.rows = row_count(parameter);
  piece.row = piece.rows == 0 ? 0 : parameter.numel() / piece.rows;
  piece.chunk = (piece.rows + world - 1) / world * piece.row;
  const RowRange own = rows_of_rank(piece.rows, rank, world);
  const at::Tensor values = parameter.detach();
  piece.shard = empty_rows(values, own.count, options);
  if (own.count > 0) {
    const at::Tensor rows = values.dim() == 0 ? values.view({1}) : values;
    piece.shard.copy_(rows.narrow(0, own.first, own.count));
  }
  piece.shard.set_requires_grad(is_trained);
  piece.whole = empty_rows(values, piece.rows, options.dtype(type)).view(values.sizes());

  auto flat = std::ranges::find(flats_, type, &Flat::type);
  if (flat == flats_.end()) flat = flats_.emplace(flat, type);
  piece.offset = flat->size;
  flat->size += piece.chunk;
  flat->pieces.push_back(pieces_.size());
  if (is_trained) {
    piece.gradient_offset = flat->gradient_elements;
    flat->gradient_elements += piece.chunk;
  }
  parameter.set_data(piece.whole);
  free_memory(piece.whole);
  pieces_.push_back(std::move(piece));
}

bool ShardedUnit::is_trained() const {
  return std::ranges::any_of(flats_, [](const Flat& flat) { return flat.gradient_elements > 0; });
}

bool ShardedUnit::has_all_gradients() const {
  return std::ranges::all_of(pieces_, [](const Piece& piece) {
    return piece.gradient_offset < 0 || piece.parameter.grad().defined();
  });
}

void ShardedUnit::start_gather(ShardedExchange& exchange) {
  const at::NoGradGuard no_grad;
  for (Flat& flat : flats_) {
    const at::Device device = pieces_[flat.pieces.front()].shard.device();
    flat.rows =
        at::empty({exchange.shards->world(), flat.size}, at::device(device).dtype(flat.type));
    const at::Tensor own = flat.rows.select(0, exchange.shards->rank());
    for (const size_t i : flat.pieces) {
      const Piece& piece = pieces_[i];
      if (piece.shard.numel() == 0) continue;
      own.narrow(0, piece.offset, piece.shard.numel()).copy_(memory_row(piece.shard));
    }
  }
  // Memory runs out before the first of them is begun, or not at all.
  is_gathering_ = true;
  for (Flat& flat : flats_) {
    if (!exchange.is_apart) {
      flat.gathering = exchange.shards->start_all_gather(flat.rows, kGatherWeights);
      continue;
    }
    const at::Tensor own = flat.rows.select(0, exchange.shards->rank());
    for (int64_t rank = 0; rank < exchange.shards->world(); ++rank) {
      if (rank != exchange.shards->rank()) flat.rows.select(0, rank).copy_(own);
    }
  }
}

void ShardedUnit::make_whole(ShardedExchange& exchange) {
  if (is_whole_) return;
  const at::NoGradGuard no_grad;
  for (Flat& flat : flats_) wait_for(flat.gathering, exchange);
  is_gathering_ = false;
  is_whole_ = true;
  for (Flat& flat : flats_) {
    for (const size_t i : flat.pieces) {
      const Piece& piece = pieces_[i];
      allocate_memory(piece.whole);
      by_chunks(memory_row(piece.whole), flat.rows, piece.offset, piece.chunk,
                [](const at::Tensor& row, const at::Tensor& ranks) { row.copy_(ranks); });
    }
    release(flat.rows);
  }
}

void ShardedUnit::free() {
  if (!is_whole_) return;
  for (const Piece& piece : pieces_) free_memory(piece.whole);
  is_whole_ = false;
}

void ShardedUnit::make_room_for_sum(const ShardedExchange& exchange) {
  for (Flat& flat : flats_) {
    const at::ScalarType type = type_between_ranks(flat.type, exchange.compress);
    const at::Device device = pieces_[flat.pieces.front()].shard.device();
    flat.sent =
        at::empty({exchange.shards->world(), flat.gradient_size()}, at::device(device).dtype(type));
    flat.received = at::empty({exchange.shards->parts_of_sum(device), flat.gradient_size()},
                              flat.sent.options());
  }
}

void ShardedUnit::pack_gradients(Flat& flat, bool may_lack_some) const {
  const auto flags = static_cast<int64_t>(flat.pieces.size());
  const at::Tensor has_gradient = at::zeros({flags});
  for (int64_t k = 0; k < flags; ++k) {
    const Piece& piece = pieces_[flat.pieces[static_cast<size_t>(k)]];
    if (piece.gradient_offset < 0) continue;
    at::Tensor& gradient = piece.parameter.mutable_grad();
    if (gradient.defined()) {
      has_gradient[k] = 1;
      by_chunks(memory_row(in_order_of(piece.whole, gradient)), flat.sent, piece.gradient_offset,
                piece.chunk,
                [](const at::Tensor& row, const at::Tensor& ranks) { ranks.copy_(row); });
      gradient = at::Tensor();
    } else if (may_lack_some) {
      flat.sent.narrow(1, piece.gradient_offset, piece.chunk).zero_();
    } else {
      throw Error(Exit::kRecipe,
                  "{} has no gradient: the loss leaves it out. Freeze it (model.freeze), or set "
                  "distributed.unused_parameters = true",
                  piece.name);
    }
  }
  const at::Tensor sent_flags = flat.sent.narrow(1, flat.gradient_elements, flags);
  if (may_lack_some) {
    sent_flags.copy_(has_gradient);
  } else {
    sent_flags.fill_(1);  // a copy from the host would wait for the device
  }
}

void ShardedUnit::send(Flat& flat, ShardedExchange& exchange) {
  if (exchange.is_apart) {
    flat.received.copy_(flat.sent.select(0, exchange.shards->rank()));  // as if each sent the same
  } else {
    flat.summing = exchange.shards->start_reduce_scatter(flat.received, flat.sent, kSumRows);
  }
}

void ShardedUnit::start_sum(ShardedExchange& exchange) {
  const at::NoGradGuard no_grad;
  make_room_for_sum(exchange);
  for (Flat& flat : flats_) {
    if (flat.gradient_elements > 0) pack_gradients(flat, exchange.unused_parameters);
  }
  for (Flat& flat : flats_) {
    if (flat.gradient_elements > 0) send(flat, exchange);
  }
}

void ShardedUnit::start_empty_sum(ShardedExchange& exchange) {
  const at::NoGradGuard no_grad;
  make_room_for_sum(exchange);
  for (Flat& flat : flats_) {
    if (flat.gradient_elements == 0) continue;
    flat.sent.zero_();
    send(flat, exchange);
  }
}

void ShardedUnit::start_sum_of_replicas(ShardedExchange& exchange) {
  const at::NoGradGuard no_grad;
  for (Flat& flat : flats_) {
    if (!flat.received.defined() || flat.gradient_elements == 0) continue;
    wait_for(flat.summing, exchange);
    release(flat.sent);
    flat.sum = sum_of_rows(flat.received, pieces_[flat.pieces.front()].shard.scalar_type());
    release(flat.received);
  }
  if (exchange.is_apart) return;
  for (Flat& flat : flats_) {
    if (flat.gradient_elements == 0) continue;
    flat.summing = exchange.replicas->start_all_reduce(flat.sum, Reduce::kSum, kSumRows);
  }
}

void ShardedUnit::finish_sum(ShardedExchange& exchange) {
  const at::NoGradGuard no_grad;
  for (Flat& flat : flats_) {
    if (flat.gradient_elements == 0) continue;
    wait_for(flat.summing, exchange);
    const auto flags = static_cast<int64_t>(flat.pieces.size());
    at::Tensor counts;  // of ranks that have a gradient
    if (exchange.unused_parameters) {
      counts = flat.sum.narrow(0, flat.gradient_elements, flags).to(at::kCPU, at::kDouble);
    }
    for (int64_t k = 0; k < flags; ++k) {
      const Piece& piece = pieces_[flat.pieces[static_cast<size_t>(k)]];
      if (piece.gradient_offset < 0) continue;
      if (counts.defined() && counts[k].item<double>() == 0) continue;
      const at::Tensor sum = flat.sum.narrow(0, piece.gradient_offset, piece.shard.numel());
      at::Tensor& gradient = piece.shard.mutable_grad();
      if (gradient.defined()) {
        memory_row(gradient).add_(sum);
      } else {
        gradient = at::empty_like(piece.shard);
        memory_row(gradient).copy_(sum);
      }
    }
    release(flat.sum);
  }
}

void ShardedUnit::reset() {
  for (Flat& flat : flats_) {
    flat.gathering.wait();
    flat.summing.wait();
    for (at::Tensor* tensor : {&flat.rows, &flat.sent, &flat.received, &flat.sum}) release(*tensor);
  }
  is_gathering_ = false;
  free();
  for (const Piece& piece : pieces_) {
    piece.parameter.mutable_grad() = at::Tensor();
    piece.shard.mutable_grad() = at::Tensor();
  }
}

}  // namespace brim::distributed
