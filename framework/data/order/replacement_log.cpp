#include "framework/data/order/replacement_log.h"

namespace brim::data {

void ReplacementLog::add(Replacement replacement) {
  const std::lock_guard lock(mutex_);
  const std::pair place(replacement.epoch, replacement.position);
  replacements_.insert_or_assign(place, std::move(replacement));
}

int64_t ReplacementLog::add_unreadable(int64_t sample, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (unreadable_.insert(sample).second) unreported_.push_back(why);
  return static_cast<int64_t>(unreadable_.size());
}

int64_t ReplacementLog::unreadable() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(unreadable_.size());
}

std::vector<std::string> ReplacementLog::take_unreported() {
  const std::lock_guard lock(mutex_);
  return std::exchange(unreported_, {});
}

std::vector<Replacement> ReplacementLog::take_before(int64_t epoch, int64_t position) {
  const std::lock_guard lock(mutex_);
  const auto end = replacements_.lower_bound({epoch, position});
  std::vector<Replacement> taken;
  for (auto it = replacements_.begin(); it != end; ++it) taken.push_back(std::move(it->second));
  replacements_.erase(replacements_.begin(), end);
  return taken;
}

}  // namespace brim::data
