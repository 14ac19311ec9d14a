#include "framework/data/order/replacement_log.h"

namespace brim::data {

void ReplacementLog::add(Replacement replacement) {
  const std::lock_guard lock(mutex_);
  const std::pair place(replacement.epoch, replacement.position);
  replacements_.insert_or_assign(place, std::move(replacement));
}

bool ReplacementLog::add_unreadable(int64_t sample) {
  const std::lock_guard lock(mutex_);
  return unreadable_.insert(sample).second;
}

int64_t ReplacementLog::unreadable() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(unreadable_.size());
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
