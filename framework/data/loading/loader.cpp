#include "framework/data/loading/loader.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <new>
#include <system_error>
#include <utility>

#include "framework/base/log.h"
#include "framework/base/stop.h"
#include "framework/base/units.h"

namespace brim::data {
namespace {

constexpr double kPaceStretch_s = 0.5;  // over which the number of threads is judged
constexpr int kMaxReplacements = 16;
// Samples far smaller than this are read several at a time: taking one costs as much as copying it.
constexpr int64_t kRangeBytes = int64_t{1} << 16;
constexpr int64_t kDeviceShares = 4;
constexpr uint64_t kReplacementKey = 0x6272696d736b6970;  // apart from what augmentation draws

}  // namespace

Loader::Loader(const Dataset& dataset, const LoaderOptions& options, int64_t start_epoch,
               int64_t start_step, const AllocatePixels& allocate)
    : dataset_(dataset),
      options_(options),
      log_(options.replacements ? options.replacements : std::make_shared<ReplacementLog>()),
      sample_bytes_(dataset.sample_bytes()),
      classes_(dataset.classes()),
      reads_together_(options.draw_jpegs != nullptr && dataset.samples_together() > 1),
      plan_(dataset.size(), options, start_epoch, start_step),
      active_(options.workers) {
  const int64_t samples = plan_.largest_batch();
  // A device takes few ranges at once, large ones best.
  const int64_t shares = reads_together_ ? std::min<int64_t>(options.workers + 1, kDeviceShares)
                                         : 2 * (options.workers + 1);
  const int64_t most = reads_together_ ? dataset.samples_together()
                                       : kRangeBytes / std::max<int64_t>(1, sample_bytes_);
  // Small batches are still shared by the threads.
  range_samples_ = std::max<int64_t>(1, std::min(most, samples / shares));
  make_slots(allocate);
  pace_start_s_ = accounted_s_ = now_s();
  start_threads();
}

void Loader::make_slots(const AllocatePixels& allocate) {
  if (sample_bytes_ < 0) {
    throw Error(Exit::kBug, "the dataset's sample_bytes() is {}: expected 0 or more",
                sample_bytes_);
  }
  const int64_t samples = plan_.largest_batch();
  const int64_t slots = options_.workers == 0 ? 1 : options_.prefetch + 1;
  try {
    int64_t bytes = 0;
    if (__builtin_mul_overflow(samples, sample_bytes_, &bytes)) throw std::bad_alloc();
    slots_.resize(static_cast<size_t>(slots));
    for (Slot& slot : slots_) {
      slot.pixels = allocate ? allocate(static_cast<size_t>(bytes))
                             : std::shared_ptr<uint8_t[]>(new uint8_t[static_cast<size_t>(bytes)]);
      slot.labels = std::make_unique_for_overwrite<int64_t[]>(static_cast<size_t>(samples));
    }
  } catch (const std::bad_alloc&) {
    throw Error(Exit::kResource,
                "not enough memory for batches ahead: {} of {} samples of {} bytes. Lower "
                "data.prefetch or batch.micro, or make samples smaller",
                slots, samples, sample_bytes_);
  }
}

void Loader::start_threads() {
  try {
    for (int64_t i = 0; i < options_.workers; ++i) {
      workers_.emplace_back([this, i](const std::stop_token& stop) { work(i, stop); });
    }
  } catch (const std::system_error& error) {
    throw Error(Exit::kResource, "cannot start loader thread {} of {}: {}; lower data.workers",
                workers_.size() + 1, options_.workers, error.code().message());
  }
}

const Batch* Loader::next() {
  std::unique_lock lock(mutex_);
  if (in_use_) {
    in_use_ = false;
    ++returned_;
    work_.notify_all();
  }
  account();
  account_cpu();
  waiting_ = true;
  const double start_s = accounted_s_;
  while (opened_ == returned_ ? !plan_ended_ : slot(returned_).unread > 0) {
    if (const auto samples = take_range()) {
      read(*samples, lock);
    } else if (opened_ > returned_ && slot(returned_).unread > 0) {
      if (stop_requested()) {
        waiting_ = false;
        throw Error(Exit::kStopped, std::string("stopped while data were awaited"));
      }
      ready_.wait_for(lock, kStopPoll);
    }
  }
  account();
  account_cpu();
  waiting_ = false;
  adapt(accounted_s_ - start_s);
  if (opened_ == returned_) return nullptr;
  Slot& front = slot(returned_);
  count_skipped(front);
  if (front.failure) throw Error(front.failure->status, front.failure->message);
  in_use_ = true;
  return &front.batch;
}

/// To be called before reading_ or waiting_ change. mutex_ is held.
void Loader::account() {
  const double now = now_s();
  if (!waiting_ && reading_ > 0) {
    overlapped_.decode_s += static_cast<double>(reading_) * (now - accounted_s_);
    overlapped_.decode_wall_s += now - accounted_s_;
  }
  accounted_s_ = now;
}

/// Of all threads since they began.
double Loader::threads_cpu_s() const {
  double sum = 0;
  for (const std::jthread& worker : workers_) {
    clockid_t clock = 0;
    timespec used{};
    const auto handle = const_cast<std::jthread&>(worker).native_handle();
    if (::pthread_getcpuclockid(handle, &clock) != 0 || ::clock_gettime(clock, &used) != 0)
      continue;
    sum += static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
  }
  return sum;
}

/// To be called before waiting_ changes: a call of the kernel for each thread. mutex_ is held.
void Loader::account_cpu() {
  const double now = threads_cpu_s();
  if (!waiting_) overlapped_.decode_cpu_s += now - accounted_cpu_s_;
  accounted_cpu_s_ = now;
}

OverlappedWork Loader::take_overlapped() {
  const std::lock_guard lock(mutex_);
  account();
  account_cpu();
  return std::exchange(overlapped_, {});
}

/// Sets the number of threads for the coming stretch of time.
void Loader::adapt(double waited_s) {
  pace_.wait_s += waited_s;
  pace_.wall_s = now_s() - pace_start_s_;
  if (!options_.adapt_workers || pace_.wall_s < kPaceStretch_s) return;
  const int64_t before =
      std::exchange(active_, next_worker_count(pace_, active_, options_.workers));
  if (active_ > before) work_.notify_all();
  pace_ = {};
  pace_start_s_ = now_s();
}

bool Loader::has_work() const {
  const bool sample_left =
      opened_ > 0 &&
      claimed_ < slots_[static_cast<size_t>(opened_ - 1) % slots_.size()].batch.count;
  const bool slot_free = opened_ < returned_ + static_cast<int64_t>(slots_.size());
  return sample_left || (slot_free && !plan_ended_);
}

/// The next samples to read, opening the next batch where the last one is handed out; nullopt where
/// every slot is taken or the plan has ended. mutex_ is held.
std::optional<Loader::SlotRange> Loader::take_range() {
  while (has_work()) {
    if (opened_ > 0 && claimed_ < slot(opened_ - 1).batch.count) {
      Slot& last = slot(opened_ - 1);
      const int64_t count = std::min(range_samples_, last.batch.count - claimed_);
      return SlotRange{&last, std::exchange(claimed_, claimed_ + count), count};
    }
    const auto plan = plan_.next();
    if (!plan) {
      plan_ended_ = true;
      ready_.notify_all();
      break;
    }
    Slot& next = slot(opened_);
    next.batch = {*plan,
                  {next.pixels.get(), static_cast<size_t>(plan->count * sample_bytes_)},
                  {next.labels.get(), static_cast<size_t>(plan->count)}};
    next.unread = plan->count;
    next.failure.reset();
    ++opened_;
    claimed_ = 0;
    if (plan->count == 0) ready_.notify_all();
  }
  return std::nullopt;
}

/// Reads claimed samples with the lock released.
void Loader::read(const SlotRange& range, std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  Slot& slot = *range.slot;
  const double start_s = now_s();
  std::optional<Failure> first;
  std::vector<Skipped> skipped;
  std::vector<bool> are_read(static_cast<size_t>(range.count));
  const auto try_at = [&](int64_t index, const auto& work) {
    std::optional<Failure> failure;
    try {
      failure = work();
    } catch (const std::bad_alloc&) {
      failure = {index, Exit::kResource, "not enough memory to choose a sample"};
    } catch (...) {
      const Error error = current_error();
      failure = {index, error.status(), error.what()};
    }
    if (!first) first = std::move(failure);
  };
  if (reads_together_) {
    try_at(range.first, [&]() -> std::optional<Failure> {
      are_read = read_together(range);
      return std::nullopt;
    });
  }
  for (int64_t i = 0; i < range.count; ++i) {
    const int64_t index = range.first + i;
    try_at(index, [&] { return decode(slot, index, are_read[static_cast<size_t>(i)], skipped); });
  }
  const double end_s = now_s();
  lock.lock();
  pace_.busy_s += end_s - start_s;
  if (first && (!slot.failure || first->index < slot.failure->index)) slot.failure = first;
  std::ranges::move(skipped, std::back_inserter(slot.skipped));
  slot.unread -= range.count;
  if (slot.unread == 0) ready_.notify_all();
}

/// Of each sample of the range, whether the device has decoded it.
std::vector<bool> Loader::read_together(const SlotRange& range) const {
  const Slot& slot = *range.slot;
  const auto count = static_cast<size_t>(range.count);
  std::vector<SampleRequest> requests(count);
  for (size_t i = 0; i < count; ++i) {
    const int64_t index = range.first + static_cast<int64_t>(i);
    const SampleRef ref = options_.order->at(slot.batch.epoch, slot.batch.first_position + index);
    requests[i] = {.sample = ref.sample, .bytes = pixels_of(slot, index)};
    if (options_.augment) requests[i].random = stream_of(slot.batch.epoch, ref);
  }
  dataset_.read_together(requests, options_.draw_jpegs);
  std::vector<bool> are_read(count);
  for (size_t i = 0; i < count; ++i) are_read[i] = requests[i].is_read;
  return are_read;
}

std::optional<Loader::Failure> Loader::decode(Slot& slot, int64_t index, bool is_read,
                                              std::vector<Skipped>& skipped) {
  const int64_t epoch = slot.batch.epoch;
  const int64_t position = slot.batch.first_position + index;
  SampleRef ref = options_.order->at(epoch, position);
  auto failure = is_read ? set_label(slot, index, ref.sample, dataset_.label(ref.sample))
                         : read_sample(ref, slot, index);
  if (!failure) return std::nullopt;
  const int64_t unread = ref.sample;
  RandomStream others(options_.seed ^ kReplacementKey, static_cast<uint64_t>(epoch),
                      static_cast<uint64_t>(position));
  for (int i = 0; i < kMaxReplacements && failure; ++i) {
    if (failure->status != Exit::kData) return failure;
    if (options_.on_error == OnError::kFail) {
      if (dataset_.tokens() == nullptr) {
        failure->message +=
            ". Set data.on_error = \"skip\" to leave such samples out, or replace the file: a run "
            "can't resume without it. trainer data inspect DIR lists them";
      }
      return failure;
    }
    skipped.push_back({ref.sample, *failure});
    if (options_.on_error == OnError::kDrop) {
      slot.labels[static_cast<size_t>(index)] = kNoLabel;
      std::fill_n(slot.pixels.get() + index * sample_bytes_, sample_bytes_, uint8_t{0});
      return std::nullopt;
    }
    ref = options_.order->at(epoch, others.below(dataset_.size()));
    failure = read_sample(ref, slot, index);
  }
  if (!failure && options_.replacements != nullptr) {
    options_.replacements->add({epoch, position, unread, ref.sample, name(unread)});
  }
  return failure;
}

std::optional<Loader::Failure> Loader::read_sample(const SampleRef& ref, Slot& slot,
                                                   int64_t index) const {
  const int64_t sample = ref.sample;
  RandomStream random = stream_of(slot.batch.epoch, ref);
  // An exception object shared by two threads would be freed by whichever ends last; its text and
  // kind travel instead.
  try {
    const int64_t label =
        dataset_.read(sample, options_.augment ? &random : nullptr, pixels_of(slot, index));
    return set_label(slot, index, sample, label);
  } catch (const Error& error) {
    return Failure{index, error.status(), error.what()};
  } catch (const std::bad_alloc&) {
    return Failure{index, Exit::kResource, name(sample) + ": not enough memory to decode it"};
  } catch (...) {
    return Failure{index, Exit::kBug, name(sample) + ": " + current_error().what()};
  }
}

std::optional<Loader::Failure> Loader::set_label(Slot& slot, int64_t index, int64_t sample,
                                                 int64_t label) const {
  slot.labels[static_cast<size_t>(index)] = label;
  if (classes_ == 0 || (label >= 0 && label < classes_)) return std::nullopt;
  return Failure{index, Exit::kData,
                 fmt::format("{}: expected a label from 0 to {}, found {}", name(sample),
                             classes_ - 1, label)};
}

/// What drives the sample's augmentation, from its beginning.
RandomStream Loader::stream_of(int64_t epoch, const SampleRef& ref) const {
  return {options_.seed, static_cast<uint64_t>(epoch), static_cast<uint64_t>(ref.stream)};
}

std::span<uint8_t> Loader::pixels_of(const Slot& slot, int64_t index) const {
  return {slot.pixels.get() + index * sample_bytes_, static_cast<size_t>(sample_bytes_)};
}

/// "sample 5" where the dataset's own name for it can't be had.
std::string Loader::name(int64_t sample) const {
  try {
    return dataset_.name(sample);
  } catch (...) {
    return fmt::format("sample {}", sample);
  }
}

/// Logs what a batch left out now that its turn has come, whatever has been read ahead: up to where
/// they have become too many, which is then the batch's failure. mutex_ is held.
void Loader::count_skipped(Slot& slot) const {
  std::ranges::stable_sort(slot.skipped, {},
                           [](const Skipped& each) { return each.failure.index; });
  for (const auto& [sample, failure] : std::exchange(slot.skipped, {})) {
    if (slot.failure && slot.failure->index < failure.index) return;
    if (log_->add_unreadable(sample)) log::warning("skipped: {}", failure.message);
    const int64_t count = log_->unreadable();
    if (count <= options_.max_skipped) continue;
    slot.failure = {
        failure.index, failure.status,
        fmt::format("{}; with it {} could not be read, and data.max_skipped allows {}",
                    failure.message, format_plural(count, "sample"), options_.max_skipped)};
    return;
  }
}

void Loader::work(int64_t number, const std::stop_token& stop) {
  if (options_.nice != 0) {  // of this thread alone, as Linux has it
    ::setpriority(PRIO_PROCESS, 0, ::getpriority(PRIO_PROCESS, 0) + options_.nice);
  }
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    const bool is_active = number < active_;
    const auto samples = is_active ? take_range() : std::nullopt;
    if (samples) {
      account();
      ++reading_;
      read(*samples, lock);
      account();
      --reading_;
    } else {
      work_.wait(lock, stop, [&] { return number < active_ && has_work(); });
    }
  }
}

}  // namespace brim::data
