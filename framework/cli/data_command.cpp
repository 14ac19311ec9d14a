// trainer data pack|inspect: images to tar shards, and what a set of images holds.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/base/units.h"
#include "framework/cli/commands.h"
#include "framework/cli/options.h"
#include "framework/data/image_folder.h"
#include "framework/data/inspect.h"
#include "framework/data/pack.h"
#include "framework/data/webdataset.h"

namespace brim::cli {
namespace {

constexpr const char* kUsage =
    "usage: trainer data pack --from FOLDER --to FOLDER   a folder a class to tar shards\n"
    "       trainer data inspect --from PATH              decodes all images and says what is "
    "there\n"
    "see trainer data pack --help, trainer data inspect --help\n";

using nlohmann::json;

/// An option that is an integer from `low` to `high`.
int64_t integer(const cxxopts::ParseResult& options, const std::string& name, int64_t low,
                int64_t high) {
  const auto value = options[name].as<int64_t>();
  if (value < low || value > high) {
    throw Error(Exit::kRecipe, "--{}: expected a number from {} to {}, found {}", name, low, high,
                value);
  }
  return value;
}

std::string required(const cxxopts::ParseResult& options, const std::string& name) {
  if (options.count(name) == 0) {
    throw Error(Exit::kRecipe, "--{} is missing; see trainer data --help", name);
  }
  return options[name].as<std::string>();
}

int64_t threads(const cxxopts::ParseResult& options) {
  if (options.count("threads") != 0) return integer(options, "threads", 1, 1024);
  return std::max(1U, std::thread::hardware_concurrency());
}

void add_common(cxxopts::Options& options) {
  options.add_options()("threads", "decoding threads; default: the cores",
                        cxxopts::value<int64_t>())("json", "print JSON")("h,help",
                                                                         "show this help");
}

int pack(int argc, char** argv) {
  cxxopts::Options options("trainer data pack",
                           "Packs images in a folder for each class into tar shards.");
  options.add_options()("from", "folder with a folder for each class",
                        cxxopts::value<std::string>())(
      "to", "folder for the shards; whole ones that are there are kept",
      cxxopts::value<std::string>())("samples", "images of a shard",
                                     cxxopts::value<int64_t>()->default_value("1000"))(
      "shard-mib", "a shard that holds as many MiB is closed before; 0: no limit",
      cxxopts::value<int64_t>()->default_value("0"))(
      "resize", "shorter side in pixels of images where it is longer; 0: all as they are",
      cxxopts::value<int64_t>()->default_value("0"))(
      "quality", "of JPEG images that were resized",
      cxxopts::value<int64_t>()->default_value("95"))(
      "seed", "of the order", cxxopts::value<int64_t>()->default_value("0"));
  add_common(options);
  const auto parsed = parse_options(options, argc, argv);
  if (parsed.count("help") != 0) {
    fmt::print("{}\n", options.help());
    return 0;
  }
  const std::string from = required(parsed, "from");
  const std::string to = required(parsed, "to");
  const data::PackOptions how = {
      .samples = integer(parsed, "samples", 1, int64_t{1} << 31),
      .shard_bytes = integer(parsed, "shard-mib", 0, 1 << 20) << 20,
      .resize = integer(parsed, "resize", 0, 8192),
      .quality = static_cast<int>(integer(parsed, "quality", 1, 100)),
      .seed = static_cast<uint64_t>(integer(parsed, "seed", 0, INT64_MAX)),
      .threads = threads(parsed)};
  const double start = now_s();
  const auto images = data::open_image_folder(from);
  const auto done = data::pack(*images, to, how, [&](const data::PackProgress& progress) {
    log::live(fmt::format("{} of {} images in {} shards", format_count(progress.done),
                          format_count(progress.images), format_count(progress.shards)));
  });
  log::live("");
  if (parsed.count("json") != 0) {
    fmt::print("{}\n", json{{"images", done.done},
                            {"shards", done.shards},
                            {"kept_shards", done.kept_shards},
                            {"bytes", done.bytes},
                            {"seconds", now_s() - start}}
                           .dump());
  } else {
    fmt::print("{} images in {} shards of {}{}, {}\n", format_count(done.done),
               format_count(done.shards), format_bytes(done.bytes),
               done.kept_shards == 0 ? "" : fmt::format(", {} of them kept", done.kept_shards),
               format_duration(now_s() - start));
  }
  return 0;
}

/// A folder for each class where no shards are, else shards.
std::unique_ptr<data::EncodedImages> open_images(const std::string& path) {
  std::error_code code;
  const std::filesystem::directory_iterator entries(path, code);
  if (code) return data::open_shards(path, {}, {});
  for (const auto& entry : entries) {
    if (entry.path().extension() == ".tar") return data::open_shards(path, {}, {});
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
  fmt::print("{}\n", result.dump(-1, ' ', false, json::error_handler_t::replace));
}

void print_text(const data::Inspection& found) {
  const auto line = [](const char* what, const data::Spread& spread, auto format) {
    fmt::print("{:<8}{} to {}, median {}\n", what, format(spread.least), format(spread.greatest),
               format(spread.median));
  };
  fmt::print("{} images, {} in all, {} classes, {} broken\n", format_count(found.images),
             format_bytes(found.bytes), found.classes.size(), format_count(found.broken.size()));
  line("file", found.file_bytes, format_bytes);
  line("height", found.height, format_count);
  line("width", found.width, format_count);
  int64_t most = 1;
  for (const auto& entry : found.classes) most = std::max(most, entry.images);
  constexpr int64_t kBar = 40;
  for (const auto& [name, images] : found.classes) {
    fmt::print("{:<24} {:>10} {}\n", name, format_count(images),
               std::string(static_cast<size_t>(images * kBar / most), '#'));
  }
  for (const std::string& problem : found.broken) fmt::print("broken: {}\n", problem);
}

int inspect(int argc, char** argv) {
  cxxopts::Options options("trainer data inspect",
                           "Decodes all images of a folder or of shards: counts, sizes, classes, "
                           "and which are broken. Exit status 3 where some are.");
  options.add_options()("from",
                        "folder with a folder for each class, or shards as data.train.path names "
                        "them",
                        cxxopts::value<std::string>());
  add_common(options);
  const auto parsed = parse_options(options, argc, argv);
  if (parsed.count("help") != 0) {
    fmt::print("{}\n", options.help());
    return 0;
  }
  const auto images = open_images(required(parsed, "from"));
  const auto found = data::inspect(*images, threads(parsed), [&](int64_t done) {
    log::live(fmt::format("{} of {} images", format_count(done), format_count(images->size())));
  });
  log::live("");
  parsed.count("json") != 0 ? print_json(found) : print_text(found);
  return static_cast<int>(found.broken.empty() ? Exit::kDone : Exit::kData);
}

}  // namespace

int data_command(int argc, char** argv) {
  const std::string action = argc > 1 ? argv[1] : "";
  if (action == "pack") return pack(argc - 1, argv + 1);
  if (action == "inspect") return inspect(argc - 1, argv + 1);
  if (action == "--help" || action == "-h") {
    fmt::print("{}", kUsage);
    return 0;
  }
  throw Error(Exit::kRecipe, "trainer data: expected pack or inspect, found '{}'", action);
}

}  // namespace brim::cli
