// Reads batches ahead of the training loop: threads decode samples straight into a ring of batches
// that is allocated once; where the loop has to wait, it decodes too, first what it waits for.
// Which samples a batch holds is plan.h's; the bytes are the same whatever the number of threads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/timeline.h"
#include "framework/data/dataset.h"
#include "framework/data/loading/worker_count.h"
#include "framework/data/order/plan.h"

namespace brim::data {

/// The label of a sample that was dropped; LibTorch's losses leave it out. Its pixels are zero.
inline constexpr int64_t kNoLabel = -100;

/// Memory for one batch's pixels, for instance pinned.
using AllocatePixels = std::function<std::shared_ptr<uint8_t[]>(size_t bytes)>;

/// A micro-batch of this rank, samples in the order of their positions.
struct Batch : BatchPlan {
  std::span<const uint8_t> pixels;  // [count, sample_bytes]: images, or whatever samples are
  std::span<const int64_t> labels;  // [count]
};

/// next() belongs to one thread. The dataset outlives the loader.
class Loader {
 public:
  /// Starts before step `start_step` of epoch `start_epoch`. Errors are Plan's, Error(kBug) for a
  /// negative sample_bytes(), and Error(kResource) where threads or memory run out.
  Loader(const Dataset& dataset, const LoaderOptions& options, int64_t start_epoch = 0,
         int64_t start_step = 0, const AllocatePixels& allocate = nullptr);

  /// Blocks until the next batch is ready; it stays valid until the following call. Null after
  /// options.epochs epochs. A sample that can't be read, or for whose position the order throws,
  /// throws here, when its batch's turn has come, and again at every later call; batches before it
  /// are delivered. Whatever was thrown, this is an Error: of kind kBug where it was none. Throws
  /// Error(kStopped) where a stop is asked for before the batch is ready.
  const Batch* next();

  /// What the threads spent on samples while no one was in next(), since the last call.
  OverlappedWork take_overlapped();

  /// Different samples of the batches so far that could not be read and were replaced or dropped,
  /// by this loader or those before it with the same options.replacements; each was logged once.
  int64_t skipped() const { return log_->unreadable(); }

 private:
  struct Failure {
    int64_t index;  // in the batch
    Exit status;
    std::string message;
  };
  /// A sample that could not be read and was replaced or dropped.
  struct Skipped {
    int64_t sample;
    Failure failure;
  };
  struct Slot {
    Batch batch;
    std::shared_ptr<uint8_t[]> pixels;
    std::unique_ptr<int64_t[]> labels;
    int64_t unread = 0;              // samples not yet finished
    std::optional<Failure> failure;  // the first in the batch's order
    std::vector<Skipped> skipped;    // those at one place in their order
  };
  /// Consecutive samples of a batch that one thread reads.
  struct SlotRange {
    Slot* slot;
    int64_t first;  // in the batch
    int64_t count;
  };

  Slot& slot(int64_t batch) { return slots_[static_cast<size_t>(batch) % slots_.size()]; }
  void make_slots(const AllocatePixels& allocate);
  void start_threads();
  std::string name(int64_t sample) const;
  bool has_work() const;
  std::optional<SlotRange> take_range();
  void read(const SlotRange& range, std::unique_lock<std::mutex>& lock);
  std::vector<bool> read_together(const SlotRange& range) const;
  std::optional<Failure> decode(Slot& slot, int64_t index, bool is_read,
                                std::vector<Skipped>& skipped);
  std::optional<Failure> read_sample(const SampleRef& ref, Slot& slot, int64_t index) const;
  std::optional<Failure> set_label(Slot& slot, int64_t index, int64_t sample, int64_t label) const;
  RandomStream stream_of(int64_t epoch, const SampleRef& ref) const;
  std::span<uint8_t> pixels_of(const Slot& slot, int64_t index) const;
  void count_skipped(Slot& slot) const;
  void work(int64_t number, const std::stop_token& stop);
  void adapt(double waited_s);
  double threads_cpu_s() const;
  void account();
  void account_cpu();

  const Dataset& dataset_;
  const LoaderOptions options_;
  const std::shared_ptr<ReplacementLog> log_;
  const int64_t sample_bytes_;
  const int64_t classes_;      // 0: samples have no labels
  const bool reads_together_;  // what a device decodes
  int64_t range_samples_ = 1;  // most of a SlotRange

  // Everything below is guarded by mutex_, except pixels and labels of a claimed sample, which
  // belong to the thread that claimed it, and the batch in use, which belongs to next()'s caller.
  mutable std::mutex mutex_;
  std::condition_variable_any work_;   // there may be a sample to claim
  std::condition_variable_any ready_;  // a batch may be complete
  Plan plan_;
  std::vector<Slot> slots_;
  int64_t opened_ = 0;    // batches whose samples are being handed out or read
  int64_t returned_ = 0;  // batches that the caller is done with
  int64_t claimed_ = 0;   // samples handed out of the last opened batch
  bool plan_ended_ = false;
  bool in_use_ = false;  // the caller holds batch returned_
  int64_t active_ = 0;   // threads from this number on pause
  LoaderPace pace_;      // since pace_start_s_
  double pace_start_s_ = 0;
  int64_t reading_ = 0;   // threads at work on samples
  bool waiting_ = false;  // a thread is in next()
  OverlappedWork overlapped_;
  double accounted_s_ = 0;      // the moment up to which its decode_s is right
  double accounted_cpu_s_ = 0;  // threads_cpu_s() at the moment up to which its decode_cpu_s is

  std::vector<std::jthread> workers_;  // last, so that threads end before what they use
};

}  // namespace brim::data
