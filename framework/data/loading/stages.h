// Where the time to read a sample goes, for those who measure: one thread's time is given to the
// stage it entered last. Costs nothing to speak of where no one measures.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace brim::data {

/// kCopy is no sample's but a batch's, on its way to the device (copy_stage.h).
enum class Stage { kRead, kDecode, kResize, kAugment, kCopy };
inline constexpr int kStageCount = 5;
inline constexpr std::array<std::string_view, kStageCount> kStageNames = {
    "read", "decode", "resize", "augment", "copy"};

/// Measures the calling thread from construction to destruction; one at a time per thread.
class StageClock {
 public:
  StageClock();
  ~StageClock();
  StageClock(const StageClock&) = delete;
  StageClock& operator=(const StageClock&) = delete;

  /// Seconds by Stage, up to the last enter_stage().
  const std::array<double, kStageCount>& seconds() const { return seconds_; }

 private:
  friend void enter_stage(Stage stage);
  void enter(Stage stage);

  std::array<double, kStageCount> seconds_{};
  Stage stage_ = Stage::kRead;
  double since_s_;
};

/// Called by those who read samples, at the start of each stage.
void enter_stage(Stage stage);

}  // namespace brim::data
