#include "framework/device/gpus/device_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/base/error.h"

namespace brim::device {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = DeviceList::Kind;

TEST(ParseDeviceList, KnowsWordsAndGpus) {
  EXPECT_EQ(parse_device_list("auto").kind, Kind::kAuto);
  EXPECT_EQ(parse_device_list("cuda").kind, Kind::kByRank);
  EXPECT_EQ(parse_device_list("cpu").ranks, 1);
  EXPECT_EQ(parse_device_list("cpu,cpu,cpu").kind, Kind::kCpu);
  EXPECT_EQ(parse_device_list("cpu,cpu,cpu").ranks, 3);
  EXPECT_THAT(parse_device_list("2,cuda:0").gpus, ElementsAre("2", "0"));
  EXPECT_THAT(parse_device_list("GPU-8932f937,MIG-1").gpus, ElementsAre("GPU-8932f937", "MIG-1"));
}

TEST(ParseDeviceList, RefusesTheRestInWords) {
  for (const auto& [list, found] : std::vector<std::pair<std::string, std::string>>{
           {"", "an empty place"},
           {"0,", "an empty place"},
           {"0,,1", "an empty place"},
           {"0,0", "'0' twice"},
           {"0,cuda:0", "'0' twice"},
           {"0, 1", "' 1'"},
           {"0 1", "'0 1'"},
           {"gpu zero", "'gpu zero'"},
           {"cpu,0", "'cpu' beside other words"},
           {"auto,0", "'auto' beside other words"},
           {"-1", "'-1'"},
           {"1.5", "'1.5'"},
           {"cuda:", "'cuda:'"},
           {"CPU", "'CPU'"},
           {"GPU-", "'GPU-'"},
           {"GPU-1 2", "'GPU-1 2'"},
           {"128", "'128'"},
           {"99999999999999999999", "'99999999999999999999'"}}) {
    try {
      parse_device_list(list);
      ADD_FAILURE() << list;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Exit::kRecipe);
      EXPECT_THAT(error.what(), HasSubstr("device '" + list + "': expected"));
      EXPECT_THAT(error.what(), HasSubstr("found " + found)) << list;
    }
  }
}

/// Three GPUs; the last is sliced in two.
std::vector<GpuReading> three() {
  std::vector<GpuReading> gpus(3);
  for (int i = 0; i < 3; ++i) {
    gpus[i].index = i;
    gpus[i].uuid = "GPU-" + std::to_string(i) + "ab";
  }
  gpus[2].is_sliced = true;
  gpus[2].slices = {{.uuid = "MIG-x1", .memory_total_bytes = {}, .memory_free_bytes = {}},
                    {.uuid = "MIG-x2", .memory_total_bytes = {}, .memory_free_bytes = {}}};
  return gpus;
}

std::vector<std::string> visible(const char* list) {
  std::vector<std::string> words;
  for (const VisibleGpu& gpu : visible_gpus(three(), list)) words.push_back(gpu.word());
  return words;
}

TEST(VisibleGpus, FollowCudasRules) {
  EXPECT_THAT(visible(nullptr), ElementsAre("GPU-0ab", "GPU-1ab", "MIG-x1"));
  EXPECT_THAT(visible("1,0"), ElementsAre("GPU-1ab", "GPU-0ab"));
  EXPECT_THAT(visible(" 1 , 0"), ElementsAre("GPU-1ab", "GPU-0ab"));
  EXPECT_THAT(visible(""), ElementsAre());
  EXPECT_THAT(visible("-1"), ElementsAre());
  EXPECT_THAT(visible("1,-1,0"), ElementsAre("GPU-1ab"));
  EXPECT_THAT(visible("0,3,1"), ElementsAre("GPU-0ab"));
  EXPECT_THAT(visible("none"), ElementsAre());
  EXPECT_THAT(visible("0,0"), ElementsAre());
  EXPECT_THAT(visible("GPU-1,0"), ElementsAre("GPU-1ab", "GPU-0ab"));
  EXPECT_THAT(visible("0,GPU-0ab"), ElementsAre());  // the same one
  EXPECT_THAT(visible("GPU-"), ElementsAre());       // which?
  EXPECT_THAT(visible("MIG-x2,1"), ElementsAre("MIG-x2", "GPU-1ab"));
  EXPECT_THAT(visible("MIG-x"), ElementsAre());
}

TEST(VisibleGpus, AGpuWithoutAUuidIsNamedByItsIndex) {
  std::vector<GpuReading> gpus(1);
  gpus[0].index = 4;
  EXPECT_EQ(visible_gpus(gpus, nullptr).at(0).word(), "4");
}

}  // namespace
}  // namespace brim::device
