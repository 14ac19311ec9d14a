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

/// Of a layer, and what it should be a multiple of.
struct Width {
  int64_t values = 1;
  int64_t multiple = 1;
  bool is_vocabulary = false;

  int64_t padded() const { return (values + multiple - 1) / multiple * multiple; }
  /// Of a piece's work, on values that are not there.
  double padding() const { return 1 - static_cast<double>(values) / static_cast<double>(padded()); }
};

/// Of the step. A CPU loses no more than that; a GPU's fast kernels need rows that are aligned.
double padding_share(const StepProfile& profile, const std::map<std::string, Width>& modules) {
  double seconds = 0;
  for (const OperatorCalls& calls : profile.operators) {
    const auto found = modules.find(calls.module);
    if (calls.flops > 0 && found != modules.end())
      seconds += found->second.padding() * calls.self_s;
  }
  return profile.wall_s > 0 ? seconds / profile.wall_s : 0;
}

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
  std::map<std::string, Width> modules;
  for (const OperatorCalls& calls : profile.operators) {
    const auto widths = layer_widths(calls);
    if (!widths || calls.module.empty() || !is_low(calls.product_format())) continue;
    for (const int64_t values : {widths->in, widths->out}) {
      const bool is_vocabulary = vocabularies.contains(values);
      const Width width{values, is_vocabulary ? kVocabularyTile : kPiece, is_vocabulary};
      const bool is_given = !is_vocabulary && given.contains(values);
      if (width.padded() > values && !is_given && values > kChannelsOfImages) {
        modules[calls.module] = width;
      }
    }
  }
  const CallGroup group = group_of(profile, [&](const OperatorCalls& calls) {
    return calls.flops > 0 && modules.contains(calls.module);
  });
  const double lost = profile.is_on_gpu() ? group.share : padding_share(profile, modules);
  const auto severity = reached(lost, kMisalignedShare);
  if (!severity) return silent();
  const Width& width = modules.at(group.module);
  return found(
      *severity, lost,
      fmt::format("products of layers whose width is no multiple of {} take {:.0f} % of the "
                  "step, most in {}, which has {}",
                  width.multiple, 100 * group.share, group.module, width.values),
      width.is_vocabulary
          ? fmt::format("model.pad_vocabulary_to = {}", kVocabularyTile)
          : fmt::format("{} values in {}, not {}", width.padded(), group.module, width.values));
}

}  // namespace brim::doctor
