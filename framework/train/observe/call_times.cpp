#include "framework/train/observe/call_times.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "framework/train/observe/call_recorder.h"

namespace brim::train {
namespace {

constexpr int kCostRounds = 5;
constexpr size_t kCostCalls = 1000;

}  // namespace

class CallTimes::Calls {
 public:
  static constexpr bool kNeedsTensors = false;

  explicit Calls(std::vector<ExpectedCall> expected)
      : expected_(std::move(expected)), step_(expected_.size()), all_(expected_.size()) {}

  void enter(const at::RecordFunction& call) {
    const size_t place = next_++;
    is_same_ = is_same_ && place < expected_.size() && expected_[place].name == call.name();
    stack_.push_back({.place = place});
    stack_.back().started_ns = clock_ns();
  }

  void leave(const at::RecordFunction& /*call*/) {
    const int64_t ended_ns = clock_ns();
    if (stack_.empty()) return;  // began before this did
    const Frame frame = stack_.back();
    stack_.pop_back();
    if (!is_same_) return;
    const int64_t ns = ended_ns - frame.started_ns;
    step_[frame.place] = {.self_ns = ns - frame.callees_ns, .callees = frame.callees};
    if (stack_.empty()) return;
    stack_.back().callees_ns += ns;
    stack_.back().callees += 1;
  }

  bool end_step(bool may) {
    const bool counts = may && is_same_ && next_ == expected_.size();
    for (size_t i = 0; counts && i < all_.size(); ++i) {
      all_[i].self_ns += step_[i].self_ns;
      all_[i].callees += step_[i].callees;
    }
    steps_ += counts ? 1 : 0;
    next_ = 0;
    is_same_ = true;
    return counts;
  }

  /// `recorder_ns`: of a call; it lies within the call's caller.
  StepTimes mean(double recorder_ns) const {
    StepTimes result{.self_ns = std::vector<int64_t>(all_.size())};
    std::array<double, kPhaseCount> recorder{};
    for (size_t i = 0; i < all_.size(); ++i) {
      const double own_ns =
          static_cast<double>(all_[i].self_ns) - recorder_ns * static_cast<double>(all_[i].callees);
      result.self_ns[i] = static_cast<int64_t>(std::max(0.0, own_ns / static_cast<double>(steps_)));
      recorder[static_cast<size_t>(expected_[i].phase)] += recorder_ns;
    }
    std::ranges::transform(recorder, result.recorder_ns.begin(),
                           [](double ns) { return static_cast<int64_t>(ns); });
    return result;
  }

 private:
  struct Frame {
    size_t place = 0;  // among the step's calls
    int64_t started_ns = 0, callees_ns = 0, callees = 0;
  };

  struct Time {
    int64_t self_ns = 0, callees = 0;
  };

  std::vector<ExpectedCall> expected_;
  std::vector<Time> step_, all_;  // of this step, and of those that count; by call
  std::vector<Frame> stack_;
  size_t next_ = 0;
  int64_t steps_ = 0;
  bool is_same_ = true;
};

struct CallTimes::Installed {
  explicit Installed(Calls& calls) : recorder(calls) {}
  CallRecorder<Calls> recorder;
};

/// The least of some rounds; a round is a step of kCostCalls calls.
double CallTimes::ns_of_call(Calls& calls) {
  const at::Tensor number = at::zeros({});
  double least_ns = 0;
  for (int round = 0; round < kCostRounds; ++round) {
    const int64_t start_ns = clock_ns();
    for (size_t i = 0; i < kCostCalls; ++i) number.view({1});
    const double ns = static_cast<double>(clock_ns() - start_ns) / static_cast<double>(kCostCalls);
    calls.end_step(true);
    if (round == 0 || ns < least_ns) least_ns = ns;
  }
  return least_ns;
}

CallTimes::CallTimes(std::vector<ExpectedCall> calls) {
  {
    Calls none({});
    const double without_ns = ns_of_call(none);
    Calls views(std::vector<ExpectedCall>(kCostCalls, {"aten::view", Phase::kOther}));
    const Installed installed(views);
    recorder_ns_ = std::max(0.0, ns_of_call(views) - without_ns);
  }
  calls_ = std::make_unique<Calls>(std::move(calls));
  installed_ = std::make_unique<Installed>(*calls_);
}

CallTimes::~CallTimes() = default;

bool CallTimes::end_step(bool may) { return calls_->end_step(may); }

StepTimes CallTimes::mean() const { return calls_->mean(recorder_ns_); }

}  // namespace brim::train
