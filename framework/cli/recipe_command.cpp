// trainer recipe check|show|schema|reference: what a recipe says and what recipes may say.

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <type_traits>
#include <variant>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/cli/commands.h"
#include "framework/cli/options.h"
#include "framework/nn/torchscript.h"
#include "framework/nn/without_storage.h"
#include "framework/recipe/load_library.h"
#include "framework/recipe/read.h"
#include "framework/sweep/config.h"
#include "framework/sweep/space.h"
#include "framework/train/build_model.h"
#include "framework/train/job.h"
#include "framework/train/observe/model_summary.h"
#include "framework/train/tuning/probe_job.h"

namespace brim::cli {
namespace {

/// As JSON: tables are objects, lists arrays, times as TOML writes them.
nlohmann::json to_json(const recipe::Value& value) {
  return std::visit(
      [](const auto& data) -> nlohmann::json {
        using T = std::decay_t<decltype(data)>;
        if constexpr (std::is_same_v<T, recipe::Table>) {
          nlohmann::json object = nlohmann::json::object();
          for (const auto& [key, entry] : data.entries) object[key] = to_json(entry);
          return object;
        } else if constexpr (std::is_same_v<T, std::vector<recipe::Value>>) {
          nlohmann::json list = nlohmann::json::array();
          for (const recipe::Value& entry : data) list.push_back(to_json(entry));
          return list;
        } else {
          return data;
        }
      },
      value.data);
}

/// A model that can't be built for its data, such as one whose heads don't divide its width, is a
/// mistake of the recipe. Data and scripts that aren't on this machine are none.
void check_model(const train::JobConfig& job) {
  std::error_code ignored;
  const auto* script = dynamic_cast<const nn::TorchScriptConfig*>(&*job.model.model);
  if (script != nullptr && !std::filesystem::exists(script->file, ignored)) {
    log::warning("the model wasn't tried: {} is not there", script->file.string());
    return;
  }
  try {
    const nn::ModelShape input = train::shape_of(job).input;
    const nn::WithoutStorage without_storage;
    (void)train::new_model(job.model, input);
  } catch (const Error& error) {
    if (error.status() != Exit::kData) throw;
    log::warning("the model wasn't tried, for want of its data: {}", error.what());
  }
}

int check(const cxxopts::ParseResult& options, std::span<char* const> /*argv*/) {
  const bool as_json = options.count("json") != 0;
  try {
    recipe::Value document = load_layers(options);
    const sweep::SweepConfig sweep = sweep::take_sweep(document);
    train::JobConfig job = train::read_job(document);
    sweep::parse_space(sweep.vary, recipe::parse(recipe::print(job), "the recipe"));
    check_model(job);
    const std::string no_fall = train::no_plateau(job, /*has_eval_data=*/true);
    if (!no_fall.empty()) log::warning("{}", no_fall);
  } catch (const Error& error) {
    if (!as_json) throw;
    nlohmann::json problems = nlohmann::json::array();
    const std::string text = error.what();
    for (size_t start = 0; start < text.size();) {
      const size_t end = std::min(text.find('\n', start), text.size());
      problems.push_back(text.substr(start, end - start));
      start = end + 1;
    }
    fmt::print("{}\n", nlohmann::json{{"valid", false}, {"problems", problems}}.dump());
    return static_cast<int>(error.status());
  }
  if (as_json) {
    fmt::print("{}\n",
               nlohmann::json{{"valid", true}, {"problems", nlohmann::json::array()}}.dump());
  } else {
    fmt::print("{}: valid\n", options["recipe"].as<std::string>());
  }
  return 0;
}

int show(const cxxopts::ParseResult& options, std::span<char* const> /*argv*/) {
  train::JobConfig job = train::read_job(load_document(options));
  if (options.count("summary") == 0) {
    const std::string text = recipe::print(job);
    if (options.count("json") == 0) {
      fmt::print("{}", text);
    } else {
      fmt::print("{}\n", to_json(recipe::parse(text, "the resolved recipe")).dump());
    }
    return 0;
  }
  const train::ModelSummary summary = train::summarise(job);
  if (options.count("json") == 0) {
    fmt::print("{}", printable_lines(train::to_text(summary)));
    return 0;
  }
  nlohmann::json modules = nlohmann::json::array();
  for (const auto& module : summary.modules) {
    modules.push_back({{"module", module.module}, {"activation_bytes", module.bytes}});
  }
  fmt::print("{}\n", nlohmann::json{{"parameters", summary.parameters},
                                    {"trained_parameters", summary.trained_parameters},
                                    {"forward_flops", summary.forward_flops},
                                    {"training_flops", summary.training_flops()},
                                    {"activation_bytes", summary.activation_bytes},
                                    {"once_bytes", summary.once_bytes},
                                    {"modules", std::move(modules)}}
                         .dump());
  return 0;
}

/// What a file may hold: a recipe, and what trainer sweep takes beside it.
struct RecipeFile final : recipe::Config {
  train::JobConfig job;
  sweep::SweepConfig sweep;
  void fields(recipe::Fields& f) override {
    job.fields(f);
    f.section("sweep", sweep, "of a file for trainer sweep: what its trials vary");
  }
};

int print_schema(const cxxopts::ParseResult& options, std::span<char* const> /*argv*/) {
  const bool has_library = options.count("recipe") != 0 &&
                           recipe::load_library(load_document(options), "model", "library");
  RecipeFile file;
  fmt::print("{}\n", recipe::json_schema(file, has_library ? "" : "model.library"));
  return 0;
}

int print_reference(const cxxopts::ParseResult& options, std::span<char* const> /*argv*/) {
  if (options.count("recipe") != 0) {
    recipe::load_library(load_document(options), "model", "library");
  }
  RecipeFile file;
  fmt::print("{}", recipe::reference_page(file));
  return 0;
}

}  // namespace

Command recipe_check_command() {
  return {.name = "recipe check",
          .arguments = "RECIPE",
          .summary = "is a recipe valid?",
          .details =
              "Says whether a recipe is valid, or every problem with its place. The model is "
              "built, without memory, where its data are on this machine.",
          .add_options =
              [](cxxopts::Options& options) {
                add_job_options(options);
                add_json_option(options);
              },
          .positional = {"recipe"},
          .examples = {{"trainer recipe check digits", "prints digits: valid"}},
          .run = check};
}

Command recipe_show_command() {
  return {.name = "recipe show",
          .arguments = "RECIPE",
          .summary = "the resolved recipe, or what its model takes",
          .details =
              "Prints the resolved recipe with every key, or, with --summary, its model's "
              "parameters, operations and activation memory of a sample.",
          .add_options =
              [](cxxopts::Options& options) {
                add_job_options(options);
                options.add_options()("summary", "print what the model is and takes instead");
                add_json_option(options);
              },
          .positional = {"recipe"},
          .examples = {{"trainer recipe show digits", "all keys with their values, as TOML"},
                       {"trainer recipe show digits --summary", "its parameters and operations"}},
          .run = show};
}

Command recipe_schema_command() {
  return {.name = "recipe schema",
          .arguments = "[RECIPE]",
          .summary = "JSON Schema for editors",
          .details =
              "Prints a JSON Schema by which editors complete and check recipes; with a "
              "recipe that names a model.library, with that library's components.",
          .add_options = add_job_options,
          .positional = {"recipe"},
          .examples = {{"trainer recipe schema > recipe.schema.json", "for an editor's settings"}},
          .run = print_schema};
}

Command recipe_reference_command() {
  return {.name = "recipe reference",
          .arguments = "[RECIPE]",
          .summary = "every key, as Markdown",
          .details = "Prints every key of a recipe with its type, default and meaning.",
          .add_options = add_job_options,
          .positional = {"recipe"},
          .examples = {{"trainer recipe reference > recipe.md", "the page to read or to search"}},
          .run = print_reference};
}

}  // namespace brim::cli
