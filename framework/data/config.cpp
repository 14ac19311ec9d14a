#include "framework/data/config.h"

#include <sched.h>

#include <algorithm>

#include "framework/base/error.h"
#include "framework/base/log.h"

namespace brim::data {

void DataConfig::fields(recipe::Fields& f) {
  f.part("kind", source, "where samples come from");
  f.auto_or("workers", workers,
            "decoding threads; auto: one less than the cores; 0: none, the training loop decodes",
            recipe::between(0, 1024));
  f.value("prefetch", prefetch, "batches decoded ahead of the step", recipe::between(0, 1024));
  f.value("drop_last", drop_last, "leave out an epoch's last step where it would be short");
  f.value("mean", mean, "per channel, in 0 to 1; default: ImageNet's for 3 channels, else 0.5",
          recipe::any_number());
  f.value("std", std, "per channel, in 0 to 1; default: ImageNet's for 3 channels, else 0.5",
          recipe::above(0));
  f.section("augment", augment, "random changes to training images");
}

void DataConfig::check() const {
  augment.check();
  const AugmentConfig defaults;
  if (augment.crop != Crop::kPad && augment.pad != defaults.pad) {
    log::warning("data.augment.pad has no effect: crop is not \"pad\"");
  }
  if (augment.crop != Crop::kRandomResized &&
      (augment.scale_min != defaults.scale_min || augment.scale_max != defaults.scale_max ||
       augment.ratio_min != defaults.ratio_min || augment.ratio_max != defaults.ratio_max)) {
    log::warning(
        "data.augment.scale_min, scale_max, ratio_min and ratio_max have no effect: crop is not "
        "\"random_resized\"");
  }
  augment.policy.warn();
  if (mean.size() != std.size()) {
    throw Error(Exit::kRecipe,
                "[data]: expected 'mean' and 'std' to be as long as each other, found {} and {} "
                "values",
                mean.size(), std.size());
  }
}

std::unique_ptr<Dataset> DataConfig::open_train() const {
  auto dataset = source->open_train(augment);
  augment.policy.check_channels(dataset->shape().channels);
  return dataset;
}

int64_t DataConfig::worker_count() const {
  if (workers) return *workers;
  cpu_set_t cores;
  CPU_ZERO(&cores);
  // Fails only on machines with more cores than cpu_set_t holds.
  const int count =
      sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : CPU_SETSIZE;
  return std::max(1, count - 1);
}

Normalization DataConfig::normalization(int64_t channels) const {
  const auto count = static_cast<size_t>(channels);
  if (mean.empty() && std.empty()) {
    if (channels == 3) return {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
    return {std::vector<double>(count, 0.5), std::vector<double>(count, 0.5)};
  }
  if (mean.size() != count || std.size() != count) {
    throw Error(Exit::kRecipe,
                "[data]: the images have {} channels; expected as many values in 'mean' and 'std', "
                "found {} and {}",
                channels, mean.size(), std.size());
  }
  return {mean, std};
}

}  // namespace brim::data
