#include "framework/cli/options.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/machine.h"
#include "framework/recipe/text.h"

namespace brim::cli {

void add_job_options(cxxopts::Options& options) {
  using cxxopts::value;
  using Strings = std::vector<std::string>;
  options.add_options()("recipe", "a recipe: a path, or a bundled one's name", value<std::string>(),
                        "RECIPE")(
      "config", "a TOML file that overrides the recipe; may be repeated", value<Strings>(), "FILE")(
      "set",
      "one key that overrides everything, as in optimizer.learning_rate=0.1; may be repeated",
      value<Strings>(),
      "KEY=VALUE")("devices", "device to run on: auto, cpu, a GPU's index, or several as in 0,1",
                   value<std::string>(), "LIST");
  add_trust_option(options);
}

void add_trust_option(cxxopts::Options& options) {
  options.add_options()("trust-library",
                        "load the library or TorchScript file that a run or a bench file names, "
                        "which runs its code");
}

void add_json_option(cxxopts::Options& options, const std::string& what) {
  options.add_options()("json", what);
}

void add_image_work_options(cxxopts::Options& options) {
  options.add_options()("threads", "decoding threads (default: the cores)",
                        cxxopts::value<int64_t>(), "N");
  add_json_option(options);
}

int64_t threads_option(const cxxopts::ParseResult& options) {
  return options.count("threads") != 0 ? integer_option(options, "threads", 1, 1024)
                                       : usable_cores();
}

cxxopts::ParseResult parse_options(cxxopts::Options& options,
                                   const std::vector<std::string>& positional,
                                   std::span<char* const> argv) {
  try {
    options.parse_positional(positional);
    cxxopts::ParseResult result = options.parse(static_cast<int>(argv.size()), argv.data());
    if (!result.unmatched().empty()) {
      throw UsageError("unexpected argument '{}'; see --help", result.unmatched().front());
    }
    for (const cxxopts::HelpOptionDetails& option : options.group_help("").options) {
      const std::string& name = option.l.front();
      const bool is_positional =
          std::ranges::find(positional, name) != positional.end() && !option.is_container;
      if (is_positional && result.count(name) > 1) {
        throw UsageError("--{}: expected one, found {}", name, result.count(name));
      }
    }
    return result;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& problem) {  // cxxopts renamed its exceptions between versions
    throw UsageError("{}; see --help", problem.what());
  }
}

recipe::Value load_document(const cxxopts::ParseResult& options, const std::string& recipe) {
  const bool is_named = options.count("recipe") != 0;
  if (!is_named && recipe.empty()) {
    throw UsageError("no recipe given; try: trainer train digits");
  }
  recipe::LayerOptions layers{.is_of_run = !is_named,
                              .trusts_library = options.count("trust-library") != 0};
  if (options.count("config") != 0) {
    for (const auto& path : options["config"].as<std::vector<std::string>>()) {
      layers.configs.emplace_back(path);
    }
  }
  if (options.count("set") != 0) layers.sets = options["set"].as<std::vector<std::string>>();
  if (options.count("devices") != 0) {
    // Quoted: an index must stay a string.
    layers.sets.push_back("device.select=" +
                          recipe::toml_string(options["devices"].as<std::string>()));
  }
  return recipe::load(is_named ? options["recipe"].as<std::string>() : recipe, layers);
}

std::string required_option(const cxxopts::ParseResult& options, const std::string& name) {
  if (options.count(name) == 0) throw UsageError("--{} is missing; see --help", name);
  return options[name].as<std::string>();
}

int64_t integer_option(const cxxopts::ParseResult& options, const std::string& name, int64_t low,
                       int64_t high) {
  const auto value = options[name].as<int64_t>();
  if (value < low || value > high) {
    throw UsageError("--{}: expected a number from {} to {}, found {}", name, low, high, value);
  }
  return value;
}

}  // namespace brim::cli
