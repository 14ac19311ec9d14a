#include "framework/device/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/base/error.h"
#include "framework/device/cuda_loader.h"

namespace brim::device {
namespace {

using ::testing::HasSubstr;

DeviceConfig config(const std::string& select) {
  DeviceConfig result;
  result.select = select;
  return result;
}

/// The error that choose_device() ends with.
Error error_of(const std::string& select) {
  try {
    const c10::Device device = choose_device(config(select));
    ADD_FAILURE() << "'" << select << "' gave " << device.str();
  } catch (const Error& error) {
    return error;
  }
  return Error(Exit::kDone, std::string());
}

TEST(ChooseDevice, TheCpuIsAlwaysThere) {
  EXPECT_EQ(choose_device(config("cpu")), c10::Device("cpu"));
}

TEST(ChooseDevice, AutoTakesTheFirstGpuOrTheCpu) {
  EXPECT_EQ(choose_device(config("auto")),
            c10::Device(cuda().backend == nullptr ? "cpu" : "cuda:0"));
}

TEST(ChooseDevice, ADeviceThatIsNotThereIsAResourceError) {
  for (const std::string select : {"cuda:127", "127"}) {
    const Error error = error_of(select);
    EXPECT_EQ(error.status(), Exit::kResource) << select;
    EXPECT_THAT(error.what(), HasSubstr("device '" + select + "' is not there: "));
    if (cuda().backend == nullptr) {
      EXPECT_THAT(error.what(), HasSubstr(cuda().why_not));
      EXPECT_THAT(error.what(), HasSubstr("Use --devices cpu"));
    }
  }
}

TEST(ChooseDevice, OtherWordsAreRecipeErrors) {
  for (const std::string select :
       {"", "gpu", "CPU", "cuda:", "cuda:x", "cuda:-1", "-1", "1.5", "0,", "cuda:0 ",
        "999999999999", "128", "0,0", "0, 1", "cpu,0"}) {
    const Error error = error_of(select);
    EXPECT_EQ(error.status(), Exit::kRecipe) << select;
    EXPECT_THAT(error.what(),
                HasSubstr("device '" + select +
                          "': expected \"auto\", \"cpu\" (\"cpu,cpu\" for two ranks)"));
  }
}

TEST(CudaLoad, IsThereOrSaysWhyNot) {
  EXPECT_EQ(cuda().backend == nullptr, !cuda().why_not.empty());
}

}  // namespace
}  // namespace brim::device
