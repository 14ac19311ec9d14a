// trainer recipe check|show|schema|reference: what a recipe says and what recipes may say.

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/cli/commands.h"
#include "framework/cli/options.h"
#include "framework/recipe/load_library.h"
#include "framework/recipe/read.h"
#include "framework/train/job.h"
#include "framework/train/observe/model_summary.h"

namespace brim::cli {
namespace {

constexpr const char* kUsage =
    "usage: trainer recipe check --recipe FILE [--json]   is it valid? every problem with its "
    "place\n"
    "       trainer recipe show --recipe FILE             the resolved recipe, all keys\n"
    "       trainer recipe show --recipe FILE --summary [--json]\n"
    "                                                     its model: parameters, operations and\n"
    "                                                     activation memory of a sample\n"
    "       trainer recipe schema [--recipe FILE]         JSON Schema for editors; with FILE's\n"
    "                                                     model.library, where it names one\n"
    "       trainer recipe reference [--recipe FILE]      every key, as Markdown\n";

int check(const cxxopts::ParseResult& options) {
  const bool as_json = options.count("json") != 0;
  try {
    const train::JobConfig job = train::read_job(load_document(options));
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

int show(const cxxopts::ParseResult& options) {
  train::JobConfig job = train::read_job(load_document(options));
  if (options.count("summary") == 0) {
    fmt::print("{}", recipe::print(job));
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
                                    {"modules", std::move(modules)}}
                         .dump());
  return 0;
}

}  // namespace

int recipe_command(int argc, char** argv) {
  const std::string action = argc > 1 && argv[1][0] != '-' ? argv[1] : "";
  cxxopts::Options options("trainer recipe " + action,
                           "What a recipe says, and what recipes may say.");
  add_job_options(options);
  options.add_options()("json", "print JSON (check, show --summary)")(
      "summary", "print what the model is and takes instead (show)")("h,help", "show this help");
  const bool has_action = !action.empty();
  const auto parsed = parse_options(options, argc - has_action, argv + has_action);
  if (parsed.count("help") != 0) {
    fmt::print("{}", kUsage);
    return 0;
  }
  if (action == "check") return check(parsed);
  if (action == "show") return show(parsed);
  const bool has_library = parsed.count("recipe") != 0 &&
                           recipe::load_library(load_document(parsed), "model", "library");
  train::JobConfig job;
  if (action == "schema") {
    fmt::print("{}\n", recipe::json_schema(job, has_library ? "" : "model.library"));
    return 0;
  }
  if (action == "reference") {
    fmt::print("{}", recipe::reference_page(job));
    return 0;
  }
  throw Error(Exit::kRecipe,
              "trainer recipe: expected check, show, schema or reference, found '{}'", action);
}

}  // namespace brim::cli
