// trainer data pack: images in a folder for each class to tar shards.

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/base/units.h"
#include "framework/cli/commands.h"
#include "framework/cli/options.h"
#include "framework/data/shards/pack.h"
#include "framework/data/sources/image_folder.h"

namespace brim::cli {

using nlohmann::json;

namespace {

/// A folder for the shards within the images' own would be one of their classes.
void require_outside(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code code;
  const auto images = std::filesystem::weakly_canonical(from, code);
  const auto shards = std::filesystem::weakly_canonical(to, code).lexically_relative(images);
  if (code || shards.empty() || *shards.begin() == "..") return;
  throw UsageError(
      "{}: expected a folder for the shards that is not within {}, whose folders are classes",
      to.string(), from.string());
}

int pack_data(const cxxopts::ParseResult& parsed, std::span<char* const> /*argv*/) {
  const std::string from = required_option(parsed, "data pack", "from");
  const std::string to = required_option(parsed, "data pack", "to");
  const data::PackOptions how = {
      .samples = integer_option(parsed, "samples", 1, int64_t{1} << 31),
      .shard_bytes = integer_option(parsed, "shard-mib", 0, 1 << 20) << 20,
      .resize = integer_option(parsed, "resize", 0, 8192),
      .quality = static_cast<int>(integer_option(parsed, "quality", 1, 100)),
      .seed = static_cast<uint64_t>(integer_option(parsed, "seed", 0, INT64_MAX)),
      .threads = threads_option(parsed)};
  require_outside(from, to);
  const double start = now_s();
  const auto images = data::open_image_folder(from);
  const auto done = data::pack(*images, to, how, [&](const data::PackProgress& progress) {
    if (!log::is_terminal()) return;
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
    fmt::print("{} in {}{}, {} together, {}\n", format_plural(done.done, "image"),
               format_plural(done.shards, "shard"),
               done.kept_shards == 0 ? "" : fmt::format(" ({} of them kept)", done.kept_shards),
               format_bytes(done.bytes), format_duration(now_s() - start));
  }
  return 0;
}

}  // namespace

Command data_pack_command() {
  return {.name = "data pack",
          .arguments = "FROM TO",
          .summary = "image folders to tar shards",
          .details =
              "Packs images in a folder for each class into tar shards, as WebDataset reads "
              "them.",
          .add_options =
              [](cxxopts::Options& options) {
                using cxxopts::value;
                options.add_options()("from", "folder with a folder for each class",
                                      value<std::string>(), "FROM")(
                    "to", "folder for the shards; whole ones that are there are kept",
                    value<std::string>(),
                    "TO")("samples", "images of a shard", value<int64_t>()->default_value("1000"),
                          "N")("shard-mib", "close a shard that holds as many MiB; 0: no cap",
                               value<int64_t>()->default_value("0"), "N")(
                    "resize", "shorter side in pixels of images where it is longer; 0: as they are",
                    value<int64_t>()->default_value("0"),
                    "N")("quality", "of JPEG images that were resized",
                         value<int64_t>()->default_value("95"),
                         "N")("seed", "of the order", value<int64_t>()->default_value("0"), "N");
                add_image_work_options(options);
              },
          .positional = {"from", "to"},
          .examples = {{"trainer data pack flowers/train shards --resize 256",
                        "shards of images whose shorter side is at most 256 pixels"}},
          .run = pack_data};
}

}  // namespace brim::cli
