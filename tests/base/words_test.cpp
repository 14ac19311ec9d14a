// Lists of words, and suggestions for mistyped ones.
#include "framework/base/words.h"

#include <gmock/gmock.h>

namespace brim {
namespace {

TEST(Split, KeepsEmptyPieces) {
  EXPECT_THAT(split("0,cuda:1,"), ::testing::ElementsAre("0", "cuda:1", ""));
  EXPECT_THAT(split(""), ::testing::ElementsAre(""));
}

TEST(Nearest, FindsTyposOnly) {
  EXPECT_EQ(nearest("sdg", {"adam", "sgd"}), "sgd");
  EXPECT_EQ(nearest("learning_rte", {"learning_rate", "momentum"}), "learning_rate");
  EXPECT_EQ(nearest("x", {"learning_rate", "momentum"}), "");
  EXPECT_EQ(nearest(std::string(100000, 'a'), {"a"}), "");
}

}  // namespace
}  // namespace brim
