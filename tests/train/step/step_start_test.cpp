// What a step changes besides gradients, as it was: always, or where the step is skipped.
#include "framework/train/step/step_start.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "framework/nn/model.h"

namespace brim::train {
namespace {

/// Buffers of several types, shapes and layouts.
class Buffered : public nn::Model {
 public:
  Buffered() {
    const at::Tensor wide = at::arange(12, at::kFloat).view({3, 4});
    all = {at::ones({4}),
           at::zeros({}, at::kLong),
           at::randn({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast),
           wide.narrow(1, 1, 2),  // with gaps
           at::zeros({0}),
           at::ones({2, 2}, at::kBool)};
    for (size_t i = 0; i < all.size(); ++i) register_buffer("b" + std::to_string(i), all[i]);
  }
  at::Tensor forward(const at::Tensor& x) override { return x; }

  std::vector<at::Tensor> all;
};

std::vector<at::Tensor> copies(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) result.push_back(tensor.clone());
  return result;
}

void spoil(const Buffered& model) {
  for (const at::Tensor& buffer : model.all) {
    at::Tensor values = buffer;
    at::isFloatingType(values.scalar_type())
        ? values.fill_(std::numeric_limits<double>::quiet_NaN())
        : values.fill_(values.scalar_type() == at::kBool ? 0 : 7);
  }
}

void expect_equal(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected) {
  for (size_t i = 0; i < found.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_TRUE(at::allclose(found[i].to(at::kDouble), expected[i].to(at::kDouble), 0, 0, true));
  }
}

TEST(StepStart, BuffersAreRestoredWhereTheStepIsSkipped) {
  const Buffered model;
  StepStart start(model, at::kCPU);
  const std::vector<at::Tensor> before = copies(model.all);
  start.remember();
  spoil(model);
  const std::vector<at::Tensor> after = copies(model.all);
  start.restore_buffers_if(at::zeros({}));
  expect_equal(model.all, after);
  start.restore_buffers_if(at::ones({}));
  expect_equal(model.all, before);
}

TEST(StepStart, AStepThatIsTakenAgainFindsBuffersAndRandomNumbersAsTheyWere) {
  const Buffered model;
  StepStart start(model, at::kCPU);
  for (int step = 0; step < 2; ++step) {
    const std::vector<at::Tensor> before = copies(model.all);
    start.remember();
    const at::Tensor drawn = at::rand({3});
    spoil(model);
    start.restore();
    expect_equal(model.all, before);
    EXPECT_TRUE(at::rand({3}).equal(drawn));
    for (const at::Tensor& buffer : model.all) at::Tensor(buffer).fill_(1);
  }
}

}  // namespace
}  // namespace brim::train
