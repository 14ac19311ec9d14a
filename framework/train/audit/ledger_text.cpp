#include "framework/train/audit/ledger_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "framework/base/units.h"

namespace brim::train {
namespace {

constexpr size_t kMaxLines = 20;  // of a kind

/// Lines under a word that stands before the first of them.
class Lines {
 public:
  void add(std::string_view word, const std::string& text) {
    text_ += fmt::format("{:<11}{}\n", word == word_ ? "" : word, text);
    word_ = word;
  }
  const std::string& text() const { return text_; }

 private:
  std::string word_;
  std::string text_;
};

/// "steps 1–12", "step 7".
std::string range_text(std::string_view noun, int64_t first, int64_t last) {
  if (first == last) return fmt::format("{} {}", noun, format_count(first));
  return fmt::format("{}s {}–{}", noun, format_count(first), format_count(last));
}

/// "4 ranks"; with stages "4 ranks (2 replicas × 2 stages)".
std::string ranks_text(const HistoryPart& part) {
  const std::string ranks = format_plural(part.ranks * part.stages, "rank");
  if (part.stages == 1) return ranks;
  return fmt::format("{} ({} × {} stages)", ranks, format_plural(part.ranks, "replica"),
                     part.stages);
}

/// "64 samples each", "3 or 4 samples a replica".
std::string share_text(int64_t batch, const HistoryPart& part) {
  const int64_t least = batch / part.ranks;
  const std::string samples = batch % part.ranks == 0
                                  ? format_plural(least, "sample")
                                  : fmt::format("{} or {} samples", least, least + 1);
  return samples + (part.stages == 1 ? " each" : " a replica");
}

std::string part_text(const SampleAudit& audit, size_t index) {
  const auto& parts = audit.record.history.parts;
  const HistoryPart& part = parts[index];
  const int64_t last = index + 1 < parts.size() ? parts[index + 1].after_step : audit.record.step;
  std::string text =
      fmt::format("{}: {}", range_text("step", part.after_step + 1, last), ranks_text(part));
  if (part.ranks > 1) {
    if (part.shares == "even") {
      const int64_t batch = std::min(audit.record.global_batch, audit.record.samples);
      text += ", " + share_text(batch, part);
    } else {
      const std::string each = part.stages == 1 ? "each" : "a replica";
      text += part.shares == "pairs" ? ", whole pairs " + each : ", balanced by " + part.shares;
    }
  }
  if (part.after_step > 0) text += fmt::format(", resumed after step {}", part.after_step);
  if (index > 0 && are_other_data(parts[index - 1], part)) text += " on other data";
  return text;
}

void add_parts(const SampleAudit& audit, Lines& lines) {
  const auto& parts = audit.record.history.parts;
  if (audit.unrecorded_steps() > 0) {
    lines.add("ranks", range_text("step", 1, audit.unrecorded_steps()) +
                           ": not recorded, nor which samples were replaced; an older Brim took "
                           "them");
  }
  const size_t first = parts.size() > kMaxLines ? parts.size() - kMaxLines : 0;
  if (first > 0) lines.add("ranks", format_plural(static_cast<int64_t>(first), "earlier part"));
  for (size_t i = first; i < parts.size(); ++i) {
    const bool is_empty = parts[i].after_step == audit.record.step;
    if (!is_empty) lines.add("ranks", part_text(audit, i));
  }
  const size_t shown = std::min(audit.repeated.size(), kMaxLines);
  for (const RepeatedSteps& steps :
       std::vector(audit.repeated.end() - static_cast<int64_t>(shown), audit.repeated.end())) {
    lines.add("repeated", range_text("step", steps.after_step + 1, steps.last_step) +
                              ": computed again; the time before is not in these weights");
  }
  if (audit.logged_step > audit.record.step) {
    lines.add("later", range_text("step", audit.record.step + 1, audit.logged_step) +
                           ": in metrics.jsonl, not in this checkpoint");
  }
}

/// "1,437 samples, each exactly once"; what is missing from that.
std::string epoch_text(const SampleAudit& audit, const EpochRange& epoch) {
  const int64_t samples = audit.record.samples;
  const std::string each = epoch.first == epoch.last ? "" : " in each";
  if (epoch.is_exact(samples)) {
    if (!epoch.is_whole) {
      return fmt::format("{} of {} samples so far, each at most once", format_count(epoch.seen),
                         format_count(samples));
    }
    return fmt::format("{}{}, each exactly once", format_plural(samples, "sample"), each);
  }
  std::string text = fmt::format("{} of {} samples{}", format_count(epoch.least_distinct),
                                 format_count(samples), each);
  if (epoch.least_distinct < epoch.most_distinct) {
    text = fmt::format("{} to {} of {} samples", format_count(epoch.least_distinct),
                       format_count(epoch.most_distinct), format_count(samples));
  }
  if (epoch.repeated_sample) {
    text += fmt::format(" in {} draws, some more than once, such as sample {}",
                        format_count(epoch.seen), *epoch.repeated_sample);
  } else {
    text += ", each exactly once";
  }
  if (epoch.is_whole && epoch.seen < samples) {
    text += fmt::format("; {} left out by data.drop_last", format_count(samples - epoch.seen));
  }
  if (epoch.replaced_all > 0) {
    text += fmt::format("; {} replaced", format_count(epoch.replaced_all));
  }
  return text;
}

void add_epochs(const SampleAudit& audit, Lines& lines) {
  const auto& epochs = audit.ledger.epochs;
  for (size_t i = 0; i < std::min(epochs.size(), kMaxLines); ++i) {
    lines.add("seen",
              fmt::format("{}: {}", range_text("epoch", epochs[i].first + 1, epochs[i].last + 1),
                          epoch_text(audit, epochs[i])));
  }
  if (epochs.size() > kMaxLines) {
    lines.add("seen", "more of them with --json");
  }
}

void add_replaced(const SampleAudit& audit, Lines& lines) {
  std::map<int64_t, std::pair<std::string, int64_t>> times;
  for (const data::Replacement& one : audit.record.history.replaced) {
    auto& [name, count] = times[one.sample];
    name = one.name;
    ++count;
  }
  size_t shown = 0;
  for (const auto& [sample, named] : times) {
    if (shown++ == kMaxLines) {
      lines.add("unreadable",
                fmt::format("{} more, with --json",
                            format_count(static_cast<int64_t>(times.size() - kMaxLines))));
      break;
    }
    lines.add("unreadable", fmt::format("sample {}, {}: replaced {}", sample, named.first,
                                        format_plural(named.second, "time")));
  }
  if (audit.record.history.replaced_left_out > 0) {
    lines.add("unreadable", fmt::format("{} further replacements are not recorded",
                                        format_count(audit.record.history.replaced_left_out)));
  }
}

/// "rank 3"; with stages all of its pipeline, "ranks 2–3".
std::string rank_text(const Place& place) {
  if (!place.rank) return "unknown rank";
  if (place.stages == 1) return fmt::format("rank {}", *place.rank);
  return fmt::format("ranks {}–{}", *place.rank, *place.rank + place.stages - 1);
}

std::string place_text(const Place& place) {
  return fmt::format("epoch {}, step {}, {}, position {}", place.epoch + 1, place.step,
                     rank_text(place), place.position);
}

void add_asked(const SampleAudit& audit, Lines& lines) {
  if (audit.sample) {
    const std::string word = fmt::format("sample {}", *audit.sample);
    for (const Place& place : audit.ledger.places) lines.add(word, place_text(place));
    if (audit.ledger.places_left_out > 0) {
      lines.add(word, fmt::format("and {} more", format_count(audit.ledger.places_left_out)));
    }
    if (audit.ledger.places.empty()) lines.add(word, "not seen");
  }
  std::map<std::optional<int64_t>, std::string> by_rank;
  for (const SeenSample& seen : audit.of_step) {
    std::string& list = by_rank[seen.place.rank];
    if (list.empty()) list = rank_text(seen.place) + ": samples";
    list += fmt::format(" {}", seen.sample);
  }
  for (const auto& [rank, list] : by_rank) lines.add(fmt::format("step {}", *audit.step), list);
}

std::string result_text(const SampleAudit& audit) {
  if (audit.record.step == 0) return "no step is finished: nothing was seen";
  if (audit.is_proven()) {
    const bool is_within_first = audit.record.step < audit.record.steps_per_epoch();
    return is_within_first ? "no sample more than once; the first epoch is not finished"
                           : "each sample exactly once an epoch";
  }
  if (!audit.is_permutation) {
    return "not each sample exactly once an epoch: the sampler does not ask for that";
  }
  return "not each sample exactly once an epoch: see above for the exceptions";
}

nlohmann::json json_of(const Place& place) {
  return {{"epoch", place.epoch},
          {"step", place.step},
          {"position", place.position},
          {"rank", place.rank ? nlohmann::json(*place.rank) : nlohmann::json()}};
}

nlohmann::json epochs_json(const SampleAudit& audit) {
  nlohmann::json json = nlohmann::json::array();
  for (const EpochRange& epoch : audit.ledger.epochs) {
    json.push_back({{"first", epoch.first},
                    {"last", epoch.last},
                    {"whole", epoch.is_whole},
                    {"steps", epoch.steps},
                    {"seen", epoch.seen},
                    {"least_distinct", epoch.least_distinct},
                    {"most_distinct", epoch.most_distinct},
                    {"replaced", epoch.replaced_all},
                    {"exactly_once", epoch.is_exact(audit.record.samples)}});
  }
  return json;
}

}  // namespace

int64_t SampleAudit::unrecorded_steps() const {
  return record.history.parts.empty() ? record.step : record.history.parts.front().after_step;
}

bool SampleAudit::is_proven() const {
  const auto is_exact = [&](const EpochRange& epoch) { return epoch.is_exact(record.samples); };
  const bool are_same_data = std::ranges::adjacent_find(record.history.parts, are_other_data) ==
                             record.history.parts.end();
  return unrecorded_steps() == 0 && record.history.replaced_left_out == 0 && are_same_data &&
         std::ranges::all_of(ledger.epochs, is_exact);
}

std::string describe(const SampleAudit& audit) {
  Lines lines;
  const SampleRecord& record = audit.record;
  lines.add("checkpoint", fmt::format("{}: {} of {}", audit.checkpoint.string(),
                                      format_plural(record.step, "step"),
                                      format_plural(record.global_batch, "sample")));
  lines.add(
      "order",
      fmt::format("{}, seed {}, {}{}", record.order, static_cast<int64_t>(record.seed),
                  format_plural(record.samples, "sample"), record.drop_last ? ", drop_last" : ""));
  add_parts(audit, lines);
  add_epochs(audit, lines);
  add_replaced(audit, lines);
  lines.add("result", result_text(audit));
  add_asked(audit, lines);
  return lines.text();
}

nlohmann::json to_json(const SampleAudit& audit) {
  const SampleRecord& record = audit.record;
  nlohmann::json json = to_json(record.history);
  json.update({{"checkpoint", audit.checkpoint.string()},
               {"step", record.step},
               {"logged_step", audit.logged_step},
               {"order",
                {{"text", record.order},
                 {"seed", static_cast<int64_t>(record.seed)},
                 {"samples", record.samples},
                 {"global_batch", record.global_batch},
                 {"drop_last", record.drop_last},
                 {"permutation", audit.is_permutation}}},
               {"unrecorded_steps", audit.unrecorded_steps()},
               {"epochs", epochs_json(audit)},
               {"exactly_once", audit.is_proven()}});
  json["repeated"] = nlohmann::json::array();
  for (const RepeatedSteps& steps : audit.repeated) {
    json["repeated"].push_back({{"first", steps.after_step + 1}, {"last", steps.last_step}});
  }
  if (audit.sample) {
    json["places"] = nlohmann::json::array();
    for (const Place& place : audit.ledger.places) json["places"].push_back(json_of(place));
    json["places_left_out"] = audit.ledger.places_left_out;
  }
  if (audit.step) {
    json["samples_of_step"] = nlohmann::json::array();
    for (const SeenSample& seen : audit.of_step) {
      json["samples_of_step"].push_back(json_of(seen.place));
      json["samples_of_step"].back()["sample"] = seen.sample;
    }
  }
  return json;
}

}  // namespace brim::train
