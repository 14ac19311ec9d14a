#include "framework/cli/bench_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <variant>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/cli/site_defaults.h"
#include "framework/distributed/ranks.h"
#include "framework/recipe/document.h"
#include "framework/recipe/read.h"
#include "framework/train/input_shape.h"
#include "framework/train/job.h"

namespace brim::cli {
namespace {

using Strings = std::vector<std::string>;

constexpr int64_t kUsualClasses = 1000;
constexpr int64_t kLeastSamples = 1000;
constexpr int64_t kMaxSamples = 100000000;

/// What synthetic samples must look like to the model.
struct Samples {
  nn::ModelShape shape;
  int64_t size = 0;
};

Strings strings(const cxxopts::ParseResult& options, const std::string& name) {
  return options.count(name) != 0 ? options[name].as<Strings>() : Strings();
}

/// The options' own layers, the sets among them as the command line's.
recipe::LayerOptions layers_of(const cxxopts::ParseResult& options) {
  recipe::LayerOptions layers{.trusts_library = options.count("trust-library") != 0,
                              .defaults = site_defaults()};
  for (const std::string& path : strings(options, "config")) layers.configs.emplace_back(path);
  layers.sets = strings(options, "set");
  if (options.count("devices") != 0) {
    layers.sets.push_back("device.select=\"" + options["devices"].as<std::string>() + "\"");
  }
  return layers;
}

/// The number at [section] key of the resolved recipe.
std::optional<int64_t> number_at(const recipe::Value& document, std::string_view section,
                                 std::string_view key) {
  const auto* table = std::get_if<recipe::Table>(&document.data);
  for (const std::string_view name : {section, key}) {
    if (table == nullptr) return std::nullopt;
    const auto found = table->entries.find(name);
    if (found == table->entries.end()) return std::nullopt;
    if (const auto* number = std::get_if<int64_t>(&found->second.data)) return *number;
    table = std::get_if<recipe::Table>(&found->second.data);
  }
  return std::nullopt;
}

/// Of the recipe's training data; where that is not there, of its image size and 1,000 classes.
Samples samples_of(train::JobConfig& job) {
  try {
    const auto dataset = job.data.open_train();
    return {train::input_shape(*dataset, job.data), dataset->size()};
  } catch (const Error& error) {
    if (error.status() != Exit::kData) throw;
    const auto side =
        number_at(recipe::parse(recipe::print(job), "the recipe"), "data", "image_size");
    if (!side) throw;
    log::info("{}; synthetic images of {}×{}×3 in {} classes stand in", error.what(), *side, *side,
              kUsualClasses);
    return {{.channels = 3, .height = *side, .width = *side, .classes = kUsualClasses},
            kMaxSamples};
  }
}

Strings synthetic_sets(const std::string& recipe, const recipe::LayerOptions& layers) {
  train::JobConfig job = train::read_job(recipe::load(recipe, layers));
  if (job.data.source.selected().starts_with("synthetic")) return {};
  const Samples samples = samples_of(job);
  const std::string size =
      fmt::format("data.samples={}", std::clamp(samples.size, kLeastSamples, kMaxSamples));
  if (samples.shape.kind() == nn::InputKind::kTokens) {
    return {"data.kind=synthetic_tokens", size,
            fmt::format("data.vocabulary={}", samples.shape.vocabulary),
            fmt::format("data.length={}", samples.shape.length),
            fmt::format("data.documents={}", samples.shape.has_documents)};
  }
  return {"data.kind=synthetic",
          size,
          fmt::format("data.classes={}", samples.shape.classes),
          fmt::format("data.height={}", samples.shape.height),
          fmt::format("data.width={}", samples.shape.width),
          fmt::format("data.channels={}", samples.shape.channels)};
}

bool is_synthetic(const cxxopts::ParseResult& options) {
  const auto word = options["data"].as<std::string>();
  if (word != "real" && word != "synthetic") {
    throw UsageError("--data: expected real or synthetic, found '{}'", word);
  }
  return word == "synthetic";
}

}  // namespace

void add_bench_options(cxxopts::Options& options) {
  using cxxopts::value;
  options.add_options()("config", "a TOML file that overrides the recipe; may be repeated",
                        value<Strings>(), "FILE")(
      "set", "one key that overrides everything; may be repeated", value<Strings>(), "KEY=VALUE")(
      "devices", "device to run on: auto, cpu, a GPU's index, or several as in 0,1",
      value<std::string>(), "LIST")("repeats", "runs of each variant, each a fresh process",
                                    value<int64_t>()->default_value("5"), "N")(
      "steps", "steps measured in each run; without it, about three seconds' worth",
      value<int64_t>(), "N")("data", "real, or synthetic samples of the same shape",
                             value<std::string>()->default_value("real"), "real|synthetic");
  add_trust_option(options);
}

int64_t repeats_option(const cxxopts::ParseResult& options) {
  return integer_option(options, "repeats", 1, experiment::kMaxRepeats);
}

std::optional<int64_t> steps_option(const cxxopts::ParseResult& options) {
  if (options.count("steps") == 0) return std::nullopt;
  return integer_option(options, "steps", 1, experiment::kMaxSteps);
}

std::vector<experiment::VariantPlan> plan_variants(const std::string& recipe,
                                                   const std::string& name,
                                                   const std::vector<experiment::Sweep>& sweeps,
                                                   const cxxopts::ParseResult& options) {
  recipe::LayerOptions layers = layers_of(options);
  if (is_synthetic(options)) {
    for (std::string& set : synthetic_sets(recipe, layers)) layers.sets.push_back(std::move(set));
  }
  std::vector<experiment::VariantPlan> variants;
  for (const Strings& settings : experiment::combinations(sweeps)) {
    recipe::LayerOptions own = layers;
    own.sets.insert(own.sets.end(), settings.begin(), settings.end());
    train::read_job(recipe::load(recipe, own));  // finds what is wrong
    experiment::VariantPlan variant{
        .name = settings.empty() ? name : fmt::format("{}", fmt::join(settings, ", ")),
        .arguments = {"--recipe", recipe},
        .steps = steps_option(options)};
    if (layers.trusts_library) variant.arguments.emplace_back("--trust-library");
    for (const std::string& path : strings(options, "config")) {
      variant.arguments.insert(variant.arguments.end(), {"--config", path});
    }
    for (const std::string& set : own.sets) {
      variant.arguments.insert(variant.arguments.end(), {"--set", set});
    }
    variants.push_back(std::move(variant));
  }
  return variants;
}

void require_no_launcher(const std::string& command) {
  const distributed::Ranks ranks = distributed::read_ranks();
  if (ranks.launcher.empty()) return;
  throw UsageError(
      "trainer {} starts its runs itself; call it without {}, and name several devices by "
      "--devices",
      command, ranks.launcher);
}

}  // namespace brim::cli
