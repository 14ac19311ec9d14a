#include "framework/telemetry/progress.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace brim::telemetry {
namespace {

ProgressState middle() {
  return {.epoch = 3,
          .epochs = 20,
          .step = 1250,
          .steps = 5000,
          .step_s = 0.125,
          .samples_per_s = 2345.6,
          .loss = 0.81234,
          .learning_rate = 0.001};
}

TEST(FormatProgress, ShowsEverythingOnAWideTerminal) {
  EXPECT_EQ(format_progress(middle(), 140),
            "epoch 3/20  [=======>                      ]  step 1250/5000  125 ms  "
            "2,346 images/s  loss 0.8123  lr 0.001  ETA 7 m 49 s");
}

TEST(FormatProgress, GivesUpTheLeastWantedFirst) {
  const std::string until_loss =
      "epoch 3/20  [==>      ]  step 1250/5000  125 ms  2,346 images/s  loss 0.8123  ";
  EXPECT_EQ(format_progress(middle(), 100), until_loss + "lr 0.001  ETA 7 m 49 s");
  EXPECT_EQ(format_progress(middle(), 90), until_loss + "ETA 7 m 49 s");
  EXPECT_EQ(format_progress(middle(), 82),
            "epoch 3/20  [==>      ]  step 1250/5000  2,346 images/s  loss 0.8123  ETA 7 m 49 s");
  EXPECT_EQ(format_progress(middle(), 79),
            "[====>             ]  step 1250/5000  2,346 images/s  loss 0.8123  ETA 7 m 49 s");
  EXPECT_EQ(format_progress(middle(), 65),
            "step 1250/5000  2,346 images/s  loss 0.8123  ETA 7 m 49 s");
  EXPECT_EQ(format_progress(middle(), 50), "step 1250/5000  loss 0.8123  ETA 7 m 49 s");
  EXPECT_EQ(format_progress(middle(), 40), "step 1250/5000  loss 0.8123");
  EXPECT_EQ(format_progress(middle(), 20), "step 1250/5000");
  EXPECT_EQ(format_progress(middle(), 8), "step 125");
}

TEST(FormatProgress, NeverWrapsAtAnyWidth) {
  ProgressState large = middle();
  large.step = large.steps = std::numeric_limits<int64_t>::max();
  large.loss = -1e300;
  for (int width = -1; width <= 300; ++width) {
    for (const ProgressState& state : {middle(), large, ProgressState{}}) {
      EXPECT_LE(format_progress(state, width).size(), static_cast<size_t>(std::max(width, 0)));
    }
  }
}

TEST(FormatProgress, TheBarGoesFromEmptyToFull) {
  ProgressState state = middle();
  state.step = 0;
  EXPECT_EQ(format_progress(state, 110).substr(0, 30), "epoch 3/20  [>                ");
  state.step = state.steps;
  EXPECT_EQ(format_progress(state, 140),
            "epoch 3/20  [==============================]  step 5000/5000  125 ms  "
            "2,346 images/s  loss 0.8123  lr 0.001");
}

TEST(FormatProgress, LeavesOutWhatIsNotKnown) {
  EXPECT_EQ(format_progress({.step = 7, .loss = 2.5, .learning_rate = 0.0}, 80),
            "step 7  loss 2.5000  lr 0");
  EXPECT_EQ(format_progress({.step = 7}, 80), "step 7  lr 0");
  EXPECT_EQ(format_progress({.epoch = 1, .step = 7, .steps = 9, .loss = -std::nan("")}, 60),
            "epoch 1  [=================>     ]  step 7/9  loss nan  lr 0");
}

TEST(FormatProgressLine, HasNoBarAndNoLimit) {
  ProgressState state = middle();
  state.step_s = 0.00123;
  state.samples_per_s = 12.34;
  state.samples = "tokens";
  state.learning_rate = 3e-5;
  EXPECT_EQ(format_progress_line(state),
            "epoch 3/20  step 1250/5000  1.23 ms  12.3 tokens/s  loss 0.8123  lr 0.00003  "
            "ETA 4.6 s");
}

// In CTest stderr is no terminal.
TEST(Progress, WritesTheFirstStepThenOneLineEveryFiveSecondsAndTheLast) {
  ::testing::internal::CaptureStderr();
  {
    Progress progress;
    ProgressState state = {.steps = 12, .step_s = 1.0, .samples_per_s = 8.0, .loss = 1.0};
    for (state.step = 1; state.step <= 12; ++state.step) {
      progress.update(state, 100.0 + static_cast<double>(state.step));
      if (state.step == 8) progress.note("evaluation: top-1 97.2 %");
    }
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "brim: step 1/12  1.00 s  8.0 images/s  loss 1.0000  lr 0  ETA 11.0 s\n"
            "brim: step 6/12  1.00 s  8.0 images/s  loss 1.0000  lr 0  ETA 6.0 s\n"
            "brim: evaluation: top-1 97.2 %\n"
            "brim: step 11/12  1.00 s  8.0 images/s  loss 1.0000  lr 0  ETA 1.0 s\n"
            "brim: step 12/12  1.00 s  8.0 images/s  loss 1.0000  lr 0\n");
}

TEST(Progress, AveragesTimeAndSpeedOverSteps) {
  ::testing::internal::CaptureStderr();
  Progress progress;
  // 8 samples in 1 s, then 8 in 3 s: 2 s a step, 4 a second.
  progress.update({.step = 1, .step_s = 1.0, .samples_per_s = 8.0}, 100.0);
  progress.update({.step = 2, .step_s = 3.0, .samples_per_s = 8.0 / 3}, 200.0);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "brim: step 1  1.00 s  8.0 images/s  lr 0\n"
            "brim: step 2  2.00 s  4.0 images/s  lr 0\n");
}

}  // namespace
}  // namespace brim::telemetry
