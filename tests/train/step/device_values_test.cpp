#include "framework/train/step/device_values.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

namespace brim::train {
namespace {

using ::testing::ElementsAre;

TEST(DeviceValues, ArriveInTheOrderInWhichTheyWerePushed) {
  DeviceValues values;
  values.push(7, at::tensor({1.0f, 2.0f}), {});
  values.push(8, at::tensor({3.0f, 4.0f}), {});
  const auto first = values.pop(/*wait=*/false);
  const auto second = values.pop(/*wait=*/true);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->step, 7);
  EXPECT_THAT(first->values, ElementsAre(1.0f, 2.0f));
  EXPECT_EQ(second->step, 8);
  EXPECT_THAT(second->values, ElementsAre(3.0f, 4.0f));
}

TEST(DeviceValues, TheOldestAreDroppedWhereNobodyTakesThem) {
  DeviceValues values;
  for (int64_t step = 1; step <= 100; ++step) values.push(step, at::tensor({1.0f}), {});
  int64_t last = 0, count = 0;
  for (; const auto arrived = values.pop(/*wait=*/true); ++count) last = arrived->step;
  EXPECT_EQ(last, 100);
  EXPECT_LE(count, 3);
}

TEST(DeviceValues, NothingUnderWayIsNothing) {
  DeviceValues values;
  EXPECT_FALSE(values.pop(/*wait=*/false).has_value());
  EXPECT_FALSE(values.pop(/*wait=*/true).has_value());
}

}  // namespace
}  // namespace brim::train
