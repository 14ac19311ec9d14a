// A recipe in small: nested sections, two parts, every kind of key.
#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/recipe/read.h"
#include "framework/recipe/registry.h"

namespace brim::recipe::sample {

struct OptimizerConfig : Config {
  double learning_rate = 0.1;
};

struct SgdConfig final : OptimizerConfig {
  double momentum = 0.9;
  bool nesterov = false;
  void fields(Fields& f) override {
    f.value("learning_rate", learning_rate, "step size", above(0));
    f.value("momentum", momentum, "share of the last step that is kept",
            between_open_high(0.0, 1.0));
    f.value("nesterov", nesterov, "look ahead | Nesterov's form");
  }
};

struct UpdateLimits {
  double largest = 10;
  void fields(Fields& f) { f.value("largest", largest, "largest update", above(0)); }
};

struct AdamWConfig final : OptimizerConfig {
  std::vector<double> betas = {0.9, 0.999};
  UpdateLimits limits;
  void fields(Fields& f) override {
    f.value("learning_rate", learning_rate, "step size", between(0.0, 10.0));
    f.value("betas", betas, "decay of the two averages", between_open_high(0.0, 1.0));
    f.section("limits", limits, "bounds of an update");
  }
};

struct DataConfig : Config {};

struct FolderConfig final : DataConfig {
  std::filesystem::path path;
  std::filesystem::path cache;
  void fields(Fields& f) override {
    f.value("path", path, "folder with one folder a class", Need::kRequired);
    f.value("cache", cache, "where decoded images are kept");
  }
};

struct SyntheticConfig final : DataConfig {
  int64_t samples = 1000;
  void fields(Fields& f) override { f.value("samples", samples, "number of samples", at_least(1)); }
};

enum class Mode { kAuto, kBf16, kFp32 };
inline constexpr std::array<std::string_view, 3> kModes = {"auto", "bf16", "fp32"};

struct TrainData {
  int64_t limit = 0;
  void fields(Fields& f) { f.value("limit", limit, "samples used, 0 for all", at_least(0)); }
};

struct RunConfig {
  std::string name;
  int64_t seed = 0;
  std::vector<std::string> tags;
  std::vector<int64_t> devices;
  void fields(Fields& f) {
    f.value("name", name, "name of the run", Need::kRequired);
    f.value("seed", seed, "seed of everything random");
    f.value("tags", tags, "words to find it by");
    f.value("devices", devices, "devices to use", between(0, 63));
  }
};

struct BatchConfig {
  std::optional<int64_t> micro;
  void fields(Fields& f) { f.auto_or("micro", micro, "samples at a time", at_least(1)); }
};

struct PrecisionConfig {
  Mode mode = Mode::kAuto;
  void fields(Fields& f) { f.choice("mode", mode, kModes, "number format of the heavy layers"); }
};

struct SampleConfig final : Config {
  bool verbose = false;
  RunConfig run;
  BatchConfig batch;
  PrecisionConfig precision;
  Slot<OptimizerConfig> optimizer{"sgd"};
  Slot<DataConfig> data;
  TrainData train_data;

  struct OptimizerSection {
    SampleConfig& all;
    void fields(Fields& f) { f.component("name", all.optimizer, "the optimizer"); }
  };
  struct DataSection {
    SampleConfig& all;
    void fields(Fields& f) {
      f.section("train", all.train_data, "what is trained on");
      f.component("kind", all.data, "where samples come from");
    }
  };
  void fields(Fields& f) override {
    f.section("run", run, "the run itself");
    f.value("verbose", verbose, "say more");
    f.section("batch", batch, "sizes of batches");
    f.section("precision", precision, "number formats");
    OptimizerSection optimizer_section{*this};
    f.section("optimizer", optimizer_section, "how weights move");
    DataSection data_section{*this};
    f.section("data", data_section, "what is learned from");
  }
};

/// Call before use; the parts are registered once.
inline void register_components() {
  static const bool done = [] {
    registry<OptimizerConfig>().add<SgdConfig>("sgd", "stochastic gradient descent");
    registry<OptimizerConfig>().add<AdamWConfig>("adamw", "Adam with decoupled weight decay");
    registry<DataConfig>().add<FolderConfig>("folder", "images in folders");
    registry<DataConfig>().add<SyntheticConfig>("synthetic", "random samples");
    return true;
  }();
  static_cast<void>(done);
}

}  // namespace brim::recipe::sample
