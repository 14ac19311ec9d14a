// What a forward pass changes besides gradients: buffers, such as running statistics, and the state
// of the random generators. Remembered at the start of a step, so that the step can be taken again
// or skipped.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <vector>

#include "framework/nn/random_state.h"

namespace brim::nn {
class Model;
}

namespace brim::train {

class StepStart {
 public:
  StepStart(const nn::Model& module, c10::Device device);

  /// Doesn't wait for the device.
  void remember();
  /// Puts everything back as it was at the last remember().
  void restore();
  /// The buffers alone, where `found_inf` (float32 scalar) is 1, so that a skipped step leaves no
  /// NaN in running statistics. Doesn't wait for the device.
  void restore_buffers_if(const at::Tensor& found_inf);

 private:
  /// Of one type: `saved` and `chosen` hold the values of all, one after the other, so that a GPU's
  /// kernels are few.
  struct Buffers {
    std::vector<at::Tensor> live;
    at::Tensor saved, chosen;
    std::vector<at::Tensor> saved_parts, chosen_parts;  // shaped as the live ones
    std::vector<at::Tensor> flat() const;
  };
  std::map<at::ScalarType, Buffers> buffers_;
  c10::Device device_;
  std::optional<nn::RandomState> random_;
};

}  // namespace brim::train
