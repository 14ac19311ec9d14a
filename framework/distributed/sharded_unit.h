// Parameters that are gathered and freed together, and whose gradients are summed together: a block
// of a fully sharded model. Each rank keeps some rows of each of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/distributed/data_parallel.h"
#include "framework/distributed/group.h"

namespace brim::distributed {

/// Rows of dimension 0 that rank `rank` of `world` has: as many as the others, but for the last
/// ranks, which may have fewer or none.
struct RowRange {
  int64_t first = 0;
  int64_t count = 0;
  bool operator==(const RowRange&) const = default;
};
/// Of dimension 0; a scalar is one.
int64_t row_count(const at::Tensor& tensor);
RowRange rows_of_rank(int64_t rows, int64_t rank, int64_t world);

/// Whether an operator's matrix products read it: it has rows of more than one element.
bool is_matrix(const at::Tensor& parameter);

/// What passes between this rank and the others.
struct ShardedExchange {
  std::shared_ptr<Group> shards;    // the ranks that share one copy of the model
  std::shared_ptr<Group> replicas;  // those that have the same rows
  Compress compress = Compress::kNone;
  bool unused_parameters = false;
  bool is_apart = false;  // nothing travels: others' rows hold what this rank's do
  double waited_s = 0;    // added to
};

class ShardedUnit {
 public:
  struct Piece {  // of one parameter
    std::string name;
    at::Tensor parameter;  // the model's own
    at::Tensor whole;   // the same memory, apart from autograd; freed while no one computes with it
    at::Tensor shard;   // this rank's rows
    int64_t rows = 0;   // of the whole; 1 where it has no dimensions
    int64_t row = 0;    // elements in one
    int64_t chunk = 0;  // elements that travel from a rank, padding included
    int64_t offset = 0;            // of them in what travels from a rank
    int64_t gradient_offset = -1;  // the same for gradients; none: it is frozen
  };

  explicit ShardedUnit(std::string name) : name_(std::move(name)) {}

  /// Takes the parameter, which is on the CPU, apart: its rows go to `device`, its memory is freed.
  /// It will be gathered as `type`. All are added before anything else is done.
  void add(const std::string& name, at::Tensor& parameter, c10::Device device, c10::ScalarType type,
           int64_t rank, int64_t world);

  const std::string& name() const { return name_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  bool is_trained() const;
  bool has_all_gradients() const;

  /// Whether it is whole already, or on its way.
  bool is_gathered() const { return is_whole_ || is_gathering_; }
  void start_gather(ShardedExchange& exchange);
  /// Waits for a gathering that was begun.
  void make_whole(ShardedExchange& exchange);
  void free();

  /// Sends the parameters' gradients, which are then undefined, on their way. Throws Error(kRecipe)
  /// for one that is missing, unless exchange.unused_parameters.
  void start_sum(ShardedExchange& exchange);
  /// The same, without gradients, for a rank that takes part for the others' sake.
  void start_empty_sum(ShardedExchange& exchange);
  /// Waits for what other shards have sent; the sums of replicas are on their way.
  void start_sum_of_replicas(ShardedExchange& exchange);
  /// Adds what has come to the gradients of this rank's rows. Those that no rank has stay as they
  /// are.
  void finish_sum(ShardedExchange& exchange);

  /// Waits for what is under way, and forgets it and all gradients.
  void reset();

 private:
  struct Flat {  // pieces of one type, which travel in a row
    explicit Flat(at::ScalarType of) : type(of) {}
    at::ScalarType type;
    std::vector<size_t> pieces;
    int64_t size = 0;               // elements that travel from a rank
    int64_t gradient_elements = 0;  // that travel to a rank
    /// Last comes, for each piece, whether it has a gradient.
    int64_t gradient_size() const {
      return gradient_elements == 0 ? 0 : gradient_elements + static_cast<int64_t>(pieces.size());
    }
    at::Tensor rows;  // being gathered: [world, size]
    Pending gathering;
    at::Tensor sent, received;  // being summed: [world, gradient_size], [parts, gradient_size]
    at::Tensor sum;             // of this rank: [gradient_size]
    Pending summing;
  };
  void make_room_for_sum(const ShardedExchange& exchange);
  void pack_gradients(Flat& flat, bool may_lack_some) const;
  static void send(Flat& flat, ShardedExchange& exchange);

  std::string name_;
  std::vector<Piece> pieces_;
  std::vector<Flat> flats_;
  bool is_whole_ = false;
  bool is_gathering_ = false;
};

}  // namespace brim::distributed
