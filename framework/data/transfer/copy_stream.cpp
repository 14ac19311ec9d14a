#include "framework/data/transfer/copy_stream.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

namespace brim::data {

namespace {

/// One for all that copy to this device: the pool has 32, and prefetchers come and go.
c10::Stream shared_stream(c10::Device device) {
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, c10::Stream> streams;
  const std::lock_guard lock(mutex);
  const auto found = streams.find(device.index());
  if (found != streams.end()) return found->second;
  const c10::impl::VirtualGuardImpl guard(device.type());
  return streams.emplace(device.index(), guard.getStreamFromGlobalPool(device)).first->second;
}

}  // namespace

CopyStream::CopyStream(c10::Device device) : stream_(shared_stream(device)) {}

CopyStream::Times CopyStream::make_times(c10::DeviceType type) {
  const auto event = [type] { return c10::Event(type, c10::EventFlag::BACKEND_DEFAULT); };  // timed
  return {event(), event(), event(), event()};
}

void CopyStream::begin() {
  last_.emplace(make_times(stream_.device_type()));
  last_->begin.record(stream_);
}

void CopyStream::end() { last_->end.record(stream_); }

void CopyStream::synchronize() {
  if (!running_.empty()) running_.back().end.synchronize();
}

void CopyStream::block(const c10::Stream& other) {
  last_->wait_begins.record(other);
  last_->end.block(other);
  last_->wait_ends.record(other);
  running_.push_back(std::move(*last_));
  last_.reset();
  collect();
}

/// Counts the batches that the device has finished, but keeps the last one for synchronize().
void CopyStream::collect() {
  while (running_.size() > 1 && running_.front().wait_ends.query()) {
    const Times& times = running_.front();
    const double copied_ms = times.begin.elapsedTime(times.end);
    const double waited_ms = times.wait_begins.elapsedTime(times.wait_ends);
    overlapped_s_ += std::max(0.0, copied_ms - waited_ms) / 1000;
    running_.pop_front();
  }
}

double CopyStream::take_overlapped_s() {
  collect();
  return std::exchange(overlapped_s_, 0);
}

}  // namespace brim::data
