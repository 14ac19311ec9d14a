#include "tests/simulated_gpu/nccl.h"

#include <map>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "tests/simulated_gpu/device.h"
#include "tests/simulated_gpu/streams.h"

namespace brim::simulated {
namespace {

using c10d::OpType;
using Tensors = std::vector<at::Tensor>;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;

/// Sets this thread's current stream.
class OnStream {
 public:
  explicit OnStream(c10::StreamId id) : before_(std::exchange(current_stream(), id)) {}
  ~OnStream() { current_stream() = before_; }
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  c10::StreamId before_;
};

/// Keeps its tensors until a stream waits for it.
class Collective final : public c10d::Work {
 public:
  Collective(int rank, OpType type, c10::StreamId on, Tensors results, Tensors held)
      : Work(rank, type), results_(std::move(results)), held_(std::move(held)) {
    end_ = stream(on).record();
    const OnStream at(on);
    future_ = c10::make_intrusive<c10::ivalue::Future>(
        c10::ListType::create(c10::TensorType::get()), std::vector<c10::Device>{device()});
    future_->markCompleted(results_);
  }

  bool isCompleted() override { return end_->is_past(); }
  bool isSuccess() const override { return end_->is_past(); }
  bool wait(std::chrono::milliseconds) override {
    synchronize();
    return true;
  }
  void synchronize() override {
    stream(current_stream()).wait_for(end_);
    held_.clear();
  }
  Tensors result() override { return results_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  Tensors results_, held_;
  std::shared_ptr<const Moment> end_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

class Nccl final : public c10d::Backend {
 public:
  Nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world,
       std::chrono::milliseconds limit)
      : Backend(rank, world), given_up_(std::make_shared<Moment>()), collectives_(next_stream()) {
    auto options = c10d::ProcessGroupGloo::Options::create(limit);
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    gloo_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, world, options);
  }

  const std::string getBackendName() const override { return "nccl"; }
  void abort() override { given_up_->pass(); }
  void shutdown() override { given_up_->pass(); }
  void setTimeout(std::chrono::milliseconds) override {}
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return started_; }

  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return start(OpType::ALLREDUCE, collectives_, tensors, {},
                 [=](c10d::Backend& gloo, Tensors all) { return gloo.allreduce(all, options); });
  }
  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return start(OpType::BROADCAST, collectives_, tensors, {},
                 [=](c10d::Backend& gloo, Tensors all) { return gloo.broadcast(all, options); });
  }
  WorkPointer _allgather_base(at::Tensor& all, at::Tensor& own,
                              const c10d::AllgatherOptions& options) override {
    return start(OpType::_ALLGATHER_BASE, collectives_, {all}, {own},
                 [=](c10d::Backend& gloo, Tensors both) {
                   at::Tensor copy = both[1].clone();  // may lie within the result
                   return gloo._allgather_base(both[0], copy, options);
                 });
  }
  WorkPointer _reduce_scatter_base(at::Tensor& sum, at::Tensor& all,
                                   const c10d::ReduceScatterOptions& options) override {
    return start(
        OpType::_REDUCE_SCATTER_BASE, collectives_, {sum}, {all},
        [=](c10d::Backend& gloo, Tensors both) {
          c10d::AllreduceOptions how;
          how.reduceOp = options.reduceOp;
          Tensors rows = {both[1].clone()};
          const WorkPointer work = gloo.allreduce(rows, how);
          work->wait();
          both[0].copy_(
              rows[0].view({gloo.getSize(), -1}).select(0, gloo.getRank()).view_as(both[0]));
          return work;
        });
  }
  WorkPointer send(Tensors& tensors, int to, int tag) override {
    return start(OpType::SEND, messages_with(to), {}, tensors,
                 [=](c10d::Backend& gloo, Tensors all) { return gloo.send(all, to, tag); });
  }
  WorkPointer recv(Tensors& tensors, int from, int tag) override {
    return start(OpType::RECV, messages_with(from), tensors, {},
                 [=](c10d::Backend& gloo, Tensors all) { return gloo.recv(all, from, tag); });
  }

 private:
  template <class Body>
  WorkPointer start(OpType type, c10::StreamId on, const Tensors& results, const Tensors& inputs,
                    Body body) {
    ++started_;
    Stream& queue = stream(on);
    queue.wait_for(stream(current_stream()).record());
    Tensors held = results, on_cpu;
    held.insert(held.end(), inputs.begin(), inputs.end());
    for (const at::Tensor& tensor : held) on_cpu.push_back(on_host(tensor));
    // What is enqueued outlives a group that was given up.
    queue.enqueue_late([body, on_cpu, gloo = gloo_, given_up = given_up_] {
      try {
        body(*gloo, on_cpu)->wait();
      } catch (const std::exception&) {
        given_up->wait();
      }
    });
    return c10::make_intrusive<Collective>(getRank(), type, on, results, held);
  }

  c10::StreamId messages_with(int peer) {
    const auto found = messages_.find(peer);
    return found != messages_.end() ? found->second : messages_[peer] = next_stream();
  }

  c10::intrusive_ptr<c10d::Backend> gloo_;
  std::shared_ptr<Moment> given_up_;
  c10::StreamId collectives_;
  uint64_t started_ = 0;
  std::map<int, c10::StreamId> messages_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int world, std::chrono::milliseconds limit) {
  return c10::make_intrusive<Nccl>(store, rank, world, limit);
}

}  // namespace brim::simulated
