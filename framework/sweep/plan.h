// What a sweep is to do: fixed when it is made, kept in its database.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace brim::sweep {

enum class Search { kGrid, kRandom, kSobol };
inline constexpr std::array<std::string_view, 3> kSearchWords = {"grid", "random", "sobol"};

struct Plan {
  std::string name;               // the recipe's
  std::vector<std::string> vary;  // "optimizer.learning_rate=1e-3..1e-1:log"
  Search search = Search::kRandom;
  int64_t seed = 0;    // of the search
  std::string metric;  // of the evaluations, as in "top1"
  bool is_lower_better = false;
  std::vector<int64_t> rungs = {};  // epochs at whose end trials pause; rising; empty: none do
  int64_t reduction = 3;            // of a rung's trials one in so many continues
  int64_t per_device = 1;           // trials at the same time on one device
  int64_t devices_per_trial = 1;
  std::string devices = "auto";   // as device.select takes them; "cpu" for the processor
  int64_t keep_free = 0;          // idle GPUs that are left to others
  double idle_free_memory = 0.0;  // as [device] has them
  double idle_utilisation = 0.0;

  bool is_better(double value, double than) const {
    return is_lower_better ? value < than : value > than;
  }
};

nlohmann::json to_json(const Plan& plan);
/// Throws Error(kData), naming `where`, for anything but what to_json() gives.
Plan plan_of(const std::string& json, const std::string& where);

}  // namespace brim::sweep
