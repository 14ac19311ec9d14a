#include "framework/tune/batch_search.h"

#include <algorithm>
#include <cmath>

#include "framework/base/error.h"

namespace brim::tune {
namespace {

constexpr int64_t kFirst = 8;
constexpr int64_t kSecond = 32;
constexpr int64_t kFarthest = 32;  // a prediction is trusted up to this many times the last size
constexpr int64_t kStep = 8;       // between sizes over kStep

int64_t free_bytes(const Probe& probe) { return probe.cap_bytes - probe.peak_bytes; }

bool leaves_margin(const Probe& probe, const SearchOptions& options) {
  return probe.fits && static_cast<double>(free_bytes(probe)) >=
                           options.margin * static_cast<double>(probe.cap_bytes);
}

void check(const SearchOptions& options) {
  if (options.unit < 1) {
    throw Error(Exit::kBug, "the batch search's unit is {}: expected at least 1", options.unit);
  }
  if (options.largest < 1) {
    throw Error(Exit::kBug, "the batch search's largest is {}: expected at least 1",
                options.largest);
  }
}

class Search {
 public:
  Search(const SearchOptions& options, const RunProbe& run_probe)
      : options_(options), run_probe_(run_probe) {}

  SearchResult run() {
    for (int64_t i = 0; i < options_.max_probes; ++i) {
      const std::optional<int64_t> size = next();
      if (!size) break;
      take(*size);
    }
    result_.size = safe_;
    return std::move(result_);
  }

 private:
  /// Rounded down to what may be asked for.
  int64_t allowed(int64_t size) const {
    if (size >= options_.largest) return options_.largest;
    const int64_t step = size > kStep ? kStep : options_.unit;
    return std::max(options_.unit, size / step * step);
  }
  int64_t step_from(int64_t size) const { return size >= kStep ? kStep : options_.unit; }

  std::optional<int64_t> next() const {
    if (result_.probes.empty()) return allowed(kFirst);
    if (safe_ == 0) {
      if (unsafe_ <= options_.unit) return std::nullopt;
      return allowed(unsafe_ / 2);
    }
    const double enough = failures_ > 0 ? options_.enough_once_failed : options_.enough;
    if (safe_ >= options_.largest || fill_ >= enough) return std::nullopt;
    const int64_t one_more = std::min(options_.largest, allowed(safe_ + step_from(safe_)));
    if (unsafe_ != 0 && one_more >= unsafe_) return std::nullopt;
    if (measured_.size() < 2) {
      const int64_t wanted = unsafe_ == 0 ? std::max(kSecond, 4 * safe_) : (safe_ + unsafe_) / 2;
      return std::clamp(allowed(wanted), one_more, before_unsafe());
    }
    const int64_t predicted = allowed(prediction());
    if (predicted <= safe_) return std::nullopt;  // one more would not fit
    if (unsafe_ != 0 && predicted >= unsafe_) {   // the last prediction was wrong
      // Probably not by much, the first times.
      const int64_t back = (unsafe_ - safe_) / (failures_ == 1 ? 4 : 2);
      return std::clamp(allowed(unsafe_ - back), one_more, before_unsafe());
    }
    return std::clamp(predicted, one_more, std::max(one_more, before_unsafe()));
  }

  int64_t before_unsafe() const { return unsafe_ == 0 ? options_.largest : allowed(unsafe_ - 1); }

  /// What a sample more takes of `bytes`, by the two largest measured sizes.
  template <class Bytes>
  double slope(const Bytes& bytes) const {
    const Probe& high = measured_.back();
    const Probe& low = measured_[measured_.size() - 2];
    return static_cast<double>(bytes(high) - bytes(low)) /
           static_cast<double>(high.size - low.size);
  }

  /// The largest size that leaves the margin.
  int64_t prediction() const {
    const Probe& last = measured_.back();
    const double room = static_cast<double>(free_bytes(last)) -
                        options_.margin * static_cast<double>(last.cap_bytes);
    const double farthest = static_cast<double>(kFarthest * safe_);
    const double per_sample = -slope(free_bytes);  // the cap may fall with the size, too
    const double size =
        per_sample <= 0 ? farthest : static_cast<double>(last.size) + room / per_sample;
    return static_cast<int64_t>(std::floor(std::clamp(size, 0.0, farthest)));
  }

  void take(int64_t size) {
    Probe probe = run_probe_(size);
    probe.size = size;
    if (measured_.size() >= 2) {
      const Probe& last = measured_.back();
      const double more = slope([](const Probe& p) { return p.peak_bytes; }) *
                          static_cast<double>(size - last.size);
      probe.predicted_bytes = last.peak_bytes + static_cast<int64_t>(more);
    }
    if (probe.fits) {
      measured_.push_back(probe);
      std::sort(measured_.begin(), measured_.end(),
                [](const Probe& a, const Probe& b) { return a.size < b.size; });
    }
    const bool is_safe = leaves_margin(probe, options_);
    if (is_safe) {
      safe_ = std::max(safe_, size);
      fill_ = std::max(fill_, static_cast<double>(probe.peak_bytes) /
                                  static_cast<double>(std::max<int64_t>(1, probe.cap_bytes)));
    } else {
      unsafe_ = unsafe_ == 0 ? size : std::min(unsafe_, size);
      ++failures_;
    }
    result_.probes.push_back(probe);
  }

  const SearchOptions& options_;
  const RunProbe& run_probe_;
  SearchResult result_;
  std::vector<Probe> measured_;  // those that fit, by size
  int64_t safe_ = 0;             // the largest that fits with the margin
  int64_t unsafe_ = 0;           // the smallest that doesn't; 0: none yet
  int64_t failures_ = 0;         // probes that were not safe
  double fill_ = 0;              // of the cap, by safe_
};

}  // namespace

SearchResult search_batch(const SearchOptions& options, const RunProbe& run_probe) {
  check(options);
  return Search(options, run_probe).run();
}

SearchResult verify_batch(const SearchOptions& options, int64_t size, bool is_largest,
                          const RunProbe& run_probe) {
  check(options);
  SearchResult result;
  if (size > options.largest || size % options.unit != 0) return result;
  Probe probe = run_probe(size);
  probe.size = size;
  // As much memory a sample at most: what doesn't grow with the batch is in it, too.
  const double half_more = 1.5 * static_cast<double>(probe.peak_bytes);
  const bool has_room = size < options.largest &&
                        half_more <= (1 - options.margin) * static_cast<double>(probe.cap_bytes);
  result.size = leaves_margin(probe, options) && !(is_largest && has_room) ? size : 0;
  result.probes.push_back(probe);
  return result;
}

double samples_per_s(const Probe& probe) {
  return probe.step_s > 0 ? static_cast<double>(probe.size) / probe.step_s : 0.0;
}

std::optional<Probe> probe_of(const SearchResult& result, int64_t size) {
  for (const Probe& probe : result.probes) {
    if (probe.size == size) return probe;
  }
  return std::nullopt;
}

int64_t smallest_fast_size(SearchResult& found, const SearchOptions& options,
                           const RunProbe& run_probe, double tolerance) {
  for (int64_t size = kFirst; size < found.size; size *= 2) {
    if (size % options.unit != 0 || probe_of(found, size)) continue;
    Probe probe = run_probe(size);
    probe.size = size;
    found.probes.push_back(probe);
  }
  double best = 0;
  for (const Probe& probe : found.probes) {
    if (probe.fits && probe.size <= found.size) best = std::max(best, samples_per_s(probe));
  }
  int64_t smallest = found.size;
  for (const Probe& probe : found.probes) {
    const bool is_fast = probe.fits && samples_per_s(probe) >= (1 - tolerance) * best;
    if (is_fast && probe.size < smallest) smallest = probe.size;
  }
  return smallest;
}

}  // namespace brim::tune
