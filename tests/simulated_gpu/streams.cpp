#include "tests/simulated_gpu/streams.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>

namespace brim::simulated {
namespace {

constexpr size_t kStreams = 33;

std::chrono::microseconds longest_delay() {
  const char* text = std::getenv("BRIM_SIMULATED_DELAY_US");
  return std::chrono::microseconds(text == nullptr ? 300 : std::stol(text));
}

std::mutex streams_mutex;

std::mutex fault_mutex;
std::string fault;  // what work on a stream has thrown

std::array<Stream*, kStreams>& streams() {
  static std::array<Stream*, kStreams> all{};
  return all;
}

}  // namespace

void check_device() {
  const std::lock_guard lock(fault_mutex);
  TORCH_CHECK(fault.empty(), "CUDA error: device-side assert triggered: ", fault);
}

void Moment::pass() {
  const std::lock_guard lock(mutex_);
  is_past_ = true;
  time_ = std::chrono::steady_clock::now();
  passed_.notify_all();
}

bool Moment::is_past() const {
  const std::lock_guard lock(mutex_);
  return is_past_;
}

void Moment::wait() const {
  std::unique_lock lock(mutex_);
  passed_.wait(lock, [this] { return is_past_; });
}

std::chrono::steady_clock::time_point Moment::time() const {
  const std::lock_guard lock(mutex_);
  return time_;
}

Stream::Stream(uint64_t seed) : random_(seed) {
  std::thread([this] { run(); }).detach();
}

void Stream::enqueue(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(work));
  changed_.notify_all();
}

void Stream::enqueue_late(std::function<void()> work) {
  static const std::chrono::microseconds longest = longest_delay();
  enqueue([this, work = std::move(work)] {
    std::uniform_int_distribution<int64_t> delay(0, longest.count());
    std::this_thread::sleep_for(std::chrono::microseconds(delay(random_)));
    work();
  });
}

std::shared_ptr<const Moment> Stream::record() {
  check_device();
  auto moment = std::make_shared<Moment>();
  enqueue([moment] { moment->pass(); });
  return moment;
}

void Stream::wait_for(std::shared_ptr<const Moment> moment) {
  enqueue([moment = std::move(moment)] { moment->wait(); });
}

void Stream::synchronize() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.empty() && !is_busy_; });
  check_device();
}

bool Stream::is_idle() {
  const std::lock_guard lock(mutex_);
  return waiting_.empty() && !is_busy_;
}

void Stream::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !waiting_.empty(); });
    auto work = std::move(waiting_.front());
    waiting_.pop_front();
    is_busy_ = true;
    lock.unlock();
    try {
      work();
    } catch (const std::exception& error) {
      const std::lock_guard guard(fault_mutex);
      fault = error.what();
    }
    work = nullptr;  // with what it holds
    lock.lock();
    is_busy_ = false;
    changed_.notify_all();
  }
}

Stream& stream(c10::StreamId id) {
  const std::lock_guard lock(streams_mutex);
  Stream*& found = streams().at(static_cast<size_t>(id));
  if (found == nullptr) found = new Stream(static_cast<uint64_t>(id));
  return *found;
}

c10::StreamId next_stream() {
  static std::atomic<c10::StreamId> taken = 0;
  return 1 + taken++ % static_cast<c10::StreamId>(kStreams - 1);
}

c10::StreamId& current_stream() {
  thread_local c10::StreamId id = 0;
  return id;
}

void synchronize_all() {
  for (size_t id = 0; id < kStreams; ++id) {
    Stream* used = nullptr;
    {
      const std::lock_guard lock(streams_mutex);
      used = streams()[id];
    }
    if (used != nullptr) used->synchronize();
  }
}

}  // namespace brim::simulated
