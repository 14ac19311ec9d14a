// The ranks that train together, and what they tell each other: collectives over NCCL between CUDA
// devices, over Gloo between CPUs, and none at all for a single rank. Every rank calls the same
// members in the same order. A collective that fails, or doesn't end within the time limit, is an
// Error(kDistributed) that names the rank that is missing.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "framework/distributed/ranks.h"

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d

namespace brim::distributed {

class Watchdog;

/// kAuto is NCCL where the device is a GPU.
enum class Backend { kAuto, kNccl, kGloo };

enum class Reduce { kSum, kMax };

/// A collective or a message under way. The tensor holds the result after wait().
class Pending {
 public:
  Pending() = default;
  bool is_under_way() const { return !works_.empty(); }
  bool is_done() const;
  void wait();

 private:
  friend class Group;
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
  Watchdog* watchdog_ = nullptr;
  std::string_view what_;
  bool is_message_ = false;
  int64_t number_ = 0;  // Watchdog's, of the collective
};

class Group {
 public:
  /// One rank alone: every collective is a no-op.
  static std::shared_ptr<Group> alone();

  /// A rank of `ranks.world` of which no other one is there: every collective is a no-op. For
  /// models without storage, and for passes of a model that stays apart (fully_sharded.h).
  static std::shared_ptr<Group> apart(Ranks ranks);

  /// Meets the other ranks. CUDA tensors travel by NCCL unless Gloo is asked for, CPU tensors by
  /// Gloo. Throws Error(kRecipe) for NCCL without a GPU, Error(kDistributed) where they don't meet
  /// within `limit`, disagree on how many they are, or two claim to be the same one. A stop ends
  /// the process (NothingToSave). With `checks`, ranks compare each collective before it runs: one
  /// that differs throws Error(kDistributed) on all.
  static std::shared_ptr<Group> connect(const Ranks& ranks, c10::Device device, Backend backend,
                                        std::chrono::milliseconds limit, bool checks = false);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  /// The ranks first, first + stride, … of this group, `count` in all, among which this one is;
  /// made once under a name. Every rank calls it, each for its own part.
  std::shared_ptr<Group> part(const std::string& name, int64_t first, int64_t count,
                              int64_t stride);

  int64_t rank() const { return ranks_.rank; }
  int64_t world() const { return ranks_.world; }
  const Ranks& ranks() const { return ranks_; }
  bool is_single_rank() const { return ranks_.world == 1; }
  bool is_main() const { return ranks_.rank == 0; }

  // `what` names the collective in messages, as in "the sum of gradients"; it outlives the group.
  // Tensors are dense; a collective writes to them in place.
  void all_reduce(const at::Tensor& tensor, Reduce how, std::string_view what);
  Pending start_all_reduce(const at::Tensor& tensor, Reduce how, std::string_view what);
  void broadcast(const at::Tensor& tensor, std::string_view what, int64_t root = 0);
  Pending start_broadcast(const at::Tensor& tensor, std::string_view what, int64_t root = 0);
  /// Row r of `rows` [world, n] is rank r's to fill; every rank gets all of them.
  Pending start_all_gather(const at::Tensor& rows, std::string_view what);
  /// The sum of all ranks' rows [world, n] goes to their ranks, row r to rank r: it is that of
  /// `parts` [k, n] over k, where k is parts_of_sum().
  Pending start_reduce_scatter(const at::Tensor& parts, const at::Tensor& rows,
                               std::string_view what);
  /// To and from another rank of this group; of two ranks' messages in one direction, both begin
  /// the same one first. Not empty; a message that is sent stays as it is until wait().
  Pending start_send(const at::Tensor& tensor, int64_t to, std::string_view what);
  Pending start_receive(const at::Tensor& tensor, int64_t from, std::string_view what);
  /// 1 on a GPU. Gloo has no such sum: there each rank's row arrives by itself.
  int64_t parts_of_sum(c10::Device device) const { return device.is_cuda() ? 1 : world(); }
  void barrier(std::string_view what);
  /// Whether any rank says so.
  bool any(bool own, std::string_view what);
  /// Rank `root`'s text.
  std::string broadcast(const std::string& text, std::string_view what, int64_t root = 0);
  /// Every rank's text, by rank.
  std::vector<std::string> all_gather(const std::string& text, std::string_view what);

  /// Runs what ends in collectives of LibTorch's own, and gives their failures the group's words.
  void run(std::string_view what, const std::function<void()>& body);

  /// Runs `body` on every rank. Where it throws on some, all throw: those with an Error of their
  /// own that one, unless an earlier rank's says the same; the others an empty one of its status.
  void all_or_none(std::string_view what, const std::function<void()>& body);

  /// For the heartbeat: steps finished so far.
  void step(int64_t finished_steps);
  /// Tells the others why this rank ends before its time.
  void report_failure(int status, const std::string& why);
  /// Waits until every rank has come here. After it ranks may go.
  void finish();

  /// For LibTorch's reducer. Null for a single rank, and apart from the others.
  const c10::intrusive_ptr<c10d::ProcessGroup>& process_group() const { return process_group_; }

 private:
  explicit Group(Ranks ranks);
  [[noreturn]] void fail(std::string_view what, const std::exception& error);
  /// `collective(tensors)` begins it and returns its c10d::Work, or several.
  template <class Collective>
  Pending start(const at::Tensor& tensor, std::string_view what, Collective collective,
                bool is_message = false);

  /// Connects these ranks, under keys of the store that begin with `prefix`.
  using Connect = std::function<c10::intrusive_ptr<c10d::ProcessGroup>(const std::string& prefix,
                                                                       const Ranks& ranks)>;

  Ranks ranks_;
  Connect connect_;
  c10::intrusive_ptr<c10d::ProcessGroup> process_group_;
  std::shared_ptr<Watchdog> watchdog_;
  std::map<std::string, std::shared_ptr<Group>> parts_;
  bool is_finished_ = false;
};

}  // namespace brim::distributed
