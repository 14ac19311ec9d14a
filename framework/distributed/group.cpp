#include "framework/distributed/group.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gloo/common/error.h>
#include <gloo/common/logging.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/base/stop.h"
#include "framework/base/torchelastic.h"
#include "framework/device/cuda_loader.h"
#include "framework/device/memory/memory.h"
#include "framework/distributed/gloo.h"
#include "framework/distributed/store.h"
#include "framework/distributed/watchdog.h"

namespace brim::distributed {
namespace {

using std::chrono::milliseconds;
using BackendType = c10d::ProcessGroup::BackendType;

c10d::ReduceOp operation(Reduce how) {
  switch (how) {
    case Reduce::kSum:
      return c10d::ReduceOp::SUM;
    case Reduce::kMax:
      return c10d::ReduceOp::MAX;
  }
  return c10d::ReduceOp::SUM;
}

/// The collective's own limit, after the watchdog's: the watchdog knows who is missing.
milliseconds after(milliseconds limit) { return limit + limit / 2 + milliseconds(5000); }

c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(const OpenStore& open, const Ranks& ranks,
                                                          c10::Device device, Backend backend,
                                                          milliseconds limit, bool checks,
                                                          const std::string& prefix) {
  const int rank = static_cast<int>(ranks.rank), world = static_cast<int>(ranks.world);
  const bool uses_nccl = device.is_cuda() && backend != Backend::kGloo;
  const auto own = [&](const char* name) {
    return c10::make_intrusive<c10d::PrefixStore>(prefix + name, open.store);
  };
  const auto gloo = [&](const char* name) {
    return make_gloo(own(name), rank, world, open.address, after(limit));
  };
  const auto checked = [&](const c10::intrusive_ptr<c10d::Backend>& one, const char* name) {
    return checks ? with_checks(one, gloo(name)) : one;
  };
  auto group = c10::make_intrusive<c10d::ProcessGroup>(own("group"), rank, world);
  group->setBackend(c10::kCPU, BackendType::GLOO, checked(gloo("gloo"), "checks"));
  group->setDefaultBackend(BackendType::GLOO);
  if (device.is_cuda() && !uses_nccl) {
    group->setBackend(c10::kCUDA, BackendType::GLOO, group->getBackend(c10::kCPU));
  }
  if (uses_nccl) {
    group->setBackend(c10::kCUDA, BackendType::NCCL,
                      checked(device::cuda().backend->make_nccl(own("nccl"), rank, world,
                                                                device.index(), after(limit)),
                              "checks of nccl"));
    group->setDefaultBackend(BackendType::NCCL);
  }
  return group;
}

void abort_nccl(c10d::ProcessGroup& group) {
  if (group.getBackendType() != BackendType::NCCL) return;
  try {
    group.getBackend(c10::kCUDA)->abort();
  } catch (const std::exception& error) {
    log::warning("NCCL's communicator could not be given up: {}", error.what());
  }
}

std::string in_one_line(const std::string& text) {
  std::istringstream words(text);
  std::string line;
  for (std::string word; words >> word;) line += (line.empty() ? "" : " ") + word;
  return line;
}

/// Marks the time in a collective, or in a wait for a message, for the heartbeat.
class Marked {
 public:
  Marked(Watchdog& watchdog, std::string_view what, Inside how, int64_t started)
      : watchdog_(watchdog), outer_(watchdog.enter(what, how, started)) {}
  ~Marked() { watchdog_.leave(outer_); }
  Marked(const Marked&) = delete;
  Marked& operator=(const Marked&) = delete;

 private:
  Watchdog& watchdog_;
  Watchdog::Place outer_;
};

/// Runs `body` inside a collective; what a missing rank makes it throw becomes words, what the
/// maths inside it throws stays what it is.
template <class Body>
void guarded(Watchdog& watchdog, std::string_view what, const Body& body,
             Inside how = Inside::kCollective, int64_t started = 0) {
  const Marked marked(watchdog, what, how, started);
  const auto fail = [&](const char* error) {
    if (const Error known = current_error(); known.status() == Exit::kResource) throw Error(known);
    throw Error(Exit::kDistributed, watchdog.explain(error));
  };
  try {
    body();
  } catch (const c10::DistError& error) {  // its what() ends with LibTorch's stack
    fail(error.what_without_backtrace());
  } catch (const gloo::Exception& error) {
    fail(error.what());
  } catch (const gloo::EnforceNotMet& error) {
    fail(error.what());
  } catch (const c10::Error& error) {
    const std::string said = error.what_without_backtrace();
    if (!said.starts_with(kMismatch)) throw;
    throw Error(Exit::kDistributed, "the ranks don't do the same; this one is in {}. LibTorch: {}",
                what, in_one_line(said));
  }
}

}  // namespace

bool Pending::is_done() const {
  return std::ranges::all_of(works_, [](const auto& work) { return work->isCompleted(); });
}

void Pending::wait() {
  if (works_.empty()) return;
  const auto wait_for_all = [this] {
    for (const auto& work : works_) work->wait();
  };
  guarded(*watchdog_, what_, wait_for_all, is_message_ ? Inside::kMessage : Inside::kCollective,
          number_);
  works_.clear();
}

Group::Group(Ranks ranks) : ranks_(std::move(ranks)) {}
Group::~Group() {
  // A communicator that is left as it is waits for ranks that may be gone.
  if (process_group_ && !is_finished_) abort_nccl(*process_group_);
}

std::shared_ptr<Group> Group::alone() { return std::shared_ptr<Group>(new Group(Ranks{})); }

std::shared_ptr<Group> Group::apart(Ranks ranks) {
  return std::shared_ptr<Group>(new Group(std::move(ranks)));
}

std::shared_ptr<Group> Group::connect(const Ranks& ranks, c10::Device device, Backend backend,
                                      milliseconds limit, bool checks) {
  if (backend == Backend::kNccl && !device.is_cuda()) {
    throw Error(Exit::kRecipe,
                "[distributed] backend = \"nccl\" needs GPUs, and this rank trains on {}; leave it "
                "to \"auto\"",
                device.str());
  }
  if (ranks.world == 1) return std::shared_ptr<Group>(new Group(ranks));
  const NothingToSave while_ranks_meet;
  std::shared_ptr<Group> group(new Group(ranks));
  const OpenStore open = open_store(ranks, limit);
  group->connect_ = [=](const std::string& prefix, const Ranks& those) {
    return make_process_group(open, those, device, backend, limit, checks, prefix);
  };
  const bool launcher_serves = ranks.rendezvous.kind == RendezvousEndpoint::Kind::kAgent;
  group->watchdog_ = std::make_shared<Watchdog>(open.heartbeat, ranks.rank, ranks.world, limit,
                                                launcher_serves ? "the launcher" : "rank 0");
  guarded(*group->watchdog_, "the rendezvous of the ranks",
          [&] { group->process_group_ = group->connect_("", ranks); });
  group->barrier("the rendezvous of the ranks");
  if (ranks.rank == 0 && ranks.rendezvous.kind == RendezvousEndpoint::Kind::kFile) {
    std::remove(ranks.rendezvous.file.c_str());
  }
  return group;
}

std::shared_ptr<Group> Group::part(const std::string& name, int64_t first, int64_t count,
                                   int64_t stride) {
  const auto [place, is_new] = parts_.try_emplace(name);
  if (!is_new) return place->second;
  Ranks ranks = ranks_;
  ranks.world = count;
  ranks.rank = (rank() - first) / stride;
  std::shared_ptr<Group> group(new Group(ranks));
  if (count > 1 && process_group_ != nullptr) {
    group->watchdog_ = watchdog_;
    const std::string prefix = fmt::format("{} from {} ", name, first);
    guarded(*watchdog_, "the rendezvous of a part of the ranks",
            [&] { group->process_group_ = connect_(prefix, ranks); });
  }
  place->second = group;
  return group;
}

template <class Collective>
Pending Group::start(const at::Tensor& tensor, std::string_view what, Collective collective,
                     bool is_message) {
  Pending pending;
  if (process_group_ == nullptr) return pending;
  std::vector<at::Tensor> tensors = {tensor};
  pending.watchdog_ = watchdog_.get();
  pending.what_ = what;
  pending.is_message_ = is_message;
  guarded(
      *watchdog_, what,
      [&] {
        pending.number_ = watchdog_->number();
        pending.works_ = {collective(tensors)};
      },
      is_message ? Inside::kMessage : Inside::kCollective);
  return pending;
}

Pending Group::start_all_reduce(const at::Tensor& tensor, Reduce how, std::string_view what) {
  c10d::AllreduceOptions options;
  options.reduceOp = operation(how);
  return start(tensor, what,
               [&](auto& tensors) { return process_group_->allreduce(tensors, options); });
}

void Group::all_reduce(const at::Tensor& tensor, Reduce how, std::string_view what) {
  start_all_reduce(tensor, how, what).wait();
}

Pending Group::start_broadcast(const at::Tensor& tensor, std::string_view what, int64_t root) {
  c10d::BroadcastOptions options;
  options.rootRank = root;
  return start(tensor, what,
               [&](auto& tensors) { return process_group_->broadcast(tensors, options); });
}

void Group::broadcast(const at::Tensor& tensor, std::string_view what, int64_t root) {
  start_broadcast(tensor, what, root).wait();
}

Pending Group::start_all_gather(const at::Tensor& rows, std::string_view what) {
  return start(rows, what, [&](auto& tensors) -> std::vector<c10::intrusive_ptr<c10d::Work>> {
    if (rows.is_cuda()) {
      at::Tensor own = rows.select(0, rank()), all = rows.flatten();
      return {process_group_->_allgather_base(all, own, {})};
    }
    // Gloo's takes as much memory again, on a thread where running out of it can't be told.
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    for (int64_t root = 0; root < world(); ++root) {
      c10d::BroadcastOptions options;
      options.rootRank = root;
      tensors.front() = rows.select(0, root);
      works.push_back(process_group_->broadcast(tensors, options));
    }
    return works;
  });
}

Pending Group::start_reduce_scatter(const at::Tensor& parts, const at::Tensor& rows,
                                    std::string_view what) {
  if (is_single_rank()) parts.copy_(rows);
  return start(parts, what, [&](auto& tensors) {
    if (rows.is_cuda()) {
      at::Tensor sum = parts.flatten(), all = rows.flatten();
      return process_group_->_reduce_scatter_base(sum, all, {});
    }
    at::Tensor from = rows;
    std::vector<int64_t> even;  // rows of one size
    return process_group_->alltoall_base(tensors.front(), from, even, even, {});
  });
}

Pending Group::start_send(const at::Tensor& tensor, int64_t to, std::string_view what) {
  const auto send = [&](auto& tensors) {
    return process_group_->send(tensors, static_cast<int>(to), /*tag=*/0);
  };
  return start(tensor, what, send, /*is_message=*/true);
}

Pending Group::start_receive(const at::Tensor& tensor, int64_t from, std::string_view what) {
  const auto receive = [&](auto& tensors) {
    return process_group_->recv(tensors, static_cast<int>(from), /*tag=*/0);
  };
  return start(tensor, what, receive, /*is_message=*/true);
}

bool Group::any(bool own, std::string_view what) {
  const at::Tensor flag = at::full({1}, own ? 1 : 0, at::kInt);
  all_reduce(flag, Reduce::kMax, what);
  return flag.item<int>() != 0;
}

void Group::barrier(std::string_view what) {
  all_reduce(at::zeros({1}, at::kInt), Reduce::kSum, what);
}

std::string Group::broadcast(const std::string& text, std::string_view what, int64_t root) {
  if (process_group_ == nullptr) return text;
  const at::Tensor size = at::scalar_tensor(static_cast<int64_t>(text.size()), at::kLong);
  broadcast(size, what, root);
  const at::Tensor bytes = at::empty({size.item<int64_t>()}, at::kByte);
  if (rank() == root) std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  if (bytes.numel() > 0) broadcast(bytes, what, root);
  const char* data = static_cast<const char*>(bytes.const_data_ptr());
  return {data, data + bytes.numel()};
}

std::vector<std::string> Group::all_gather(const std::string& text, std::string_view what) {
  if (process_group_ == nullptr) return {text};
  const at::Tensor sizes = at::zeros({world()}, at::kLong);
  auto* size = sizes.mutable_data_ptr<int64_t>();
  size[rank()] = static_cast<int64_t>(text.size());
  all_reduce(sizes, Reduce::kSum, what);
  const int64_t widest = *std::max_element(size, size + world());
  // Each rank fills its row; the others' zeros leave it as it is.
  const at::Tensor rows = at::zeros({world(), std::max<int64_t>(widest, 1)}, at::kByte);
  auto* bytes = rows.mutable_data_ptr<uint8_t>();
  std::memcpy(bytes + rank() * rows.size(1), text.data(), text.size());
  all_reduce(rows, Reduce::kSum, what);
  std::vector<std::string> result;
  for (int64_t i = 0; i < world(); ++i) {
    const uint8_t* row = bytes + i * rows.size(1);
    result.emplace_back(row, row + size[i]);
  }
  return result;
}

void Group::run(std::string_view what, const std::function<void()>& body) {
  if (process_group_ == nullptr) return body();
  guarded(*watchdog_, what, body, Inside::kWork);
}

void Group::all_or_none(std::string_view what, const std::function<void()>& body) {
  if (process_group_ == nullptr) return body();
  std::exception_ptr failure;
  std::string said;
  try {
    body();
  } catch (const std::exception& thrown) {
    failure = std::current_exception();
    const Error error = device::as_error(thrown);
    said = fmt::format("{} {}", static_cast<int>(error.status()), error.what());
  }
  const std::vector<std::string> all = all_gather(said, what);
  const auto first = std::find_if(all.begin(), all.end(), [](const auto& t) { return !t.empty(); });
  if (first == all.end()) return;
  const bool was_said = std::find(all.begin(), all.begin() + rank(), said) != all.begin() + rank();
  finish();  // no one is missing: the ranks part in order
  if (failure && !was_said) std::rethrow_exception(failure);
  // Printed by another rank, but whichever the launcher sees first is the one it reports.
  const size_t blank = first->find(' ');
  const auto status = static_cast<Exit>(std::strtol(first->c_str(), nullptr, 10));
  write_torchelastic_error(
      fmt::format("error[{}]: {}", exit_name(status), first->substr(blank + 1)),
      static_cast<int>(status));
  throw Error(status, std::string());
}

void Group::step(int64_t finished_steps) {
  if (watchdog_) watchdog_->step(finished_steps);
}

void Group::report_failure(int status, const std::string& why) {
  if (watchdog_) watchdog_->report_failure(status, why);
}

void Group::finish() {
  if (!watchdog_) return;
  watchdog_->close();
  barrier("the end of the run");
  is_finished_ = true;
  process_group_->shutdown();  // NCCL's; Gloo has nothing to do
}

}  // namespace brim::distributed
