// LibTorch's random generators, which dropout and initialisation draw from.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <string>
#include <utility>
#include <vector>

namespace brim::nn {

/// Those that work on `device` draws from, by name: "cpu", and "device" where that is another one.
std::vector<std::pair<std::string, at::Generator>> generators(c10::Device device);

/// Their state at the moment when this is made.
class RandomState {
 public:
  explicit RandomState(c10::Device device);
  void restore() const;

 private:
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

}  // namespace brim::nn
