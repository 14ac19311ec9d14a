#include "models/inception/blocks.h"

#include <ATen/ATen.h>

#include "framework/nn/linear.h"

namespace brim::models::inception {
namespace {

constexpr UnitOptions kThree{.kernel = {3, 3}, .padding = {1, 1}};
constexpr UnitOptions kFive{.kernel = {5, 5}, .padding = {2, 2}};
constexpr UnitOptions kHalving{.kernel = {3, 3}, .stride = 2};
constexpr UnitOptions kWideSeven{.kernel = {1, 7}, .padding = {0, 3}};
constexpr UnitOptions kTallSeven{.kernel = {7, 1}, .padding = {3, 0}};
constexpr UnitOptions kWideThree{.kernel = {1, 3}, .padding = {0, 1}};
constexpr UnitOptions kTallThree{.kernel = {3, 1}, .padding = {1, 0}};

at::Tensor mean_of_neighbours(const at::Tensor& x) {
  return at::avg_pool2d(x, /*kernel_size=*/3, /*stride=*/1, /*padding=*/1);
}

class MixedA : public Mixed {
 public:
  MixedA(int64_t inputs, int64_t pooled) {
    branch1x1_ = add("branch1x1", inputs, 64);
    branch5x5_1_ = add("branch5x5_1", inputs, 48);
    branch5x5_2_ = add("branch5x5_2", 48, 64, kFive);
    branch3x3dbl_1_ = add("branch3x3dbl_1", inputs, 64);
    branch3x3dbl_2_ = add("branch3x3dbl_2", 64, 96, kThree);
    branch3x3dbl_3_ = add("branch3x3dbl_3", 96, 96, kThree);
    branch_pool_ = add("branch_pool", inputs, pooled);
  }
  at::Tensor forward(const at::Tensor& x) override {
    const at::Tensor five = branch5x5_2_->forward(branch5x5_1_->forward(x));
    const at::Tensor three =
        branch3x3dbl_3_->forward(branch3x3dbl_2_->forward(branch3x3dbl_1_->forward(x)));
    return at::cat(
        {branch1x1_->forward(x), five, three, branch_pool_->forward(mean_of_neighbours(x))}, 1);
  }

 private:
  UnitPointer branch1x1_, branch5x5_1_, branch5x5_2_, branch3x3dbl_1_, branch3x3dbl_2_,
      branch3x3dbl_3_, branch_pool_;
};

class MixedB : public Mixed {
 public:
  explicit MixedB(int64_t inputs) {
    branch3x3_ = add("branch3x3", inputs, 384, kHalving);
    branch3x3dbl_1_ = add("branch3x3dbl_1", inputs, 64);
    branch3x3dbl_2_ = add("branch3x3dbl_2", 64, 96, kThree);
    branch3x3dbl_3_ = add("branch3x3dbl_3", 96, 96, kHalving);
    maxpool_ = register_module("maxpool", nn::MaxPool2d(kHalvingPool));
  }
  at::Tensor forward(const at::Tensor& x) override {
    const at::Tensor twice =
        branch3x3dbl_3_->forward(branch3x3dbl_2_->forward(branch3x3dbl_1_->forward(x)));
    return at::cat({branch3x3_->forward(x), twice, maxpool_->forward(x)}, 1);
  }

 private:
  UnitPointer branch3x3_, branch3x3dbl_1_, branch3x3dbl_2_, branch3x3dbl_3_;
  nn::MaxPool2d maxpool_{nullptr};
};

class MixedC : public Mixed {
 public:
  MixedC(int64_t inputs, int64_t narrow) {
    branch1x1_ = add("branch1x1", inputs, 192);
    branch7x7_1_ = add("branch7x7_1", inputs, narrow);
    branch7x7_2_ = add("branch7x7_2", narrow, narrow, kWideSeven);
    branch7x7_3_ = add("branch7x7_3", narrow, 192, kTallSeven);
    branch7x7dbl_1_ = add("branch7x7dbl_1", inputs, narrow);
    branch7x7dbl_2_ = add("branch7x7dbl_2", narrow, narrow, kTallSeven);
    branch7x7dbl_3_ = add("branch7x7dbl_3", narrow, narrow, kWideSeven);
    branch7x7dbl_4_ = add("branch7x7dbl_4", narrow, narrow, kTallSeven);
    branch7x7dbl_5_ = add("branch7x7dbl_5", narrow, 192, kWideSeven);
    branch_pool_ = add("branch_pool", inputs, 192);
  }
  at::Tensor forward(const at::Tensor& x) override {
    const at::Tensor once = branch7x7_3_->forward(branch7x7_2_->forward(branch7x7_1_->forward(x)));
    at::Tensor twice = branch7x7dbl_2_->forward(branch7x7dbl_1_->forward(x));
    twice = branch7x7dbl_4_->forward(branch7x7dbl_3_->forward(twice));
    twice = branch7x7dbl_5_->forward(twice);
    return at::cat(
        {branch1x1_->forward(x), once, twice, branch_pool_->forward(mean_of_neighbours(x))}, 1);
  }

 private:
  UnitPointer branch1x1_, branch7x7_1_, branch7x7_2_, branch7x7_3_, branch7x7dbl_1_,
      branch7x7dbl_2_, branch7x7dbl_3_, branch7x7dbl_4_, branch7x7dbl_5_, branch_pool_;
};

class MixedD : public Mixed {
 public:
  explicit MixedD(int64_t inputs) {
    branch3x3_1_ = add("branch3x3_1", inputs, 192);
    branch3x3_2_ = add("branch3x3_2", 192, 320, kHalving);
    branch7x7x3_1_ = add("branch7x7x3_1", inputs, 192);
    branch7x7x3_2_ = add("branch7x7x3_2", 192, 192, kWideSeven);
    branch7x7x3_3_ = add("branch7x7x3_3", 192, 192, kTallSeven);
    branch7x7x3_4_ = add("branch7x7x3_4", 192, 192, kHalving);
    maxpool_ = register_module("maxpool", nn::MaxPool2d(kHalvingPool));
  }
  at::Tensor forward(const at::Tensor& x) override {
    const at::Tensor three = branch3x3_2_->forward(branch3x3_1_->forward(x));
    at::Tensor seven = branch7x7x3_2_->forward(branch7x7x3_1_->forward(x));
    seven = branch7x7x3_4_->forward(branch7x7x3_3_->forward(seven));
    return at::cat({three, seven, maxpool_->forward(x)}, 1);
  }

 private:
  UnitPointer branch3x3_1_, branch3x3_2_, branch7x7x3_1_, branch7x7x3_2_, branch7x7x3_3_,
      branch7x7x3_4_;
  nn::MaxPool2d maxpool_{nullptr};
};

class MixedE : public Mixed {
 public:
  explicit MixedE(int64_t inputs) {
    branch1x1_ = add("branch1x1", inputs, 320);
    branch3x3_1_ = add("branch3x3_1", inputs, 384);
    branch3x3_2a_ = add("branch3x3_2a", 384, 384, kWideThree);
    branch3x3_2b_ = add("branch3x3_2b", 384, 384, kTallThree);
    branch3x3dbl_1_ = add("branch3x3dbl_1", inputs, 448);
    branch3x3dbl_2_ = add("branch3x3dbl_2", 448, 384, kThree);
    branch3x3dbl_3a_ = add("branch3x3dbl_3a", 384, 384, kWideThree);
    branch3x3dbl_3b_ = add("branch3x3dbl_3b", 384, 384, kTallThree);
    branch_pool_ = add("branch_pool", inputs, 192);
  }
  at::Tensor forward(const at::Tensor& x) override {
    const at::Tensor once = branch3x3_1_->forward(x);
    const at::Tensor twice = branch3x3dbl_2_->forward(branch3x3dbl_1_->forward(x));
    return at::cat({branch1x1_->forward(x), branch3x3_2a_->forward(once),
                    branch3x3_2b_->forward(once), branch3x3dbl_3a_->forward(twice),
                    branch3x3dbl_3b_->forward(twice), branch_pool_->forward(mean_of_neighbours(x))},
                   1);
  }

 private:
  UnitPointer branch1x1_, branch3x3_1_, branch3x3_2a_, branch3x3_2b_, branch3x3dbl_1_,
      branch3x3dbl_2_, branch3x3dbl_3a_, branch3x3dbl_3b_, branch_pool_;
};

torch::ExpandingArray<2> both(const Sides& sides) { return {{sides[0], sides[1]}}; }

}  // namespace

Unit::Unit(int64_t inputs, int64_t outputs, const UnitOptions& options) {
  const torch::nn::Conv2dOptions conv =
      torch::nn::Conv2dOptions(inputs, outputs, both(options.kernel))
          .stride(options.stride)
          .padding(both(options.padding))
          .bias(false);
  conv_ = register_module("conv", nn::Conv2d(conv));
  bn_ = register_module("bn", nn::BatchNorm2d(torch::nn::BatchNorm2dOptions(outputs).eps(0.001)));
}

MixedPointer make_a(int64_t inputs, int64_t pooled) {
  return std::make_shared<MixedA>(inputs, pooled);
}
MixedPointer make_b(int64_t inputs) { return std::make_shared<MixedB>(inputs); }
MixedPointer make_c(int64_t inputs, int64_t narrow) {
  return std::make_shared<MixedC>(inputs, narrow);
}
MixedPointer make_d(int64_t inputs) { return std::make_shared<MixedD>(inputs); }
MixedPointer make_e(int64_t inputs) { return std::make_shared<MixedE>(inputs); }

Auxiliary::Auxiliary(int64_t classes) {
  conv0_ = register_module("conv0", std::make_shared<Unit>(768, 128, UnitOptions{}));
  conv1_ =
      register_module("conv1", std::make_shared<Unit>(128, 768, UnitOptions{.kernel = {5, 5}}));
  fc_ = register_module("fc", nn::Linear(768, classes));
}

at::Tensor Auxiliary::forward(const at::Tensor& x) {
  const at::Tensor pooled = at::avg_pool2d(x, /*kernel_size=*/5, /*stride=*/3);
  const at::Tensor y = conv1_->forward(conv0_->forward(pooled));
  return fc_->forward(at::adaptive_avg_pool2d(y, {1, 1}).flatten(1));
}

}  // namespace brim::models::inception
