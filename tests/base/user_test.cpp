#include "framework/base/user.h"

#include <gmock/gmock.h>
#include <grp.h>
#include <pwd.h>
#include <unistd.h>

namespace brim {
namespace {

constexpr unsigned kNoUser = 3999999999;

TEST(User, HasTheNameOfTheSystemsList) {
  EXPECT_EQ(user_name(0), "root");
  EXPECT_EQ(user_name(kNoUser), "3999999999");
}

TEST(User, IsInTheGroupsOfTheProcess) {
  const group* effective = ::getgrgid(::getegid());
  ASSERT_NE(effective, nullptr);
  EXPECT_THAT(group_names(), ::testing::Contains(effective->gr_name));
}

TEST(User, OfAProcess) {
  EXPECT_EQ(process_user(::getpid()), ::getuid());
  EXPECT_EQ(process_user(int64_t{1} << 40), std::nullopt);
}

}  // namespace
}  // namespace brim
