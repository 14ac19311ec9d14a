#include "framework/nn/flops.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

namespace brim::nn {
namespace {

TEST(FlopCounter, CountsTwoForEachMultiplyAdd) {
  const FlopCounter counter;
  at::linear(at::rand({5, 7}), at::rand({11, 7}), at::rand({11}));
  EXPECT_EQ(counter.total(), 2 * 5 * 7 * 11);
  at::matmul(at::rand({2, 3, 5, 7}), at::rand({7, 11}));
  EXPECT_EQ(counter.total(), 2 * 5 * 7 * 11 + 2 * (2 * 3 * 5) * 7 * 11);
  at::rand({100}).exp().sum();
  EXPECT_EQ(counter.total(), 2 * 5 * 7 * 11 + 2 * (2 * 3 * 5) * 7 * 11);
}

TEST(FlopCounter, CountsConvolutionsOfAllKinds) {
  const FlopCounter counter;
  int64_t expected = 0;
  // Strided, padded and dilated: (9 + 2 - 5) / 2 + 1 = 4 places each way.
  at::conv2d(at::rand({2, 6, 9, 9}), at::rand({8, 6, 3, 3}), {}, 2, at::IntArrayRef{1}, 2);
  expected += 2 * 2 * (4 * 4) * 8 * 6 * 3 * 3;
  EXPECT_EQ(counter.total(), expected);
  at::conv2d(at::rand({1, 6, 5, 5}), at::rand({12, 2, 3, 3}), {}, 1, at::IntArrayRef{0}, 1,
             /*groups=*/3);
  expected += 2 * (3 * 3) * 12 * 2 * 3 * 3;
  EXPECT_EQ(counter.total(), expected);
  at::conv_transpose2d(at::rand({1, 4, 5, 5}), at::rand({4, 3, 2, 2}), {}, 2);
  expected += 2 * (5 * 5) * 4 * 3 * 2 * 2;
  EXPECT_EQ(counter.total(), expected);
  at::conv1d(at::rand({3, 4, 10}), at::rand({5, 4, 3}), at::rand({5}));
  expected += 2 * 3 * 8 * 5 * 4 * 3;
  EXPECT_EQ(counter.total(), expected);
}

TEST(FlopCounter, CountsAttentionWhicheverWayItRuns) {
  const at::Tensor query = at::rand({2, 3, 5, 8}), key = at::rand({2, 3, 7, 8});
  const at::Tensor mask = at::rand({5, 7}).requires_grad_();
  const FlopCounter counter;
  at::scaled_dot_product_attention(query, key, key);
  const int64_t once = 2 * 2 * (2 * 3) * 5 * 7 * 8;
  EXPECT_EQ(counter.total(), once);
  at::scaled_dot_product_attention(query, key, key, mask);  // by plain products
  EXPECT_EQ(counter.total(), 2 * once);
}

TEST(FlopCounter, CountsForwardOnlyAndOnlyWhileItLives) {
  const at::Tensor x = at::rand({2, 3}).requires_grad_(), w = at::rand({4, 3}).requires_grad_();
  at::linear(x, w);
  const FlopCounter counter;
  EXPECT_EQ(counter.total(), 0);
  at::linear(x, w);
  EXPECT_THAT(counter.by_operator(), testing::SizeIs(1));
}

}  // namespace
}  // namespace brim::nn
