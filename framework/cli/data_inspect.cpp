// trainer data inspect: decodes all images and says what is there.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/base/units.h"
#include "framework/cli/commands.h"
#include "framework/cli/options.h"
#include "framework/data/shards/inspect.h"
#include "framework/data/shards/shard_list.h"
#include "framework/data/sources/image_folder.h"
#include "framework/data/sources/webdataset.h"

namespace brim::cli {
namespace {

using nlohmann::json;

/// A folder for each class where no shards are, else shards.
std::unique_ptr<data::EncodedImages> open_images(const std::string& path) {
  std::error_code code;
  const std::filesystem::path given = path;
  const bool is_recipe = given.extension() == ".toml";
  if (is_recipe || std::filesystem::exists(given / "recipe.toml", code)) {
    throw UsageError(
        "{}: expected a folder of images or of tar shards, found a {}; name the folder "
        "that its [data.train] has as path",
        path, is_recipe ? "recipe" : "run");
  }
  const std::filesystem::directory_iterator entries(path, code);
  if (code) return data::open_shards(path, {}, {});
  for (const auto& entry : entries) {
    if (data::is_shard(entry.path())) return data::open_shards(path, {}, {});
  }
  return data::open_image_folder(path);
}

json to_json(const data::Spread& spread) {
  return {{"least", spread.least}, {"median", spread.median}, {"greatest", spread.greatest}};
}

void print_json(const data::Inspection& found) {
  json classes = json::array();
  for (const auto& [name, images] : found.classes) {
    classes.push_back({{"name", name}, {"images", images}});
  }
  const json result = {{"images", found.images},
                       {"bytes", found.bytes},
                       {"file_bytes", to_json(found.file_bytes)},
                       {"height", to_json(found.height)},
                       {"width", to_json(found.width)},
                       {"classes", std::move(classes)},
                       {"broken", found.broken}};
  fmt::print("{}", json_line(result));
}

void print_text(const data::Inspection& found) {
  const auto line = [](const char* what, const data::Spread& spread, auto format) {
    fmt::print("{:<8}{} to {}, median {}\n", what, format(spread.least), format(spread.greatest),
               format(spread.median));
  };
  fmt::print("{}, {} in all, {}, {} broken\n", format_plural(found.images, "image"),
             format_bytes(found.bytes),
             format_plural(static_cast<int64_t>(found.classes.size()), "class", "classes"),
             format_count(static_cast<int64_t>(found.broken.size())));
  line("file", found.file_bytes, format_bytes);
  line("height", found.height, format_count);
  line("width", found.width, format_count);
  int64_t most = 1;
  for (const auto& entry : found.classes) most = std::max(most, entry.images);
  constexpr int64_t kBar = 40;
  for (const auto& [name, images] : found.classes) {
    fmt::print("{:<24} {:>10} {}\n", printable(name), format_count(images),
               std::string(static_cast<size_t>(images * kBar / most), '#'));
  }
  for (const std::string& problem : found.broken) fmt::print("broken: {}\n", printable(problem));
}

int inspect_data(const cxxopts::ParseResult& parsed, std::span<char* const> /*argv*/) {
  const auto images = open_images(required_option(parsed, "data inspect", "from"));
  const auto found = data::inspect(*images, threads_option(parsed), [&](int64_t done) {
    if (!log::is_terminal()) return;
    log::live(fmt::format("{} of {} images", format_count(done), format_count(images->size())));
  });
  log::live("");
  parsed.count("json") != 0 ? print_json(found) : print_text(found);
  return static_cast<int>(found.broken.empty() ? Exit::kDone : Exit::kData);
}

}  // namespace

Command data_inspect_command() {
  return {.name = "data inspect",
          .arguments = "PATH",
          .summary = "counts, sizes, classes, broken images",
          .details =
              "Decodes all images of a folder or of shards and says what is there. Leaves "
              "with status 3 where some are broken.",
          .add_options =
              [](cxxopts::Options& options) {
                options.add_options()("from",
                                      "folder with a folder for each class, or shards as "
                                      "data.train.path names them",
                                      cxxopts::value<std::string>(), "PATH");
                add_image_work_options(options);
              },
          .positional = {"from"},
          .examples = {{"trainer data inspect flowers/train", "a folder for each class"}},
          .run = inspect_data};
}

}  // namespace brim::cli
