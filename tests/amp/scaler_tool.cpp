// scaler_tool GROWTH_FACTOR BACKOFF_FACTOR GROWTH_INTERVAL MINIMUM unscale|check: each line of
// stdin is a run, each word a step: "ok", "inf" or "nan" in that step's gradients. Prints the scale
// after each step, a line a run.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <cmath>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>

#include "framework/amp/grad_scaler.h"

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  brim::amp::GradScalerConfig config;
  config.growth_factor = std::stod(argv[1]);
  config.backoff_factor = std::stod(argv[2]);
  config.growth_interval = std::stoll(argv[3]);
  config.min_scale = std::stod(argv[4]);
  const bool unscales = std::string(argv[5]) == "unscale";

  for (std::string pattern; std::getline(std::cin, pattern);) {
    brim::amp::GradScaler scaler(at::kCPU, config, /*enabled=*/true);
    std::istringstream words(pattern);
    for (std::string word; words >> word;) {
      auto gradient = at::ones({8});
      if (word == "inf") gradient[3] = INFINITY;
      if (word == "nan") gradient[5] = NAN;
      if (unscales) {
        scaler.unscale({gradient});
      } else {
        scaler.check({gradient});
      }
      scaler.update();
      std::printf("%a ", scaler.read_scale());
    }
    std::printf("\n");
  }
  return 0;
}
