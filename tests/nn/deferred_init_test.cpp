// Tensors whose values are computed later have those that they would have had, to the bit.
#include "framework/nn/deferred_init.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "framework/nn/init.h"

namespace brim::nn {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

constexpr int64_t kMany = 300;  // times as many elements are large

/// What constructors of models do.
Tensors make_tensors() {
  const at::NoGradGuard no_grad;
  Tensors made;
  made["normal"] = at::empty({kMany, kMany}).normal_(0, 0.02);
  made["few"] = at::empty({7}).normal_();
  made["truncated"] = at::empty({kMany, kMany + 1});
  truncated_normal_(made["truncated"], 0.02, 0.04);
  made["drawn twice"] = at::empty({kMany, kMany}).uniform_(-1, 1).normal_();
  made["rows"] = at::randn({kMany, kMany});
  made["rows"].select(0, 3).zero_();
  made["rows"].narrow(0, 5, kMany - 5).mul_(made["few"].select(0, 2));
  made["copied"] = at::zeros({kMany, kMany});
  made["copied"].narrow(1, 0, 100).copy_(made["normal"].narrow(1, 100, 100));
  made["normal"].add_(1);  // not seen in the copy
  made["double"] = made["rows"].to(at::kDouble);
  made["transposed"] = made["normal"].t().contiguous();
  made["sum"] = made["drawn twice"].sum();
  made["scaled"] = made["normal"] / made["sum"];
  made["permuted"] = at::randperm(100 * kMany).to(at::kFloat);
  made["channels last"] =
      at::empty({64, 32, 3, 3}).normal_().contiguous(at::MemoryFormat::ChannelsLast);
  made["last"] = at::rand({5});
  return made;
}

TEST(DeferredInit, GivesTheValuesOfADirectOne) {
  at::manual_seed(3);
  const Tensors expected = make_tensors();
  const at::Tensor next = at::rand({4});
  at::manual_seed(3);
  DeferredInit deferred;
  Tensors found;
  deferred.record([&] { found = make_tensors(); });
  EXPECT_TRUE(deferred.is_exact(found));
  EXPECT_TRUE(at::equal(at::rand({4}), next));
  // In another order than they were made.
  for (auto item = found.rbegin(); item != found.rend(); ++item) {
    auto& [name, tensor] = *item;
    deferred.fill(tensor);
    EXPECT_EQ(tensor.strides(), expected.at(name).strides()) << name;
    EXPECT_TRUE(at::equal(tensor, expected.at(name))) << name;
  }
  at::manual_seed(3);
  deferred.fill(found["normal"]);  // has its values: stays, and draws nothing
  make_tensors();
  EXPECT_TRUE(at::equal(at::rand({4}), next));
}

TEST(DeferredInit, FillsRowsOfWhatIsCopied) {
  const at::Tensor source = at::rand({kMany, kMany}).to(at::kDouble);
  DeferredInit deferred;
  Tensors found;
  deferred.record([&] {
    found["copied"] = at::empty({kMany, kMany}).normal_().copy_(source);
    found["changed"] = at::empty({kMany, kMany}).copy_(source).mul_(2);
  });
  EXPECT_FALSE(deferred.fill_rows(found["copied"], 5, 7));
  EXPECT_TRUE(deferred.fill_rows(found["changed"], 5, 7));
  const at::Tensor expected = source.to(at::kFloat).narrow(0, 5, 7);
  EXPECT_TRUE(at::equal(found["copied"].narrow(0, 5, 7), expected));
  EXPECT_TRUE(at::equal(found["copied"][0], source[0].to(at::kFloat)));
  EXPECT_TRUE(at::equal(found["changed"].narrow(0, 5, 7), 2 * expected));
}

TEST(DeferredInit, KeepsTheIdentityOfParameters) {
  at::manual_seed(3);
  DeferredInit deferred;
  at::Tensor weight, tied;
  deferred.record([&] {
    weight = at::empty({kMany, kMany}).normal_().requires_grad_();
    tied = weight;
  });
  deferred.fill(weight);
  EXPECT_TRUE(tied.requires_grad());
  EXPECT_EQ(tied.const_data_ptr(), weight.const_data_ptr());
  deferred.record([&] { weight.set_data(weight.to(at::kDouble)); });
  EXPECT_EQ(tied.scalar_type(), at::kDouble);
}

TEST(DeferredInit, SaysWhereValuesWouldBeWrong) {
  const auto is_exact = [](const std::function<void(at::Tensor&)>& use) {
    DeferredInit deferred;
    at::Tensor large;
    deferred.record([&] {
      large = at::empty({kMany, kMany}).normal_();
      use(large);
    });
    return deferred.is_exact({{"large", large}});
  };
  EXPECT_TRUE(is_exact([](at::Tensor& large) { large.mul_(2); }));
  EXPECT_FALSE(is_exact([](at::Tensor& large) { large.mul_(large.sum().item<float>()); }));
  EXPECT_FALSE(is_exact([](at::Tensor& large) { large.data_ptr<float>()[kMany * 100] = 1; }));
  EXPECT_FALSE(
      is_exact([](at::Tensor& large) { at::zeros({2}).copy_(large.view(-1).narrow(0, 0, 2)); }));
  EXPECT_FALSE(is_exact(
      [](at::Tensor& large) { large.normal_(0, 1, at::make_generator<at::CPUGeneratorImpl>()); }));
  at::Tensor other;  // that no one fills
  EXPECT_FALSE(is_exact([&](at::Tensor& large) { other = large.t(); }));
  EXPECT_FALSE(is_exact([&](at::Tensor& /*large*/) { other = at::zeros({kMany, kMany}); }));
}

}  // namespace
}  // namespace brim::nn
