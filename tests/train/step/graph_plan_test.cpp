// When passes are run, recorded and replayed, transition by transition.
#include "framework/train/step/graph_plan.h"

#include <gtest/gtest.h>

namespace brim::train {
namespace {

using Mode = GraphPlan::Mode;
const PassShape kWide = {4, 8}, kNarrow = {3, 8};

void warm_up(GraphPlan& plan, const PassShape& shape) {
  for (int pass = 0; pass < GraphPlan::kWarmUps; ++pass) {
    EXPECT_EQ(plan.next(shape, true).mode, Mode::kRun);
  }
}

/// The graph that a step's first pass is recorded as.
size_t record(GraphPlan& plan, const PassShape& shape) {
  const auto choice = plan.next(shape, true);
  EXPECT_EQ(choice.mode, Mode::kRecord);
  plan.recorded(choice.graph);
  return choice.graph;
}

TEST(GraphPlan, RunsRecordsReplays) {
  GraphPlan plan;
  warm_up(plan, kWide);
  const size_t graph = record(plan, kWide);
  for (int step = 0; step < 5; ++step) {
    const auto choice = plan.next(kWide, true);
    EXPECT_EQ(choice.mode, Mode::kReplay);
    EXPECT_EQ(choice.graph, graph);
  }
}

TEST(GraphPlan, RecordsAgainWhereItWasNotDone) {
  GraphPlan plan;
  warm_up(plan, kWide);
  EXPECT_EQ(plan.next(kWide, true).mode, Mode::kRecord);
  EXPECT_EQ(plan.next(kWide, true).mode, Mode::kRecord);
}

TEST(GraphPlan, ShapesHaveRecordingsOfTheirOwn) {
  GraphPlan plan;
  warm_up(plan, kWide);
  const size_t wide = record(plan, kWide);
  warm_up(plan, kNarrow);
  const size_t narrow = record(plan, kNarrow);
  EXPECT_NE(wide, narrow);
  EXPECT_EQ(plan.next(kWide, true).graph, wide);
  EXPECT_EQ(plan.next(kNarrow, true).graph, narrow);
}

TEST(GraphPlan, LaterPassesAreRunWhereTheFirstOneWas) {
  GraphPlan plan;
  for (int step = 0; step < GraphPlan::kWarmUps; ++step) {
    EXPECT_EQ(plan.next(kWide, true).mode, Mode::kRun);
    for (int pass = 0; pass < 10; ++pass) {
      EXPECT_EQ(plan.next(kWide, false).mode, Mode::kRun);
    }
  }
  const size_t first = record(plan, kWide);
  // Only now do they add to a recording's gradients, and are counted.
  for (int pass = 0; pass < GraphPlan::kWarmUps; ++pass) {
    EXPECT_EQ(plan.next(kWide, false).mode, Mode::kRun);
  }
  const auto choice = plan.next(kWide, false);
  EXPECT_EQ(choice.mode, Mode::kRecord);
  EXPECT_NE(choice.graph, first);
  plan.recorded(choice.graph);
  EXPECT_EQ(plan.next(kWide, false).mode, Mode::kReplay);
}

TEST(GraphPlan, ALaterPassBelongsToTheRecordingThatMadeTheGradients) {
  GraphPlan plan;
  warm_up(plan, kWide);
  record(plan, kWide);
  for (int pass = 0; pass < GraphPlan::kWarmUps; ++pass) plan.next(kNarrow, false);
  const size_t added = plan.next(kNarrow, false).graph;
  plan.recorded(added);
  warm_up(plan, kNarrow);
  record(plan, kNarrow);
  // The same shape, but gradients that lie elsewhere.
  EXPECT_EQ(plan.next(kNarrow, false).mode, Mode::kRun);
  plan.next(kWide, true);
  const auto again = plan.next(kNarrow, false);
  EXPECT_EQ(again.mode, Mode::kReplay);
  EXPECT_EQ(again.graph, added);
}

TEST(GraphPlan, ShapesBeyondTheMostAreRun) {
  GraphPlan plan;
  for (size_t kind = 0; kind < GraphPlan::kMaxGraphs; ++kind) {
    const PassShape shape = {static_cast<int64_t>(kind)};
    warm_up(plan, shape);
    EXPECT_LT(record(plan, shape), GraphPlan::kMaxGraphs);
  }
  for (int step = 0; step < 10; ++step) EXPECT_EQ(plan.next({-1}, true).mode, Mode::kRun);
  EXPECT_EQ(plan.next({-1}, false).mode, Mode::kRun);
  EXPECT_EQ(plan.next({0}, true).mode, Mode::kReplay);
}

TEST(GraphPlan, WhatIsReleasedIsRecordedAtItsNextTurn) {
  GraphPlan plan;
  warm_up(plan, kWide);
  const size_t graph = record(plan, kWide);
  plan.release();
  EXPECT_EQ(plan.next(kWide, false).mode, Mode::kRun);  // of no recording's gradients
  EXPECT_EQ(record(plan, kWide), graph);
  EXPECT_EQ(plan.next(kWide, true).mode, Mode::kReplay);
}

TEST(GraphPlan, AfterAResetItWarmsUpAgain) {
  GraphPlan plan;
  warm_up(plan, kWide);
  record(plan, kWide);
  plan.reset();
  warm_up(plan, kWide);
  record(plan, kWide);
}

}  // namespace
}  // namespace brim::train
