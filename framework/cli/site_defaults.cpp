#include "framework/cli/site_defaults.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "framework/recipe/read.h"
#include "framework/recipe/text.h"
#include "framework/site/limits.h"
#include "framework/train/job.h"

namespace brim::cli {
namespace {

constexpr std::string_view kUser = "{user}";

/// The sections of a recipe that are about the machine more than about what is learned.
struct DefaultsConfig final : recipe::Config {
  struct Section {
    std::string runs;
    train::PrecisionConfig precision;
    train::CheckpointConfig checkpoint;
    device::DeviceConfig device;
    distributed::DistributedConfig distributed;
    train::TelemetryConfig telemetry;
    void fields(recipe::Fields& f) {
      f.value("runs", runs, "folder of runs that name none");
      f.section("precision", precision, "as in a recipe");
      f.section("checkpoint", checkpoint, "as in a recipe");
      f.section("device", device, "as in a recipe");
      f.section("distributed", distributed, "as in a recipe");
      f.section("telemetry", telemetry, "as in a recipe");
    }
  };
  Section defaults;
  void fields(recipe::Fields& f) override { f.section("defaults", defaults, "of recipes"); }
};

struct Defaults {
  std::optional<recipe::Value> keys;
  std::filesystem::path runs = "runs";
};

Defaults read_defaults() {
  const site::Limits& limits = site::limits();
  Defaults defaults;
  if (!limits.site().defaults) return defaults;
  recipe::Value root;
  root.data = recipe::Table();
  root.location.source = limits.site().file.string();
  std::get<recipe::Table>(root.data).entries.emplace("defaults", *limits.site().defaults);
  DefaultsConfig config;
  recipe::read(root, config);
  std::string runs = config.defaults.runs;
  if (const size_t at = runs.find(kUser); at != std::string::npos) {
    runs.replace(at, kUser.size(), limits.person().user);
  }
  const recipe::Location place = recipe::place_of(root, "defaults.runs");
  if (place.line != 0 && !std::filesystem::path(runs).is_absolute()) {
    recipe::throw_problems(
        {{place, fmt::format("'runs' in [defaults]: expected a whole path, in which {} stands for "
                             "the user's name, found {}",
                             kUser, recipe::toml_string(config.defaults.runs))}});
  }
  if (!runs.empty()) defaults.runs = runs;
  defaults.keys = *limits.site().defaults;
  std::get<recipe::Table>(defaults.keys->data).entries.erase("runs");
  return defaults;
}

const Defaults& known_defaults() {
  static const Defaults kDefaults = read_defaults();
  return kDefaults;
}

}  // namespace

const recipe::Value* site_defaults() {
  const Defaults& defaults = known_defaults();
  return defaults.keys ? &*defaults.keys : nullptr;
}

std::filesystem::path site_runs() { return known_defaults().runs; }

}  // namespace brim::cli
