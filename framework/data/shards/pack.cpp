#include "framework/data/shards/pack.h"

#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/log.h"
#include "framework/base/parallel.h"
#include "framework/base/random.h"
#include "framework/base/stop.h"
#include "framework/base/temporaries.h"
#include "framework/data/image/image.h"
#include "framework/data/image/jpeg_encode.h"
#include "framework/data/shards/shard_index.h"
#include "framework/data/shards/shard_list.h"
#include "framework/data/shards/tar_writer.h"

namespace brim::data {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kMaxDescriptionBytes = int64_t{1} << 30;
constexpr int64_t kChunkPerThread = 16;  // images that are in memory at a time

/// An image as it goes into a shard.
struct Packed {
  std::vector<uint8_t> bytes;
  std::string extension;
  int64_t label = 0;
};

/// "" for neither.
std::string extension_of(std::span<const uint8_t> bytes) {
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (start.starts_with("\xff\xd8\xff")) return "jpg";
  if (start.starts_with("\x89PNG\r\n\x1a\n")) return "png";
  return "";
}

/// `image` with its shorter side at `side` pixels.
Image shrink(const Image& image, int64_t side) {
  const int64_t shorter = std::min(image.height, image.width);
  const int64_t height = side * image.height / shorter;
  const int64_t width = side * image.width / shorter;
  Image result = {height, width, image.channels, {}};
  result.pixels.resize(static_cast<size_t>(height * width * image.channels));
  resize(view(image), {{0, 0, image.height, image.width}, height, width, {0, 0, height, width}},
         Filter::kBilinear, result.pixels);
  return result;
}

/// The digest of what a set holds: where its files are, and labels. Another set may have the same
/// names.
std::string digest_names(const EncodedImages& images) {
  std::string text;
  fs::path folder, real_folder;  // of the file before
  for (int64_t i = 0; i < images.size(); ++i) {
    const fs::path file = images.name(i);
    if (i == 0 || file.parent_path() != folder) {
      std::error_code code;
      folder = file.parent_path();
      real_folder = fs::canonical(folder, code);
      if (code) real_folder = folder;
    }
    text += fmt::format("{} {}\n", (real_folder / file.filename()).string(), images.label(i));
  }
  return digest(std::as_bytes(std::span(text)));
}

/// No object where it is missing or no JSON.
nlohmann::json read_description(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return nullptr;
  return nlohmann::json::parse(read_file(path, Exit::kData, kMaxDescriptionBytes), nullptr,
                               /*allow_exceptions=*/false);
}

class Packer {
 public:
  Packer(const EncodedImages& images, const fs::path& folder, const PackOptions& options,
         const std::function<void(const PackProgress&)>& report)
      : images_(images),
        folder_(folder),
        options_(options),
        report_(report),
        order_(options.seed, 0, images.size()) {
    progress_.images = images.size();
  }

  PackProgress run() {
    make_folder(folder_);
    check_description();
    while (progress_.done < images_.size()) {
      const fs::path path = shard_path(progress_.shards);
      if (!keep(path)) write(path);
      ++progress_.shards;
      report();
    }
    remove_further();
    return progress_;
  }

 private:
  /// What makes two packs the same, to the byte.
  std::string description() const {
    const nlohmann::json json = {{"format", 1},
                                 {"images", images_.size()},
                                 {"digest", digest_names(images_)},
                                 {"samples", options_.samples},
                                 {"shard_bytes", options_.shard_bytes},
                                 {"resize", options_.resize},
                                 {"quality", options_.quality},
                                 {"seed", options_.seed},
                                 {"classes", images_.class_names()}};
    return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }

  void check_description() const {
    const fs::path path = folder_ / kPackDescription;
    const std::string expected = description();
    std::error_code code;
    if (fs::exists(path, code)) {
      if (read_file(path, Exit::kData, kMaxDescriptionBytes) == expected) return;
      throw Error(Exit::kData,
                  "{}: its shards were packed of other images or with other options ({}); name "
                  "another folder or remove it",
                  folder_.string(), kPackDescription);
    }
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (is_shard(entry.path())) {
        throw Error(Exit::kData, "{}: expected no shards in a folder without {}, found {}",
                    folder_.string(), kPackDescription, entry.path().filename().string());
      }
    }
    write_file(path, expected);
  }

  fs::path shard_path(int64_t shard) const {
    return folder_ / fmt::format("shard-{:06}.tar", shard);
  }

  /// Shards of the same images when they were larger.
  void remove_further() const {
    for (int64_t shard = progress_.shards; fs::remove(shard_path(shard)); ++shard) {
      fs::remove(index_path(shard_path(shard)));
    }
  }

  void report() const {
    if (report_) report_(progress_);
  }

  std::string key(int64_t position) const { return fmt::format("{:08}", position); }

  /// When an image's file was last written, renamed or replaced; 0 where its name is none of a
  /// file.
  int64_t changed_ns(int64_t image) const {
    struct stat info {};
    if (::stat(images_.name(image).c_str(), &info) != 0) return 0;
    return info.st_ctim.tv_sec * 1'000'000'000 + info.st_ctim.tv_nsec;
  }

  /// True where the shard is there, whole, with the samples that belong there, and none of their
  /// images has changed since.
  bool keep(const fs::path& path) {
    std::error_code code;
    if (!fs::exists(path, code)) return false;
    ShardIndex index;
    try {
      index = open_index(path);
    } catch (const Error& error) {
      log::warning("{}; written again", error.what());
    }
    if (index.size() == 0 || index.size() > images_.size() - progress_.done) return false;
    for (int64_t i = 0; i < index.size(); ++i) {
      const int64_t position = progress_.done + i;
      if (!index.name(i).starts_with(key(position) + ".") ||
          index.samples[static_cast<size_t>(i)].label != images_.label(order_(position)) ||
          changed_ns(order_(position)) > index.shard_modified_ns) {
        return false;
      }
    }
    progress_.done += index.size();
    progress_.bytes += index.shard_bytes;
    ++progress_.kept_shards;
    return true;
  }

  /// Writes the shard with the samples from progress_.done on.
  void write(const fs::path& path) {
    if (progress_.shards == progress_.kept_shards) remove_temporaries(path);  // of a killed pack
    AtomicFile file(path);
    TarWriter writer([&](std::span<const std::byte> bytes) { file.write(bytes); });
    ShardIndex index;
    const auto is_full = [&] {
      return index.size() == options_.samples || progress_.done == images_.size() ||
             (options_.shard_bytes != 0 && writer.size() >= options_.shard_bytes);
    };
    while (!is_full()) {
      for (const Packed& packed : encode_chunk(options_.samples - index.size())) {
        add(packed, writer, index);
        if (is_full()) break;
      }
      report();
    }
    writer.finish();
    file.commit();
    const FileBytes written(path);
    index.shard_bytes = written.size();
    index.shard_modified_ns = written.modified_ns();
    store_index(path, index);
    progress_.bytes += index.shard_bytes;
  }

  void add(const Packed& packed, TarWriter& writer, ShardIndex& index) {
    const std::string name = key(progress_.done);
    const std::string label = std::to_string(packed.label);
    const std::string image_name = name + "." + packed.extension;
    const int64_t offset = writer.add(image_name, packed.bytes);
    writer.add(name + ".cls", {reinterpret_cast<const uint8_t*>(label.data()), label.size()});
    index.samples.push_back({static_cast<uint64_t>(offset),
                             static_cast<uint32_t>(packed.bytes.size()),
                             static_cast<uint32_t>(packed.label)});
    index.names += image_name;
    index.name_ends.push_back(static_cast<uint32_t>(index.names.size()));
    ++progress_.done;
  }

  /// The next images, `most` at most.
  std::vector<Packed> encode_chunk(int64_t most) const {
    const int64_t count =
        std::min({most, images_.size() - progress_.done, kChunkPerThread * options_.threads});
    std::vector<Packed> chunk(static_cast<size_t>(count));
    parallel_for(count, options_.threads, [&](int64_t i) {
      if (stop_requested()) {  // before each: a large image takes a second
        throw Error(Exit::kStopped, "stopped; the same command continues with shard {}",
                    progress_.shards);
      }
      chunk[static_cast<size_t>(i)] = encode(order_(progress_.done + i));
    });
    return chunk;
  }

  Packed encode(int64_t image) const {
    thread_local std::vector<uint8_t> buffer;
    const auto bytes = images_.bytes(image, buffer);
    Packed packed = {{}, extension_of(bytes), images_.label(image)};
    if (packed.extension.empty()) {
      throw Error(Exit::kData,
                  "{}: expected a JPEG or PNG image; trainer data inspect lists all such files",
                  images_.name(image));
    }
    if (options_.resize != 0) {
      const Image decoded = decode_image(bytes, images_.name(image));
      if (std::min(decoded.height, decoded.width) > options_.resize) {
        packed.bytes =
            encode_jpeg(shrink(decoded, options_.resize), options_.quality, images_.name(image));
        packed.extension = "jpg";
        return packed;
      }
    }
    packed.bytes.assign(bytes.begin(), bytes.end());
    return packed;
  }

  const EncodedImages& images_;
  const fs::path& folder_;
  const PackOptions& options_;
  const std::function<void(const PackProgress&)>& report_;
  KeyedPermutation order_;
  PackProgress progress_;
};

}  // namespace

PackProgress pack(const EncodedImages& images, const fs::path& folder, const PackOptions& options,
                  const std::function<void(const PackProgress&)>& report) {
  return Packer(images, folder, options, report).run();
}

std::optional<int64_t> image_count_in(const fs::path& path) {
  return integer_at(read_description(path), "images");
}

std::vector<std::string> class_names_in(const fs::path& path) {
  const auto json = read_description(path);
  if (!json.is_object() || !json.contains("classes") || !json["classes"].is_array()) return {};
  std::vector<std::string> names;
  for (const auto& name : json["classes"]) {
    if (!name.is_string()) return {};
    names.push_back(name.get<std::string>());
  }
  return names;
}

}  // namespace brim::data
