// Layers whose widths the device's matrix units can't fill: they multiply in pieces of 8 values
// and more, and a vocabulary in tiles of 64.
#include <map>
#include <set>

#include "framework/doctor/profile_rules/calls.h"
#include "framework/doctor/profile_rules/profile_rules.h"

namespace brim::doctor {
namespace {

constexpr int64_t kPiece = 8, kVocabularyTile = 64;
constexpr int64_t kChannelsOfImages = 4;  // at most, which no one can choose

int64_t next_multiple(int64_t value, int64_t of) { return (value + of - 1) / of * of; }

/// How many classes the data have, which no one can choose either.
std::set<int64_t> classes_of(const StepProfile& profile) {
  std::set<int64_t> classes;
  for (const OperatorCalls& calls : profile.operators) {
    const bool is_of_logits =
        calls.module == "loss" && !calls.inputs.empty() && calls.inputs[0].sizes.size() == 2;
    if (is_of_logits) classes.insert(calls.inputs[0].sizes[1]);
  }
  return classes;
}

}  // namespace

RuleResult check_alignment(const StepProfile& profile) {
  std::set<int64_t> vocabularies;
  for (const OperatorCalls& calls : profile.operators) {
    const bool is_table = calls.name == "aten::embedding" && !calls.inputs.empty() &&
                          calls.inputs[0].sizes.size() == 2;
    if (is_table) vocabularies.insert(calls.inputs[0].sizes[0]);
  }
  const std::set<int64_t> given = classes_of(profile);
  std::map<std::string, std::pair<int64_t, bool>> modules;  // the width, and if it is a vocabulary
  for (const OperatorCalls& calls : profile.operators) {
    const auto widths = layer_widths(calls);
    if (!widths || calls.inputs.empty() || !is_low(calls.inputs.back().dtype)) continue;
    for (const int64_t width : {widths->in, widths->out}) {
      const bool is_vocabulary = vocabularies.contains(width);
      const bool fits = width % (is_vocabulary ? kVocabularyTile : kPiece) == 0;
      const bool is_given = !is_vocabulary && given.contains(width);
      if (!fits && !is_given && width > kChannelsOfImages)
        modules[calls.module] = {width, is_vocabulary};
    }
  }
  const CallGroup group = group_of(profile, [&](const OperatorCalls& calls) {
    return calls.flops > 0 && modules.contains(calls.module);
  });
  const auto severity = reached(group.share, kMisalignedShare);
  if (!severity) return silent();
  const auto [width, is_vocabulary] = modules.at(group.module);
  const int64_t multiple = is_vocabulary ? kVocabularyTile : kPiece;
  return found(
      *severity, group.share,
      fmt::format("products of layers whose width is no multiple of {} take {:.0f} % of the step, "
                  "most in {}, which has {}",
                  multiple, 100 * group.share, group.module, width),
      is_vocabulary ? fmt::format("model.pad_vocabulary_to = {}", kVocabularyTile)
                    : fmt::format("{} values in {}, not {}", next_multiple(width, kPiece),
                                  group.module, width));
}

}  // namespace brim::doctor
