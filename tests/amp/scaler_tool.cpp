// scaler_tool GROWTH_FACTOR BACKOFF_FACTOR GROWTH_INTERVAL MINIMUM unscale|check: reads words of
// stdin, one a step: "ok", "inf" or "nan" in that step's gradients. Prints the scale after each.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <cmath>
#include <cstdio>
#include <iostream>
#include <string>

#include "framework/amp/grad_scaler.h"

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  brim::amp::GradScalerConfig config;
  config.growth_factor = std::stod(argv[1]);
  config.backoff_factor = std::stod(argv[2]);
  config.growth_interval = std::stoll(argv[3]);
  config.minimum_scale = std::stod(argv[4]);
  const bool unscales = std::string(argv[5]) == "unscale";

  brim::amp::GradScaler scaler(at::kCPU, config, /*enabled=*/true);
  for (std::string word; std::cin >> word;) {
    auto gradient = at::ones({8});
    if (word == "inf") gradient[3] = INFINITY;
    if (word == "nan") gradient[5] = NAN;
    if (unscales) {
      scaler.unscale({gradient});
    } else {
      scaler.check({gradient});
    }
    scaler.update();
    std::printf("%a\n", scaler.read_scale());
  }
  return 0;
}
