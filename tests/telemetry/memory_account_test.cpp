#include "framework/telemetry/memory_account.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace brim::telemetry {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

MemoryAccount account() {
  return {.parameters_bytes = 1 << 20,
          .gradients_bytes = 1 << 20,
          .optimizer_bytes = 2 << 20,
          .peak_bytes = 10 << 20,
          .limit_bytes = 64 << 20,
          .modules = {{"layer1.conv", 4 << 20}, {"layer2.conv", 1 << 20}}};
}

TEST(MemoryAccount, TheRestOfThePeakIsActivations) {
  EXPECT_EQ(account().activations_bytes(), 6 << 20);
  MemoryAccount early = account();
  early.peak_bytes = 0;  // nothing has run yet
  EXPECT_EQ(early.activations_bytes(), 0);
}

TEST(MemoryAccount, NamesTheModulesThatHoldMost) {
  EXPECT_THAT(account().text(), HasSubstr("MiB, most in layer1.conv 4.0 MiB, layer2.conv"));
  EXPECT_THAT(account().table(), HasSubstr("4.0 MiB  layer1.conv\n"));
  MemoryAccount plain = account();
  plain.modules.clear();
  EXPECT_THAT(plain.text(), Not(HasSubstr("most of it")));
  EXPECT_THAT(MemoryAccount{}.text(), HasSubstr("the model itself did not fit"));
}

TEST(MemoryAccount, IsReadBackAsItWasWritten) {
  const auto read = read_memory_account(to_json(account()));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->text(), account().text());
  EXPECT_EQ(to_json(*read), to_json(account()));
}

TEST(MemoryAccount, AnythingElseIsNone) {
  EXPECT_FALSE(read_memory_account(json()));
  EXPECT_FALSE(read_memory_account(json::array()));
  const auto with = [](const char* key, json value) {
    json record = to_json(account());
    record[key] = std::move(value);
    return read_memory_account(record);
  };
  EXPECT_FALSE(with("peak_bytes", -1));
  EXPECT_FALSE(with("peak_bytes", "1"));
  EXPECT_FALSE(with("peak_bytes", uint64_t{1} << 60));
  EXPECT_FALSE(with("modules", 3));
  EXPECT_FALSE(with("modules", json::array({json("layer1")})));
  EXPECT_FALSE(with("modules", json::array({{{"module", "a\033[2J"}, {"bytes", 1}}})));
  EXPECT_FALSE(with("modules", json::array({{{"module", std::string(1000, 'a')}, {"bytes", 1}}})));
}

}  // namespace
}  // namespace brim::telemetry
