#include "framework/nn/random_state.h"

#include <ATen/ATen.h>

namespace brim::nn {

std::vector<std::pair<std::string, at::Generator>> generators(c10::Device device) {
  std::vector<std::pair<std::string, at::Generator>> result = {
      {"cpu", at::globalContext().defaultGenerator(at::kCPU)}};
  if (!device.is_cpu()) {
    result.emplace_back("device", at::globalContext().defaultGenerator(device));
  }
  return result;
}

RandomState::RandomState(c10::Device device) {
  for (const auto& [name, generator] : generators(device)) {
    states_.emplace_back(generator, generator.get_state());
  }
}

void RandomState::restore() const {
  for (auto [generator, state] : states_) generator.set_state(state);
}

}  // namespace brim::nn
