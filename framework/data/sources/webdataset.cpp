#include "framework/data/sources/webdataset.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/base/units.h"
#include "framework/data/shards/pack.h"
#include "framework/data/shards/shard_files.h"
#include "framework/data/shards/shard_list.h"
#include "framework/data/shards/tar.h"

namespace brim::data {
namespace {

class ShardedImages final : public EncodedImages {
 public:
  ShardedImages(const std::string& pattern, std::optional<int64_t> classes,
                const CacheOptions& cache)
      : files_(list_shards(pattern), cache) {
    int64_t size = 0;
    for (int64_t i = 0; i < files_.count(); ++i) {
      if (files_.index(i).size() == 0) {
        log::warning("{}: holds no samples", files_.name(i));
        continue;
      }
      size += files_.index(i).size();
      shards_.push_back(i);
      ends_.push_back(size);
    }
    if (size == 0) {
      throw Error(Exit::kData, "{}: expected samples, found none", shown_address(pattern));
    }
    warn_of_missing(pattern, size);
    classes_ = classes.value_or(greatest_label() + 1);
    if (greatest_label() >= classes_) refuse_label();
    class_names_ = files_.class_names();
    for (const std::string& name : class_names_) printable_names_.push_back(printable(name));
    if (std::ssize(class_names_) != classes_) class_names_ = numbered_classes(classes_);
  }

  int64_t size() const override { return ends_.back(); }
  std::vector<std::string> class_names() const override { return class_names_; }
  int64_t classes() const { return classes_; }
  /// As `trainer data pack` left them beside the shards; empty where they are not known.
  const std::vector<std::string>& printable_names() const { return printable_names_; }
  std::string name(int64_t index) const override {
    const auto [shard, sample] = locate(index);
    return fmt::format("{}: {}", files_.name(shard), printable(files_.index(shard).name(sample)));
  }
  int64_t label(int64_t index) const override { return at(index).label; }
  void check_files() const override {
    for (int64_t shard = 0, index = 0; shard < std::ssize(shards_); ++shard) {
      const ShardIndex& samples = files_.index(shards_[static_cast<size_t>(shard)]);
      for (const ShardSample& sample : samples.samples) {
        if (sample.bytes == 0) {
          throw Error(Exit::kData,
                      "{}: expected an image, found an empty file. Write the shard again without "
                      "it, or set data.on_error = \"skip\"",
                      name(index));
        }
        ++index;
      }
    }
  }
  std::span<const int64_t> shard_ends() const override { return ends_; }

  std::span<const uint8_t> bytes(int64_t index, std::vector<uint8_t>& buffer) const override {
    const ShardSample& sample = at(index);
    buffer.resize(sample.bytes);
    files_.open(locate(index).first)->read(static_cast<int64_t>(sample.offset), buffer);
    return buffer;
  }

 private:
  /// The shard of a sample and its number there.
  std::pair<int64_t, int64_t> locate(int64_t index) const {
    const auto end = std::ranges::upper_bound(ends_, index);
    const int64_t start = end == ends_.begin() ? 0 : end[-1];
    return {shards_[static_cast<size_t>(end - ends_.begin())], index - start};
  }

  const ShardSample& at(int64_t index) const {
    const auto [shard, sample] = locate(index);
    return files_.index(shard).samples[static_cast<size_t>(sample)];
  }

  /// A folder may hold a pack that was broken off.
  static void warn_of_missing(const std::string& pattern, int64_t size) {
    std::error_code code;
    if (is_url(pattern) || !std::filesystem::is_directory(pattern, code)) return;
    const auto packed = image_count_in(std::filesystem::path(pattern) / kPackDescription);
    if (!packed || *packed == size) return;
    log::warning(
        "{}: expected {} images by its {}, found {}: it was not packed to its end, or shards are "
        "missing; the same trainer data pack continues it",
        pattern, format_count(*packed), kPackDescription, format_count(size));
  }

  int64_t greatest_label() const {
    int64_t greatest = 0;
    for (const int64_t shard : shards_) {
      for (const ShardSample& sample : files_.index(shard).samples) {
        greatest = std::max<int64_t>(greatest, sample.label);
      }
    }
    return greatest;
  }

  [[noreturn]] void refuse_label() const {
    int64_t index = 0;
    while (label(index) < classes_) ++index;
    throw Error(Exit::kData, "{}: expected a label from 0 to {}, found {}", name(index),
                classes_ - 1, label(index));
  }

  mutable ShardFiles files_;     // may be used by several threads at once
  std::vector<int64_t> shards_;  // those with samples
  std::vector<int64_t> ends_;    // of each of them, in samples
  int64_t classes_ = 0;
  std::vector<std::string> class_names_, printable_names_;
};

/// Throws Error(kData) where evaluation shards have other classes than `expected`, those `of`, if
/// both are known: their labels would mean something else.
void require_classes(const ShardedImages& images, const std::vector<std::string>& expected,
                     const std::filesystem::path& path, const std::string& of) {
  const std::vector<std::string>& names = images.printable_names();
  if (names.empty() || expected.empty() || names == expected) return;
  const auto label = std::ranges::mismatch(names, expected).in1 - names.begin();
  const auto name_in = [&](const std::vector<std::string>& all) {
    return label < std::ssize(all) ? fmt::format("\"{}\"", all[static_cast<size_t>(label)])
                                   : "missing";
  };
  throw Error(Exit::kData,
              "{}: expected the classes {}: class {} is {} there and {} in these shards. Pack them "
              "of a folder that has the same class folders",
              shown_address(path.string()), of, label, name_in(expected), name_in(names));
}

struct TrainShards {
  std::filesystem::path& path;
  void fields(recipe::Fields& f) {
    f.value("path", path,
            "folder of *.tar, one tar, or a pattern such as shard-{000000..000127}.tar; the last "
            "two at http(s):// too",
            recipe::Need::kRequired);
  }
};

struct EvalShards {
  std::filesystem::path& path;
  void fields(recipe::Fields& f) {
    f.value("path", path, "the same for evaluation; not given: no evaluation");
  }
};

CacheOptions cache_options(const WebDatasetConfig& config) {
  return {config.cache_dir, config.cache_gib << 30};
}

}  // namespace

std::unique_ptr<EncodedImages> open_shards(const std::string& pattern,
                                           std::optional<int64_t> classes,
                                           const CacheOptions& cache) {
  return std::make_unique<ShardedImages>(pattern, classes, cache);
}

void WebDatasetConfig::fields(recipe::Fields& f) {
  TrainShards train_shards{train};
  f.section("train", train_shards, "the training set");
  EvalShards eval_shards{eval};
  f.section("eval", eval_shards, "the evaluation set");
  f.auto_or("classes", classes, "classes; auto: one more than the greatest training label",
            recipe::between(1, static_cast<double>(kMaxLabel + 1)));
  f.value("shard_cache", cache_dir,
          "folder that keeps shards from http(s) addresses; not given: brim/shards in "
          "$XDG_CACHE_HOME or ~/.cache");
  f.value(
      "shard_cache_gib", cache_gib,
      "what that folder may hold in GiB, the shards in use excepted; a shard larger than that is "
      "refused; 0: what leaves 1 GiB of the disk free, or 5 % of a small one",
      recipe::between(0, 1 << 20));
  options.fields(f);
}

std::unique_ptr<Dataset> WebDatasetConfig::open_train(const AugmentConfig& augment) const {
  options.check();
  auto images = std::make_unique<ShardedImages>(train.string(), classes, cache_options(*this));
  found_ = {train, images->classes(), images->printable_names()};
  return make_image_dataset(std::move(images), options, augment);
}

WebDatasetConfig::Found WebDatasetConfig::train_classes() const {
  if (found_ && found_->train == train) return *found_;
  if (classes) return {train, *classes, {}};
  const ShardedImages images(train.string(), {}, cache_options(*this));
  return {train, images.classes(), images.printable_names()};
}

std::unique_ptr<Dataset> WebDatasetConfig::open_eval() const {
  if (eval.empty()) return nullptr;
  const Found found = train_classes();
  auto images = std::make_unique<ShardedImages>(eval.string(), found.classes, cache_options(*this));
  require_classes(*images, found.names, eval, "of " + shown_address(train.string()));
  return make_image_dataset(std::move(images), options.for_evaluation(), {});
}

std::unique_ptr<Dataset> WebDatasetConfig::open_eval_for(
    const std::vector<std::string>& learned) const {
  if (eval.empty()) return nullptr;
  options.check();
  auto images =
      std::make_unique<ShardedImages>(eval.string(), std::ssize(learned), cache_options(*this));
  const bool is_numbered = learned == numbered_classes(std::ssize(learned));
  require_classes(*images, is_numbered ? std::vector<std::string>() : learned, eval,
                  "that the model has learned");
  return make_image_dataset(std::move(images), options.for_evaluation(), {});
}

}  // namespace brim::data
