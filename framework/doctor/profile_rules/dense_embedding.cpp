// Gradients of whole embedding tables, of which a step has looked at few rows.
#include <algorithm>

#include "framework/doctor/profile_rules/calls.h"
#include "framework/doctor/profile_rules/profile_rules.h"

namespace brim::doctor {
namespace {

/// The tokens of a pass.
double count(const std::vector<int64_t>& sizes) {
  double result = 1;
  for (const int64_t size : sizes) result *= static_cast<double>(size);
  return result;
}

}  // namespace

RuleResult check_dense_embedding(const StepProfile& profile) {
  const CallGroup group = group_of(profile, [](const OperatorCalls& calls) {
    return is_named(calls, {"embedding_dense_backward"});
  });
  const auto severity = reached(group.share, kDenseEmbeddingShare);
  if (!severity) return silent();
  const OperatorCalls table = group_of(profile, [](const OperatorCalls& calls) {
                                return calls.name == "aten::embedding" &&
                                       calls.inputs.size() == 2 &&
                                       calls.inputs[0].sizes.size() == 2;
                              }).longest;
  if (table.inputs.empty()) return silent();
  const int64_t rows = table.inputs[0].sizes[0];
  const double used = count(table.inputs[1].sizes);
  if (used >= static_cast<double>(rows)) return silent();
  return found(
      *severity, group.share,
      fmt::format(
          "the dense gradient of {}, {} rows of which a pass uses at most {:.0f}, takes {:.0f} "
          "% of the step",
          group.module, rows, used, 100 * group.share),
      fmt::format("batch.micro = {}, which fills the table once for more tokens, or a smaller "
                  "vocabulary",
                  2 * profile.micro_batch));
}

}  // namespace brim::doctor
