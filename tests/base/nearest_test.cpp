// Suggestions for mistyped words.
#include "framework/base/nearest.h"

#include <gmock/gmock.h>

namespace brim {
namespace {

TEST(Nearest, FindsTyposOnly) {
  EXPECT_EQ(nearest("sdg", {"adam", "sgd"}), "sgd");
  EXPECT_EQ(nearest("learning_rte", {"learning_rate", "momentum"}), "learning_rate");
  EXPECT_EQ(nearest("x", {"learning_rate", "momentum"}), "");
  EXPECT_EQ(nearest(std::string(100000, 'a'), {"a"}), "");
}

}  // namespace
}  // namespace brim
