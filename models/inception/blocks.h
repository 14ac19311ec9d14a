// The parts that Inception v3 is made of, in the order and with the names of torchvision's.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <string>

#include "framework/nn/batch_norm.h"
#include "framework/nn/block.h"
#include "framework/nn/convolution.h"
#include "framework/nn/linear.h"
#include "framework/nn/max_pool.h"

namespace brim::models::inception {

/// Height and width.
using Sides = std::array<int64_t, 2>;

struct UnitOptions {
  Sides kernel = {1, 1};
  int64_t stride = 1;
  Sides padding = {0, 0};
};

inline constexpr nn::PoolWindow kHalvingPool = {.kernel = 3, .stride = 2};

/// Convolution, batch norm, ReLU.
class Unit : public torch::nn::Module {
 public:
  Unit(int64_t inputs, int64_t outputs, const UnitOptions& options);
  at::Tensor forward(const at::Tensor& x) { return bn_->forward_relu(conv_->forward(x)); }

 private:
  nn::Conv2d conv_{nullptr};
  nn::BatchNorm2d bn_{nullptr};
};
using UnitPointer = std::shared_ptr<Unit>;

/// Branches whose results are put side by side as channels.
class Mixed : public nn::Block {
 protected:
  UnitPointer add(const std::string& name, int64_t inputs, int64_t outputs,
                  const UnitOptions& options = {}) {
    return register_module(name, std::make_shared<Unit>(inputs, outputs, options));
  }
};
using MixedPointer = std::shared_ptr<Mixed>;

/// Same size; 224 channels and those of the pooled branch.
MixedPointer make_a(int64_t inputs, int64_t pooled);
/// Halves the image; 480 more channels.
MixedPointer make_b(int64_t inputs);
/// Same size, 768 channels; convolutions of 1x7 and 7x1, `narrow` channels inside.
MixedPointer make_c(int64_t inputs, int64_t narrow);
/// Halves the image; 512 more channels.
MixedPointer make_d(int64_t inputs);
/// Same size, 2048 channels.
MixedPointer make_e(int64_t inputs);

/// The auxiliary classifier, on 768 channels of at least 17x17.
class Auxiliary : public torch::nn::Module {
 public:
  explicit Auxiliary(int64_t classes);
  at::Tensor forward(const at::Tensor& x);
  const nn::Linear& fc() const { return fc_; }

 private:
  UnitPointer conv0_, conv1_;
  nn::Linear fc_{nullptr};
};

}  // namespace brim::models::inception
