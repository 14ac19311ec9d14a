#include "framework/telemetry/rank_metrics.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>

namespace brim::telemetry {
namespace {

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

void add_works(std::vector<RankWork>& sums, const std::vector<RankWork>& works) {
  if (sums.size() < works.size()) sums.resize(works.size());
  for (size_t rank = 0; rank < works.size(); ++rank) {
    sums[rank].busy_s += works[rank].busy_s;
    sums[rank].samples += works[rank].samples;
  }
}

nlohmann::json rank_metrics(const std::vector<RankWork>& works) {
  if (works.size() < 2) return nullptr;
  std::vector<double> busy_s;
  double samples = 0;
  double max_samples = 0;
  for (const RankWork& work : works) {
    busy_s.push_back(work.busy_s);
    samples += static_cast<double>(work.samples);
    max_samples = std::max(max_samples, static_cast<double>(work.samples));
  }
  const auto slowest = std::ranges::max_element(busy_s);
  nlohmann::json metrics = {{"slowest", slowest - busy_s.begin()}};
  const double slowest_s = *slowest, first_s = busy_s.front();
  if (first_s > 0) metrics["slowest_to_rank_0"] = slowest_s / first_s;
  busy_s.erase(slowest);
  const double usual_s = median(busy_s);
  if (usual_s > 0) metrics["slowest_ratio"] = slowest_s / usual_s;
  if (samples > 0) {
    metrics["largest_share_ratio"] = max_samples * static_cast<double>(works.size()) / samples;
  }
  return metrics;
}

nlohmann::json rank_record(const std::vector<std::string>& places,
                           const std::vector<RankWork>& works) {
  nlohmann::json list = nlohmann::json::array();
  for (size_t rank = 0; rank < places.size(); ++rank) {
    list.push_back({{"rank", rank}, {"place", places[rank]}});
    if (rank >= works.size()) continue;
    list.back().update({{"busy_s", works[rank].busy_s}, {"samples", works[rank].samples}});
  }
  return list;
}

}  // namespace brim::telemetry
