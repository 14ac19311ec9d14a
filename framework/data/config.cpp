#include "framework/data/config.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/base/machine.h"

namespace brim::data {
namespace {

constexpr std::array<std::string_view, 2> kOnErrorWords = {"fail", "skip"};

}  // namespace

void SamplerSection::fields(recipe::Fields& f) {
  f.component("name", sampler, "in which order training samples come");
}

void DataConfig::fields(recipe::Fields& f) {
  f.component("kind", source, "where samples come from");
  f.auto_or("workers", workers,
            "decoding threads; auto: as many as keep the device busy, at most one less than the "
            "cores; 0: none, the training loop decodes",
            recipe::between(0, 1024));
  f.value("prefetch", prefetch, "batches decoded ahead of the step", recipe::between(0, 1024));
  f.value("drop_last", drop_last, "leave out an epoch's last step where it would be short");
  f.choice("on_error", skip_bad, kOnErrorWords,
           "a sample that cannot be read: fail ends the run; skip trains on another one in its "
           "place and leaves it out of evaluation");
  f.value(
      "max_skipped", max_skipped,
      "training samples, or evaluation samples, that a rank may skip, since it started, before the "
      "run ends after all",
      recipe::between(0, 1e9));
  f.value("mean", mean,
          "per channel, of values in 0 to 1 (of 255: divided by it); default: ImageNet's for 3 "
          "channels, else 0.5",
          recipe::between(0, 1));
  f.value("std", std, "per channel, as mean; default: ImageNet's for 3 channels, else 0.5",
          {.low = 0, .high = 1, .low_open = true});
  f.section("sampler", sampler, "the order of training samples");
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
                "[data]: expected 'mean' and 'std' together, of one value a channel each; found {} "
                "and {} values",
                mean.size(), std.size());
  }
}

std::unique_ptr<Dataset> DataConfig::open_train() const {
  auto dataset = source->open_train(augment);
  if (dataset == nullptr) {
    throw Error(Exit::kRecipe, "data.kind = \"{}\": open_train() returned no dataset",
                source.selected());
  }
  check_samples(*dataset, "training");
  if (const ImageSamples* images = dataset->images()) {
    augment.policy.check_channels(images->shape().channels);
  }
  return dataset;
}

LoaderOptions DataConfig::train_options() const {
  return {.workers = workers.value_or(std::max<int64_t>(1, usable_cores() - 1)),
          .adapt_workers = !workers.has_value(),
          .prefetch = prefetch,
          .augment = true,
          .drop_last = drop_last,
          .pairs = augment.mix.mixes(),
          .on_error = skip_bad ? OnError::kReplace : OnError::kFail,
          .max_skipped = max_skipped};
}

LoaderOptions DataConfig::eval_options() const {
  LoaderOptions options = train_options();
  options.augment = false;
  options.pairs = false;
  options.drop_last = false;
  options.epochs = 1;
  if (skip_bad) options.on_error = OnError::kDrop;
  return options;
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
