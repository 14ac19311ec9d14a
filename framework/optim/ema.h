// An exponential moving average of a model's parameters, for evaluation and for the checkpoint of
// the averaged model. Buffers (running statistics of norms) are averages already: the averaged
// model uses the live ones.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/optim/optimizer.h"

namespace brim::optim {

/// Not thread-safe.
class Ema {
 public:
  using Parameters = std::vector<std::pair<std::string, at::Tensor>>;

  /// Starts as a copy of the parameters, which must be on their device already. decay in (0, 1).
  Ema(const Parameters& parameters, double decay);

  /// average = decay · average + (1 - decay) · parameter. Where found_inf (the scaler's) is 1 the
  /// average stays as it is. Doesn't wait for the device.
  void update(const std::optional<at::Tensor>& found_inf = std::nullopt);

  /// "ema.<parameter>": the live averages.
  State state();

  /// While it lives, the model's parameters hold the averages, and state() the parameters. No data
  /// is copied, so what comes back is what was there, to the bit. No update() meanwhile.
  class Swap {
   public:
    explicit Swap(Ema& ema);
    ~Swap();
    Swap(const Swap&) = delete;
    Swap& operator=(const Swap&) = delete;

   private:
    Ema& ema_;
  };

 private:
  void swap_data();
  void update_in_groups(const at::Tensor& weight);

  double decay_;
  bool swapped_ = false;
  std::vector<std::string> names_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> averages_;
};

}  // namespace brim::optim
