#include "framework/plan/ranking.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "framework/base/units.h"

namespace brim::plan {
namespace {

constexpr double kMargin = 0.04;  // of the cap, as the batch tuner leaves it free
constexpr double kAsFast = 1.01;
constexpr double kWorthSaving = 0.95;

auto simplicity(const Candidate& candidate) {
  return std::tuple(candidate.strategy.sharing, candidate.strategy.shards,
                    candidate.strategy.stages, candidate.batch.recomputes, candidate.peak_bytes);
}

/// The first of the ranked ones that is shared as `sharing` says; without it, that is shared in
/// another way than `best`, but else taken alike, and saves memory that is worth naming.
const Candidate* find_other(const std::vector<Candidate>& ranked, const Candidate& best,
                            std::optional<Sharing> sharing = std::nullopt) {
  const auto found = std::ranges::find_if(ranked, [&](const Candidate& candidate) {
    if (candidate.strategy == best.strategy) return false;
    if (sharing) return candidate.strategy.sharing == *sharing;
    const bool is_taken_alike = candidate.batch.micro == best.batch.micro &&
                                candidate.batch.recomputes == best.batch.recomputes;
    return is_taken_alike && candidate.fits() &&
           static_cast<double>(candidate.peak_bytes) <
               kWorthSaving * static_cast<double>(best.peak_bytes);
  });
  return found == ranked.end() ? nullptr : &*found;
}

std::string percent(double share) { return fmt::format("{:.0f} %", std::abs(100 * share)); }

std::string compared(const Candidate& best, const Candidate& other) {
  const double slower = other.sample_s() / best.sample_s() - 1;
  const std::string time = std::abs(slower) < 0.005 ? "take as long"
                           : slower > 0             ? "cost " + percent(slower)
                                                    : "take " + percent(slower) + " less time";
  return fmt::format("{} would save {} and {}", other.strategy.text(),
                     format_bytes(best.peak_bytes - other.peak_bytes), time);
}

}  // namespace

int64_t Candidate::room_bytes() const {
  return std::max<int64_t>(0, static_cast<int64_t>((1 - kMargin) * static_cast<double>(cap_bytes)));
}

int64_t Candidate::missing_bytes() const {
  return static_cast<int64_t>(std::ceil(static_cast<double>(peak_bytes) / (1 - kMargin))) -
         cap_bytes;
}

void rank(std::vector<Candidate>& candidates) {
  std::ranges::stable_sort(candidates, [](const Candidate& a, const Candidate& b) {
    if (a.fits() != b.fits()) return a.fits();
    return a.fits() ? a.sample_s() < b.sample_s() : a.peak_bytes < b.peak_bytes;
  });
  if (candidates.empty() || !candidates.front().fits()) return;
  const double enough_s = kAsFast * candidates.front().sample_s();
  const auto end = std::ranges::find_if(candidates, [&](const Candidate& candidate) {
    return !candidate.fits() || candidate.sample_s() > enough_s;
  });
  const auto first = std::min_element(
      candidates.begin(), end,
      [](const Candidate& a, const Candidate& b) { return simplicity(a) < simplicity(b); });
  std::rotate(candidates.begin(), first, first + 1);
}

std::string why(const std::vector<Candidate>& ranked) {
  const Candidate& best = ranked.front();
  std::string text = fmt::format("{} fits: {} of {}", best.strategy.text(),
                                 format_bytes(best.peak_bytes), format_bytes(best.cap_bytes));
  for (const Sharing simpler : {Sharing::kDdp, Sharing::kZero1}) {
    if (simpler >= best.strategy.sharing) break;
    const Candidate* other = find_other(ranked, best, simpler);
    if (other == nullptr) continue;
    if (!other->fits()) {
      text += fmt::format("; {} takes {} at least", other->strategy.text(),
                          format_bytes(other->peak_bytes));
    } else {
      text += fmt::format("; {} takes {} longer", other->strategy.text(),
                          percent(other->sample_s() / best.sample_s() - 1));
    }
  }
  if (const Candidate* other = find_other(ranked, best)) text += "; " + compared(best, *other);
  return text;
}

std::string recipe_lines(const Candidate& candidate) {
  std::string text =
      fmt::format("[batch]\nglobal = {}\nmicro = {}\n", candidate.samples, candidate.batch.micro);
  std::vector<std::string> quoted;
  for (const std::string& pattern : candidate.recompute) {
    quoted.push_back(fmt::format("\"{}\"", pattern));
  }
  text += fmt::format("[train]\nrecompute = [{}]\n", fmt::join(quoted, ", "));
  const bool is_fsdp = candidate.strategy.sharing == Sharing::kFsdp;
  text += fmt::format("[distributed]\nstrategy = \"{}\"\n", is_fsdp ? "fsdp" : "ddp");
  // What the recipe says otherwise would stay.
  text += fmt::format("zero = {}\nstages = {}\nshards = {}\n",
                      candidate.strategy.sharing == Sharing::kZero1,
                      std::max<int64_t>(1, candidate.strategy.stages), candidate.strategy.shards);
  return text;
}

std::string table(const std::vector<Candidate>& ranked, size_t most) {
  std::string text = fmt::format("{:<18} {:>6}  {:<9}  {:>10}  {:>4}  {:>10}  {:>10}\n", "strategy",
                                 "micro", "recompute", "memory", "full", "step", "samples/s");
  const auto fitting = std::ranges::count_if(ranked, &Candidate::fits);
  const size_t count = std::min<size_t>(static_cast<size_t>(fitting), most);
  for (size_t i = 0; i < count; ++i) {
    const Candidate& row = ranked[i];
    text += fmt::format(
        "{:<18} {:>6}  {:<9}  {:>10}  {:>3.0f}%  {:>8} s  {:>10}\n", row.strategy.text(),
        row.batch.micro, row.recompute.empty() ? "none" : "all", format_bytes(row.peak_bytes),
        100.0 * static_cast<double>(row.peak_bytes) / static_cast<double>(row.cap_bytes),
        format_number(row.time.total_s()), format_number(1 / row.sample_s()));
  }
  const auto more = static_cast<size_t>(fitting) - count;
  const auto too_large = static_cast<int64_t>(ranked.size()) - fitting;
  if (more > 0) text += fmt::format("and {} more that fit\n", more);
  if (too_large > 0) text += fmt::format("{} of {} do not fit\n", too_large, ranked.size());
  return text;
}

nlohmann::json to_json(const Candidate& candidate) {
  return {{"strategy", name_of(candidate.strategy.sharing)},
          {"shards", candidate.strategy.shards},
          {"stages", candidate.strategy.stages},
          {"micro", candidate.batch.micro},
          {"recompute", candidate.recompute},
          {"peak_bytes", candidate.peak_bytes},
          {"cap_bytes", std::max<int64_t>(0, candidate.cap_bytes)},
          {"fits", candidate.fits()},
          {"step_s", candidate.time.total_s()},
          {"compute_s", candidate.time.compute_s},
          {"update_s", candidate.time.update_s},
          {"exposed_s", candidate.time.exposed_s},
          {"samples_per_s", 1 / candidate.sample_s()}};
}

}  // namespace brim::plan
