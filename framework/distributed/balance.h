// Shares of the global batch that follow what each rank shows it can do.
#pragma once

#include <optional>
#include <vector>

namespace brim::distributed {

/// The ranks' next weights (their mean is 1) from those of now and the samples a second that each
/// rank made alone, without its waits for others. Slow on purpose: halfway to the measured
/// proportions, no rank under a quarter or over twice the mean; nullopt where no rank's share would
/// change by a fiftieth.
std::optional<std::vector<double>> next_weights(const std::vector<double>& now,
                                                const std::vector<double>& samples_per_s);

}  // namespace brim::distributed
