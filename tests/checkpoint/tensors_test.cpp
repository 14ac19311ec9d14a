// Tensors through files and into models; agreement with the Python package is in
// test_safetensors.py.
#include "framework/checkpoint/tensors.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "tests/checkpoint/support.h"

namespace brim::checkpoint {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Tensors, RoundTripKeepsValuesTypesAndShapes) {
  const TestFolder folder;
  const at::Tensor counting = at::arange(24, at::kFloat).reshape({2, 3, 2, 2});
  const TensorMap saved = {
      {"plain", counting},
      {"transposed", counting.transpose(0, 3)},
      {"channels_last", counting.contiguous(at::MemoryFormat::ChannelsLast)},
      {"slice", counting.slice(1, 1, 2)},
      {"parameter", counting.clone().set_requires_grad(true)},
      {"bf16", counting.to(at::kBFloat16)},
      {"bool", counting.gt(5)},
      {"scalar", at::ones({}, at::kLong)},
      {"empty", at::zeros({0, 4}, at::kHalf)},
  };
  save_tensors(folder / "t.safetensors", saved, {{"step", "7"}});
  const TensorMap loaded = load_tensors(folder / "t.safetensors");
  ASSERT_EQ(loaded.size(), saved.size());
  for (const auto& [name, tensor] : saved) {
    EXPECT_TRUE(loaded.at(name).equal(tensor)) << name;
    EXPECT_EQ(loaded.at(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(loaded.at(name).is_contiguous()) << name;
  }
  EXPECT_EQ(SafetensorsFile(folder / "t.safetensors").metadata().at("step"), "7");
}

TEST(Tensors, LoadedTensorsOutliveTheFile) {
  const TestFolder folder;
  save_tensors(folder / "t.safetensors", {{"a", at::ones({1000})}});
  const TensorMap loaded = load_tensors(folder / "t.safetensors");
  write_text(folder / "t.safetensors", "");
  loaded.at("a").add_(1);
  EXPECT_EQ(loaded.at("a").sum().item<float>(), 2000);
}

TEST(CopyInto, ConvertsAndKeepsTheTargetsLayout) {
  const at::Tensor counting = at::arange(24, at::kFloat).reshape({2, 3, 2, 2});
  const at::Tensor weight = at::zeros({2, 3, 2, 2}, at::kDouble)
                                .contiguous(at::MemoryFormat::ChannelsLast)
                                .set_requires_grad(true);
  TensorMap model = {{"weight", weight}};
  copy_into({{"weight", counting}}, model, "here");
  EXPECT_TRUE(weight.detach().equal(counting.to(at::kDouble)));
  EXPECT_TRUE(weight.is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(CopyInto, ListsEveryDifferenceAndChangesNothing) {
  const TensorMap from = {{"fc.bias", at::ones({10})},
                          {"fc.weight", at::ones({10, 64})},
                          {"old.scale", at::ones({3, 4})},
                          {"same", at::ones({2})}};
  TensorMap model = {{"conv.weight", at::zeros({8, 3, 3, 3})},
                     {"fc.bias", at::zeros({10})},
                     {"fc.weight", at::zeros({100, 64})},
                     {"same", at::zeros({2})}};
  const auto [status, message] = error_of([&] { copy_into(from, model, "run/step-1: model"); });
  EXPECT_EQ(status, Exit::kCheckpoint);
  EXPECT_THAT(message, HasSubstr("lacks conv.weight [8, 3, 3, 3], which this run needs\n"));
  EXPECT_THAT(message, HasSubstr("fc.weight: expected shape [100, 64], found [10, 64]\n"));
  EXPECT_THAT(message, HasSubstr("holds \"old.scale\" [3, 4], for which this run has no place\n"));
  EXPECT_THAT(message, HasSubstr("run/step-1: model: does not fit this run (3 differences)"));
  EXPECT_THAT(message, Not(HasSubstr("same")));
  for (const auto& [name, tensor] : model) EXPECT_EQ(tensor.sum().item<float>(), 0) << name;
}

}  // namespace
}  // namespace brim::checkpoint
