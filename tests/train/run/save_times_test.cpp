#include "framework/train/run/save_times.h"

#include <gtest/gtest.h>

namespace brim::train {
namespace {

TEST(SaveTimes, FallDueByStepsAndByRequests) {
  CheckpointConfig rules;
  rules.every_steps = 5;
  SaveTimes times(rules);
  EXPECT_FALSE(times.falls_due(3, /*is_requested=*/false));
  EXPECT_TRUE(times.falls_due(3, /*is_requested=*/true));
  EXPECT_TRUE(times.falls_due(5, /*is_requested=*/false));
  times.saved(5, /*evaluation_due=*/false);
  EXPECT_FALSE(times.falls_due(5, /*is_requested=*/true));
}

TEST(SaveTimes, ARequestInTheStepAfterASaveIsFromBeforeIt) {
  CheckpointConfig rules;
  rules.every_steps = 4;
  SaveTimes times(rules);
  times.saved(7, /*evaluation_due=*/false);
  EXPECT_TRUE(times.falls_due(8, /*is_requested=*/true));  // by the steps
  times.saved(8, /*evaluation_due=*/false);
  EXPECT_FALSE(times.falls_due(9, /*is_requested=*/true));
  EXPECT_TRUE(times.falls_due(10, /*is_requested=*/true));
}

}  // namespace
}  // namespace brim::train
