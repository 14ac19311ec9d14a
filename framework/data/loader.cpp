#include "framework/data/loader.h"

#include <new>
#include <system_error>

namespace brim::data {

Loader::Loader(const Dataset& dataset, const LoaderOptions& options, int64_t start_epoch,
               int64_t start_step)
    : dataset_(dataset),
      options_(options),
      sample_bytes_(dataset.sample_bytes()),
      plan_(dataset.size(), options, start_epoch, start_step) {
  const int64_t samples = plan_.largest_batch();
  int64_t bytes = 0;
  if (__builtin_mul_overflow(samples, sample_bytes_, &bytes)) throw std::bad_alloc();
  slots_.resize(options.workers == 0 ? 1 : static_cast<size_t>(options.prefetch) + 1);
  for (Slot& slot : slots_) {
    slot.pixels = std::make_unique_for_overwrite<uint8_t[]>(static_cast<size_t>(bytes));
    slot.labels = std::make_unique_for_overwrite<int64_t[]>(static_cast<size_t>(samples));
  }
  try {
    for (int64_t i = 0; i < options.workers; ++i) {
      workers_.emplace_back([this](const std::stop_token& stop) { work(stop); });
    }
  } catch (const std::system_error& error) {
    throw Error(Exit::kResource, "cannot start loader thread {} of {}: {}; lower data.workers",
                workers_.size() + 1, options.workers, error.code().message());
  }
}

const Batch* Loader::next() {
  std::unique_lock lock(mutex_);
  if (in_use_) {
    in_use_ = false;
    ++returned_;
    work_.notify_all();
  }
  if (workers_.empty()) {
    while (const auto sample = claim()) read(*sample, lock);
  }
  ready_.wait(lock,
              [this] { return opened_ > returned_ ? slot(returned_).unread == 0 : plan_ended_; });
  if (opened_ == returned_) return nullptr;
  const Slot& front = slot(returned_);
  if (front.failure) throw Error(front.failure->status, front.failure->message);
  in_use_ = true;
  return &front.batch;
}

bool Loader::has_work() const {
  const bool sample_left =
      opened_ > 0 &&
      claimed_ < slots_[static_cast<size_t>(opened_ - 1) % slots_.size()].batch.count;
  const bool slot_free = opened_ < returned_ + static_cast<int64_t>(slots_.size());
  return sample_left || (slot_free && !plan_ended_);
}

/// The next sample to read, opening the next batch where the last one is handed out; nullopt where
/// every slot is taken or the plan has ended. mutex_ is held.
std::optional<Loader::Claim> Loader::claim() {
  while (has_work()) {
    if (opened_ > 0 && claimed_ < slot(opened_ - 1).batch.count) {
      return Claim{&slot(opened_ - 1), claimed_++};
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

/// Reads a claimed sample with the lock released.
void Loader::read(const Claim& claim, std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  auto failure = decode(claim);
  lock.lock();
  Slot& slot = *claim.slot;
  if (failure && (!slot.failure || failure->index < slot.failure->index)) slot.failure = failure;
  if (--slot.unread == 0) ready_.notify_all();
}

std::optional<Loader::Failure> Loader::decode(const Claim& claim) const {
  const Slot& slot = *claim.slot;
  const int64_t epoch = slot.batch.epoch;
  Draw draw;
  try {
    draw = options_.order->at(epoch, slot.batch.first_position + claim.index);
  } catch (const std::bad_alloc&) {
    return Failure{claim.index, Exit::kResource, "not enough memory for the order of the samples"};
  }
  const int64_t sample = draw.sample;
  RandomStream random(options_.seed, static_cast<uint64_t>(epoch),
                      static_cast<uint64_t>(draw.stream));
  const std::span<uint8_t> pixels(slot.pixels.get() + claim.index * sample_bytes_,
                                  static_cast<size_t>(sample_bytes_));
  // An exception object shared by two threads would be freed by whichever ends last; its text and
  // kind travel instead.
  try {
    slot.labels[static_cast<size_t>(claim.index)] =
        dataset_.read(sample, options_.augment ? &random : nullptr, pixels);
    return std::nullopt;
  } catch (const Error& error) {
    return Failure{claim.index, error.status(), error.what()};
  } catch (const std::bad_alloc&) {
    return Failure{claim.index, Exit::kResource,
                   dataset_.name(sample) + ": not enough memory to decode it"};
  } catch (const std::exception& error) {
    return Failure{claim.index, Exit::kBug, dataset_.name(sample) + ": " + error.what()};
  }
}

void Loader::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    if (const auto sample = claim()) {
      read(*sample, lock);
    } else {
      work_.wait(lock, stop, [this] { return has_work(); });
    }
  }
}

}  // namespace brim::data
