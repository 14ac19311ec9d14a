// trainer data pack: images in a folder for each class to tar shards.

#include <fmt/format.h>

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

int data_pack(int argc, char** argv) {
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
  add_image_work_options(options);
  const auto parsed = parse_options(options, argc, argv);
  if (parsed.count("help") != 0) {
    fmt::print("{}\n", options.help());
    return 0;
  }
  const std::string from = required_option(parsed, "from");
  const std::string to = required_option(parsed, "to");
  const data::PackOptions how = {
      .samples = integer_option(parsed, "samples", 1, int64_t{1} << 31),
      .shard_bytes = integer_option(parsed, "shard-mib", 0, 1 << 20) << 20,
      .resize = integer_option(parsed, "resize", 0, 8192),
      .quality = static_cast<int>(integer_option(parsed, "quality", 1, 100)),
      .seed = static_cast<uint64_t>(integer_option(parsed, "seed", 0, INT64_MAX)),
      .threads = threads_option(parsed)};
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
    fmt::print("{} image{} in {} shard{} of {}{}, {}\n", format_count(done.done),
               done.done == 1 ? "" : "s", format_count(done.shards), done.shards == 1 ? "" : "s",
               format_bytes(done.bytes),
               done.kept_shards == 0 ? "" : fmt::format(", {} of them kept", done.kept_shards),
               format_duration(now_s() - start));
  }
  return 0;
}

}  // namespace brim::cli
