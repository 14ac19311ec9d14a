// The folder that appears when all is in it, and what is left of one whose process was killed.
#include "framework/text/token_folder.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include "tests/support/error_of.h"
#include "tests/support/killed_process.h"

namespace brim::text {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class TokenFolderTest : public ::testing::Test {
 protected:
  TokenFolderTest() {
    std::string name = (fs::temp_directory_path() / "brim_tokens_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~TokenFolderTest() override { fs::remove_all(folder_); }

  static std::vector<std::string> names(const fs::path& folder) {
    std::vector<std::string> result;
    for (const auto& entry : fs::directory_iterator(folder)) {
      result.push_back(entry.path().filename());
    }
    return result;
  }

  fs::path folder_;
};

TEST_F(TokenFolderTest, AppearsWhenPublishedWithNothingElse) {
  TokenFolder tokens(folder_ / "out/");
  write_file(tokens.temporary() / "train.bin", "ids");
  EXPECT_FALSE(fs::exists(folder_ / "out"));
  tokens.publish();
  EXPECT_THAT(names(folder_), ElementsAre("out"));
  EXPECT_THAT(names(folder_ / "out"), ElementsAre("train.bin"));
}

TEST_F(TokenFolderTest, WhatAKilledProcessLeftIsRemovedByTheNext) {
  KilledProcess killed([&](auto ready) {
    const TokenFolder tokens(folder_ / "out");
    TokenWriter writer(tokens.temporary() / "train.bin", true);
    writer.write(std::vector<int32_t>(1000, 7), 1, 1000);
    ready();
  });
  const fs::path left = folder_ / fmt::format("out.tmp.{}", killed.pid());
  { const TokenFolder beside(folder_ / "out"); }
  EXPECT_TRUE(fs::exists(left / fmt::format("train.bin.tmp.{}", killed.pid())));
  killed.kill();
  EXPECT_TRUE(fs::exists(left));
  { const TokenFolder next(folder_ / "out"); }
  EXPECT_THAT(names(folder_), IsEmpty());
}

}  // namespace
}  // namespace brim::text
