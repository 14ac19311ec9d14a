// The stream of a device on which batches are copied and transformed while another one computes,
// and how long it did so while none waited.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <deque>
#include <optional>

namespace brim::data {

/// For a device with streams, so not the CPU. A batch is begin(), work enqueued on stream(), end(),
/// block(); the next one may begin after that. Belongs to one thread.
class CopyStream {
 public:
  explicit CopyStream(c10::Device device);

  const c10::Stream& stream() const { return stream_; }
  void begin();
  void end();
  /// Waits until the device has done the work of the batch that ended last, if any.
  void synchronize();
  /// What is enqueued on `other` from now on runs after the batch that ended last.
  void block(const c10::Stream& other);

  /// Seconds from the begin() to the end() of batches, as the device saw them, less those for which
  /// the other stream stood still in block(). Of batches since the last call; one that the device
  /// hasn't finished counts later.
  double take_overlapped_s();

 private:
  struct Times {
    c10::Event begin, end;              // on stream()
    c10::Event wait_begins, wait_ends;  // on the other
  };
  static Times make_times(c10::DeviceType type);
  void collect();

  c10::Stream stream_;
  std::optional<Times> last_;
  std::deque<Times> running_;  // batches that the device may not have finished
  double overlapped_s_ = 0;
};

}  // namespace brim::data
