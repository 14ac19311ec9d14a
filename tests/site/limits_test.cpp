// What rules mean for one user on some devices, at times that are made up.
#include "framework/site/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "framework/site/watch.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace brim::site {
namespace {

using ::testing::HasSubstr;

const Device kCpu;
const Device kFirstGpu{.word = "GPU-0aaa", .index = 0};
const Device kSecondGpu{.word = "GPU-1aaa", .index = 1};

Limits limits_for(const std::string& user, std::vector<std::string> groups,
                  const std::string& rules) {
  return Limits(parse_site("contact = \"ada\"\n" + rules, "s"),
                {.user = user, .groups = std::move(groups)});
}

Limits limits_of(const std::string& rules) { return limits_for("ann", {"users"}, rules); }

std::tm at(int hour, int minute, int second = 0) {
  std::tm time{};
  time.tm_hour = hour;
  time.tm_min = minute;
  time.tm_sec = second;
  return time;
}

size_t count_rules(const std::string& user, std::vector<std::string> groups,
                   const std::string& selectors) {
  return limits_for(user, std::move(groups), "[rules.a]\nhours = 1\n" + selectors).rules().size();
}

TEST(Limits, ARuleBindsWhomItNamesAndNoExceptions) {
  EXPECT_EQ(count_rules("ann", {"users"}, ""), 1U);
  EXPECT_EQ(count_rules("ann", {"users"}, "users = [\"ann\", \"bob\"]"), 1U);
  EXPECT_EQ(count_rules("eve", {"users"}, "users = [\"ann\", \"bob\"]"), 0U);
  EXPECT_EQ(count_rules("eve", {"users", "students"}, "groups = [\"students\"]"), 1U);
  EXPECT_EQ(count_rules("eve", {"users"}, "groups = [\"students\"]\nusers = [\"eve\"]"), 1U);
  EXPECT_EQ(count_rules("eve", {"users"}, "groups = [\"students\"]\nusers = [\"ann\"]"), 0U);
  EXPECT_EQ(count_rules("eve", {"staff"}, "groups = [\"!staff\"]"), 0U);
  EXPECT_EQ(count_rules("ann", {"users"}, "groups = [\"!staff\"]"), 1U);
  EXPECT_EQ(count_rules("eve", {"students"}, "groups = [\"students\"]\nusers = [\"!eve\"]"), 0U);
}

TEST(Limits, DevicesAreNamedByIndexUuidAndCpu) {
  const Limits limits = limits_of(
      "[rules.a]\nat_most = 0\ndevices = [\"0\", \"GPU-3\"]\n"
      "[rules.b]\nat_most = 0\ndevices = [\"cpu\"]\nusers = [\"bob\"]");
  EXPECT_EQ(limits.forbids(kFirstGpu), "rule 'a' (s:3): ann may not use GPU 0; ask ada");
  EXPECT_EQ(limits.forbids(kSecondGpu), "");
  EXPECT_EQ(limits.forbids(kCpu), "");
  EXPECT_NE(limits.forbids({.word = "GPU-3fff", .index = 3}), "");
  const Limits others = limits_of("[rules.a]\nat_most = 0\ndevices = [\"!1\", \"!cpu\"]");
  EXPECT_NE(others.forbids(kFirstGpu), "");
  EXPECT_EQ(others.forbids(kSecondGpu), "");
  EXPECT_EQ(others.forbids(kCpu), "");
}

TEST(Limits, TheStrictestRuleCounts) {
  const Limits limits = limits_of(
      "[rules.a]\nhours = 8\nmemory_gib = 20\n[rules.b]\nhours = 2\ndevices = [\"0\"]\n"
      "[rules.c]\nhours = 1\nusers = [\"bob\"]");
  EXPECT_EQ(limits.least(&Rule::hours, "hours", {kSecondGpu})->value, 8);
  EXPECT_EQ(limits.least(&Rule::hours, "hours", {kFirstGpu, kSecondGpu})->value, 2);
  EXPECT_EQ(limits.least(&Rule::hours, "hours", {kFirstGpu})->rule, "rule 'b' (s:6)");
  EXPECT_FALSE(limits.least(&Rule::idle_minutes, "idle_minutes", {kFirstGpu}));
}

TEST(Limits, MemoryIsBoundedAndNoRecipeTakesMore) {
  const Limits limits = limits_of("[rules.a]\nmemory_gib = 20");
  device::DeviceConfig config;
  limits.bound_memory(config, {kFirstGpu});
  EXPECT_EQ(config.max_memory_gib, 20);
  config.memory_gib = 40;
  EXPECT_EQ(error_of(Exit::kResource, [&] { limits.bound_memory(config, {kFirstGpu}); }),
            "device.memory_gib = 40 is more than rule 'a' (s:3) gives: 20. Lower it, or ask ada");
}

TEST(Limits, WhatIsCalledIdleIsTightened) {
  const Limits limits = limits_of("[rules.a]\nidle_utilisation = 0.05\nidle_free_memory = 0.95");
  device::DeviceConfig config;
  config.idle_utilisation = 1;
  limits.bound_idle(config, {kFirstGpu});
  EXPECT_EQ(config.idle_utilisation, 0.05);
  EXPECT_EQ(config.idle_free_memory, 0.95);
}

TEST(Limits, QuietHoursPassMidnight) {
  const Limits limits = limits_of("[rules.night]\nquiet_hours = \"22:00-07:00\"");
  EXPECT_EQ(limits.quiet({kCpu}, at(21, 59, 59)), "");
  EXPECT_EQ(limits.quiet({kCpu}, at(7, 0)), "");
  EXPECT_EQ(
      limits.quiet({kCpu}, at(6, 59, 30)),
      "rule 'night' (s:3): quiet hours 22:00-07:00; training may continue at 07:00, in 30.0 s");
  EXPECT_THAT(limits.quiet({kCpu}, at(22, 0)), HasSubstr("in 9 h 00 m"));
  const Limits noon = limits_of("[rules.noon]\nquiet_hours = \"12:00-13:00\"\ndevices = [\"0\"]");
  EXPECT_NE(noon.quiet({kFirstGpu}, at(12, 30)), "");
  EXPECT_EQ(noon.quiet({kSecondGpu}, at(12, 30)), "");
  EXPECT_EQ(noon.quiet({kFirstGpu}, at(0, 30)), "");
}

device::GpuReading gpu_with(int index, const std::string& process) {
  device::GpuReading gpu;
  gpu.index = index;
  gpu.uuid = fmt::format("GPU-{}aaa", index);
  gpu.processes = {{.pid = 1, .name = process, .memory_bytes = 1}};
  return gpu;
}

TEST(Limits, TrainingYieldsToProgramsOnItsGpuAlone) {
  const Limits limits = limits_of("[rules.serving]\nyields_to = [\"text-generation-server\"]");
  const Gpus gpus = {gpu_with(0, "python3"),
                     gpu_with(1, "text-generation")};  // as the kernel cuts it
  EXPECT_EQ(limits.yields({kFirstGpu}, gpus), "");
  EXPECT_EQ(limits.yields({kSecondGpu}, gpus),
            "rule 'serving' (s:3): text-generation-server (process 1) is on GPU 1");
  device::Census census{.gpus = gpus, .is_known = true};
  EXPECT_NE(limits.keep_off(census, /*is_training=*/true), "");
  EXPECT_EQ(census.gpus[0].trouble, "");
  EXPECT_THAT(census.gpus[1].trouble, HasSubstr("rule 'serving'"));
}

TEST(Limits, TrainingYieldsToAFile) {
  const brim::testing::TemporaryFolder folder;
  const std::string file = (folder / "busy").string();
  const Limits limits = limits_of("[rules.serving]\nyields_to = [\"" + file + "\"]");
  EXPECT_EQ(limits.yields({kCpu}, {}), "");
  brim::testing::put_content(file, "");
  EXPECT_EQ(limits.yields({kCpu}, {}), "rule 'serving' (s:3): " + file + " is there");
}

TEST(Limits, ARunEndsByTheFirstRuleThatSaysSo) {
  const Limits limits = limits_of("[rules.a]\nhours = 2\nquiet_hours = \"22:00-07:00\"");
  EXPECT_EQ(find_stop_reason(limits, {kCpu}, 7199, at(12, 0), {}).cause, StopCause::kNone);
  const StopReason over = find_stop_reason(limits, {kCpu}, 7200, at(12, 0), {});
  EXPECT_EQ(over.cause, StopCause::kHours);
  EXPECT_EQ(over.why, "rule 'a' (s:3): 2 h 00 m at a stretch are over");
  EXPECT_EQ(find_stop_reason(limits, {kCpu}, 0, at(22, 0), {}).cause, StopCause::kQuietHours);
  EXPECT_EQ(find_stop_reason(Limits(), {kCpu}, 1e9, at(22, 0), {}).cause, StopCause::kNone);
}

}  // namespace
}  // namespace brim::site
