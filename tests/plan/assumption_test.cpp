#include "framework/plan/assumption.h"

#include <gmock/gmock.h>

#include "framework/base/error.h"
#include "framework/device/peak.h"

namespace brim::plan {
namespace {

using ::testing::HasSubstr;

TEST(Assumption, NamesDevicesMemoryAndLinks) {
  const Assumption one = read_assumption("8xA100-40GB");
  EXPECT_EQ(one.devices, 8);
  EXPECT_EQ(one.text(), "8 × A100-40GB, nvlink3");
  EXPECT_LT(one.memory_bytes, int64_t{40} << 30);
  EXPECT_GT(one.memory_bytes, int64_t{38} << 30);
  const Assumption cluster = read_assumption("1024xH100-80GB,nvlink,ndr");
  EXPECT_EQ(cluster.text(), "1024 × H100-80GB, nvlink4 and ndr");
  EXPECT_EQ(cluster.between.ranks_of_machine, 8);
  EXPECT_DOUBLE_EQ(cluster.between.all_reduce.bytes_per_s, 0.8 * 450e9);
  EXPECT_DOUBLE_EQ(cluster.between.machines.bytes_per_s, 0.8 * 50e9);
}

TEST(Assumption, NamesNeedNoCapitals) {
  const Assumption cluster = read_assumption("16Xh100-80gb,NVLink,NDR");
  EXPECT_EQ(cluster.text(), "16 × H100-80GB, nvlink4 and ndr");
  EXPECT_EQ(read_assumption("2xrtx4090").gpu, "RTX 4090");
}

TEST(Assumption, EveryDeviceHasAPeakAndALinkOfItsOwn) {
  for (const char* name : {"A100", "H100", "H200", "B200", "L4", "L40S", "V100", "RTX4090"}) {
    const Assumption device = read_assumption(std::string("2x") + name);
    EXPECT_GT(device::peak_flops(device.gpu, "fp16"), 1e14) << name;
    EXPECT_GT(device.bytes_per_s, 1e11) << name;
    EXPECT_FALSE(device.link.empty()) << name;
  }
}

TEST(Assumption, WhatIsNoneIsRefusedInWords) {
  for (const char* text :
       {"", "H100", "0xH100", "-1xH100", "8xH1000", "8xH100-90GB", "8xH100,usb", "8xL4,nvlink",
        "8xH100,nvlink,ndr,ndr", "99999999999999999999xH100", "8.5xH100", "8xH100,"}) {
    EXPECT_THAT([&] { read_assumption(text); },
                ::testing::ThrowsMessage<UsageError>(HasSubstr("as in 8xH100-80GB,nvlink")))
        << text;
  }
}

}  // namespace
}  // namespace brim::plan
