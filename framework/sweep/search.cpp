#include "framework/sweep/search.h"

#include <algorithm>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/random.h"
#include "framework/base/units.h"

namespace brim::sweep {
namespace {

constexpr int64_t kTriesPerTrial = 1000;  // points that fall on settings which are there already

}  // namespace

Points random_points(int64_t seed, size_t keys) {
  return [seed, keys, number = uint64_t{0}]() mutable {
    RandomStream stream(static_cast<uint64_t>(seed), number++, 0);
    std::vector<double> point(keys);
    for (double& place : point) place = stream.uniform();
    return point;
  };
}

std::vector<Settings> draw(std::span<const Parameter> space, const Points& points, int64_t count,
                           const std::set<Settings>& taken) {
  const auto wanted = count + static_cast<int64_t>(taken.size());
  const auto refuse = [&](const std::string& found) {
    std::string advice = "; give fewer by --trials";
    if (!taken.empty()) {
      advice = fmt::format(", and the sweep has {} already{}",
                           format_plural(std::ssize(taken), "trial"), advice);
    } else if (std::ranges::none_of(space, &Parameter::is_range)) {
      advice += ", or --search grid for each combination once";
    }
    throw Error(Exit::kRecipe, "--trials {}: the search space has {} combinations{}", count, found,
                advice);
  };
  const int64_t combinations = count_combinations(space, wanted);
  if (combinations < wanted) {  // some of the taken may be none of them
    int64_t left = 0;
    for (int64_t i = 0; i < combinations; ++i)
      left += taken.contains(combination(space, i)) ? 0 : 1;
    if (left < count) refuse(std::to_string(combinations));
  }
  std::set<Settings> known = taken;
  std::vector<Settings> drawn;
  for (int64_t tries = kTriesPerTrial * wanted; static_cast<int64_t>(drawn.size()) < count;) {
    if (tries-- == 0) refuse(fmt::format("about {}", known.size()));
    const std::vector<double> point = points();
    Settings settings;
    for (size_t i = 0; i < space.size(); ++i) settings.push_back(setting_at(space[i], point[i]));
    if (known.insert(settings).second) drawn.push_back(std::move(settings));
  }
  return drawn;
}

std::vector<Settings> grid(std::span<const Parameter> space) {
  for (const Parameter& parameter : space) {
    if (!parameter.is_range()) continue;
    throw Error(Exit::kRecipe,
                "vary {}: a grid takes lists: give the number of values behind the range, as in "
                "1e-3..1e-1:log:5, or --search random",
                parameter.key);
  }
  const int64_t count = count_combinations(space, kMaxTrials + 1);
  if (count > kMaxTrials) {
    throw Error(Exit::kRecipe, "the grid has more than {} combinations; give fewer values",
                kMaxTrials);
  }
  std::vector<Settings> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(combination(space, i));
  return all;
}

std::vector<Settings> shuffled(const std::vector<Settings>& all, int64_t seed) {
  const auto count = static_cast<int64_t>(all.size());
  const KeyedPermutation order(static_cast<uint64_t>(seed), 0, count);
  std::vector<Settings> result;
  for (int64_t i = 0; i < count; ++i) result.push_back(all[static_cast<size_t>(order(i))]);
  return result;
}

}  // namespace brim::sweep
