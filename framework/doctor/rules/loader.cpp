// The loader makes fewer samples than a step would take, or takes the step's cores to make them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "framework/base/units.h"
#include "framework/doctor/rules/rules.h"

namespace brim::doctor {
namespace {

constexpr int64_t kUsualPrefetch = 2;
constexpr double kShownShare = 0.01;  // of decoding on the step's own cores

struct LoaderAdvice {
  std::vector<std::string> words;
  std::vector<Settings> proposals;
};

/// How many threads would do, of those that fit beside what else runs; nullopt where that is what
/// the run had.
std::optional<int64_t> enough_workers(const RunFacts& facts) {
  const double ratio = *facts.wanted_per_s / std::max(*facts.given_per_s, 1e-9);
  const bool has_idle_cores =
      facts.decode_load <= facts.share(Phase::kDataWait) &&
      (!facts.load_per_core || !reached(*facts.load_per_core, kLoadPerCore));
  if (!facts.workers || !facts.cores || !has_idle_cores) return std::nullopt;
  const int64_t now = std::max<int64_t>(*facts.workers, 1);
  const auto needed =
      static_cast<int64_t>(std::ceil(static_cast<double>(now) * std::min(ratio, 64.0)));
  const int64_t possible = std::min(needed, *facts.cores);
  return possible > *facts.workers ? std::optional(possible) : std::nullopt;
}

/// Decoding beside the steps, more threads where cores are left for them, then what makes a sample
/// cheaper.
LoaderAdvice loader_advice(const RunFacts& facts) {
  LoaderAdvice advice;
  if (facts.prefetch && *facts.prefetch < kUsualPrefetch) {
    advice.words.push_back(fmt::format("data.prefetch = {}", kUsualPrefetch));
    advice.proposals.push_back({fmt::format("data.prefetch={}", kUsualPrefetch)});
  }
  if (const auto workers = enough_workers(facts)) {
    advice.words.push_back(
        fmt::format("data.workers = {} ({} more)", *workers, *workers - *facts.workers));
    advice.proposals.push_back({fmt::format("data.workers={}", *workers)});
  }
  const bool is_decoded_once = facts.cache == "decoded";
  const bool is_on_gpu = facts.decode == "gpu";
  if (facts.is_cuda.value_or(false) && facts.decode == "cpu" && !is_decoded_once) {
    advice.words.emplace_back("data.decode = \"gpu\" (of JPEG files)");
    advice.proposals.push_back({"data.decode=gpu"});
  }
  if (!facts.cache.empty() && !is_decoded_once && !is_on_gpu) {
    advice.words.emplace_back("data.cache = \"decoded\"");
    advice.proposals.push_back({"data.cache=decoded"});
  }
  if (facts.fast_decode && !*facts.fast_decode && !is_decoded_once && !is_on_gpu) {
    advice.words.emplace_back("data.fast_decode = true");
    advice.proposals.push_back({"data.fast_decode=true"});
  }
  if (advice.words.empty()) {
    advice.words.emplace_back(
        "cheaper data.augment, or smaller files; `trainer data bench` says what bounds it");
  }
  return advice;
}

std::string shares_of(const RunFacts& facts) {
  if (facts.decode_share < kShownShare) return "";
  return fmt::format(" ({:.0f} % waits, {:.0f} % decoding on the step's own cores)",
                     100 * facts.share(Phase::kDataWait), 100 * facts.decode_share);
}

}  // namespace

RuleResult check_loader(const RunFacts& facts) {
  if (!facts.phases || !facts.wanted_per_s || !facts.given_per_s) {
    return not_recorded("the phases of a step");
  }
  const double share = facts.data_share();
  const auto severity = reached(share, kDataWaitShare);
  if (!severity) return silent();
  LoaderAdvice what = loader_advice(facts);
  return found(
      *severity, share,
      fmt::format("data-bound: {:.0f} % of step time{}; the loader delivers {} samples/s, the "
                  "device could take {}",
                  100 * share, shares_of(facts), format_count(std::llround(*facts.given_per_s)),
                  format_count(std::llround(*facts.wanted_per_s))),
      fmt::format("{}", fmt::join(what.words, " or ")), std::move(what.proposals));
}

}  // namespace brim::doctor
