#include "framework/data/sources/cifar.h"

#include <algorithm>
#include <array>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/log.h"

namespace brim::data {
namespace {

namespace fs = std::filesystem;

constexpr ImageShape kShape = {32, 32, 3};
constexpr size_t kPlane = kShape.height * kShape.width;
constexpr int64_t kMaxNamesBytes = 1 << 16;
constexpr const char* kWhereFrom =
    "the binary versions are cifar-10-binary.tar.gz and cifar-100-binary.tar.gz of "
    "https://www.cs.toronto.edu/~kriz/cifar.html";
constexpr std::array<std::string_view, 2> kLabelWords = {"fine", "coarse"};

class CifarDataset final : public ImageSamples {
 public:
  CifarDataset(std::vector<std::unique_ptr<ByteSource>> files, const CifarFormat& format,
               const AugmentConfig& augment)
      : files_(std::move(files)), format_(format), augment_(augment) {
    for (const auto& file : files_) read_labels(*file);
  }

  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  ImageShape shape() const override { return kShape; }
  int64_t classes() const override { return static_cast<int64_t>(format_.class_names.size()); }
  std::vector<std::string> class_names() const override { return format_.class_names; }
  std::string name(int64_t index) const override {
    const auto [file, record] = find(index);
    return record_name(*file, record);
  }
  int64_t label(int64_t index) const override { return labels_[static_cast<size_t>(index)]; }

  int64_t read(int64_t index, RandomStream* random, std::span<uint8_t> pixels) const override {
    std::array<uint8_t, 3 * kPlane> planes;
    std::array<uint8_t, 3 * kPlane> image;
    const auto [file, record] = find(index);
    file->read(record * record_bytes() + label_bytes(), planes);
    for (size_t i = 0; i < kPlane; ++i) {
      for (size_t c = 0; c < 3; ++c) image[3 * i + c] = planes[c * kPlane + i];
    }
    read_pixels(image.data(), kShape, augment_, random, pixels);
    return label(index);
  }

 private:
  int64_t label_bytes() const { return format_.has_two_labels ? 2 : 1; }
  int64_t record_bytes() const { return label_bytes() + kShape.bytes(); }
  static std::string record_name(const ByteSource& file, int64_t record) {
    return fmt::format("{}[{}]", file.name(), record);
  }
  /// The file of a sample, and its record there.
  std::pair<const ByteSource*, int64_t> find(int64_t index) const {
    const auto file = std::ranges::upper_bound(ends_, index) - ends_.begin();
    const int64_t first = file == 0 ? 0 : ends_[static_cast<size_t>(file - 1)];
    return {files_[static_cast<size_t>(file)].get(), index - first};
  }

  void read_labels(const ByteSource& file) {
    const int64_t records = file.size() / record_bytes();
    if (records == 0 || file.size() % record_bytes() != 0) {
      throw Error(Exit::kData,
                  "{}: expected CIFAR-{} records of {} bytes, found {} bytes: {} records and {} "
                  "bytes",
                  file.name(), format_.has_two_labels ? 100 : 10, record_bytes(), file.size(),
                  records, file.size() % record_bytes());
    }
    const bool second = format_.has_two_labels && format_.labels == CifarLabels::kFine;
    for (int64_t record = 0; record < records; ++record) {
      uint8_t label = 0;
      file.read(record * record_bytes() + (second ? 1 : 0), {&label, 1});
      if (label >= classes()) {
        throw Error(Exit::kData, "{}: expected a label from 0 to {}, found {}",
                    record_name(file, record), classes() - 1, label);
      }
      labels_.push_back(label);
    }
    ends_.push_back(size());
  }

  std::vector<std::unique_ptr<ByteSource>> files_;
  CifarFormat format_;
  AugmentConfig augment_;
  std::vector<uint8_t> labels_;
  std::vector<int64_t> ends_;  // by file: the samples up to and including it
};

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

constexpr size_t kBatches = 5;  // of CIFAR-10

/// data_batch_1.bin, data_batch_2.bin, … as far as there are any.
std::vector<fs::path> batch_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (int number = 1;; ++number) {
    fs::path file = folder / fmt::format("data_batch_{}.bin", number);
    if (!is_there(file)) break;
    files.push_back(std::move(file));
  }
  // Fewer, without a gap, are a small set of one's own.
  for (size_t number = files.size() + 2; !files.empty() && number <= kBatches; ++number) {
    if (!is_there(folder / fmt::format("data_batch_{}.bin", number))) continue;
    throw Error(Exit::kData, "{}: expected data_batch_{}.bin beside data_batch_{}.bin",
                folder.string(), files.size() + 1, number);
  }
  return files;
}

/// Says what a folder without CIFAR files is, as far as that can be told.
[[noreturn]] void refuse(const fs::path& folder) {
  for (const char* inside : {"cifar-10-batches-bin", "cifar-100-binary"}) {
    if (is_there(folder / inside)) {
      throw Error(Exit::kData,
                  "{}: expected CIFAR's files, found the folder {}: set data.path to it",
                  folder.string(), inside);
    }
  }
  if (is_there(folder / "data_batch_1") || is_there(folder / "train")) {
    throw Error(Exit::kData,
                "{}: holds the Python version of CIFAR, whose pickled files can run any code when "
                "they are read; download the binary version: {}",
                folder.string(), kWhereFrom);
  }
  throw Error(Exit::kData, "{}: expected data_batch_1.bin (CIFAR-10) or train.bin (CIFAR-100); {}",
              folder.string(), kWhereFrom);
}

/// Lines of a file of names; numbers where there is no such file.
std::vector<std::string> read_names(const fs::path& file, int64_t classes) {
  if (!is_there(file)) return numbered_classes(classes);
  const std::string content = read_file(file, Exit::kData, kMaxNamesBytes);
  std::vector<std::string> names;
  for (size_t start = 0; start < content.size();) {
    const size_t end = std::min(content.find('\n', start), content.size());
    std::string name = content.substr(start, end - start);
    while (!name.empty() && (name.back() == '\r' || name.back() == ' ')) name.pop_back();
    if (!name.empty()) names.push_back(std::move(name));
    start = end + 1;
  }
  if (static_cast<int64_t>(names.size()) != classes) {
    throw Error(Exit::kData, "{}: expected {} class names, one a line, found {}", file.string(),
                classes, names.size());
  }
  return names;
}

/// One version of CIFAR as it lies in a folder.
struct Version {
  CifarFormat format;
  std::vector<fs::path> train;
  fs::path test;
};

Version find_version(const fs::path& folder, CifarLabels labels) {
  std::vector<fs::path> batches = batch_files(folder);
  const fs::path test_10 = folder / "test_batch.bin", test_100 = folder / "test.bin";
  const bool has_10 = !batches.empty() || is_there(test_10);
  const bool has_100 = is_there(folder / "train.bin") || is_there(test_100);
  if (!has_10 && !has_100) refuse(folder);
  if (has_10 && has_100) {
    throw Error(Exit::kData, "{}: expected CIFAR-10 or CIFAR-100, found files of both",
                folder.string());
  }
  const bool coarse = labels == CifarLabels::kCoarse;
  if (!has_100) {
    if (coarse) {
      throw Error(Exit::kRecipe,
                  "[data] labels = \"coarse\": {} is CIFAR-10, which has no such "
                  "labels",
                  folder.string());
    }
    return {
        {false, labels, read_names(folder / "batches.meta.txt", 10)}, std::move(batches), test_10};
  }
  auto names = coarse ? read_names(folder / "coarse_label_names.txt", 20)
                      : read_names(folder / "fine_label_names.txt", 100);
  return {{true, labels, std::move(names)}, {folder / "train.bin"}, test_100};
}

std::unique_ptr<Dataset> open_files(const std::vector<fs::path>& paths, const CifarFormat& format,
                                    const AugmentConfig& augment) {
  std::vector<std::unique_ptr<ByteSource>> files;
  for (const fs::path& path : paths) files.push_back(std::make_unique<FileBytes>(path));
  return open_cifar(std::move(files), format, augment);
}

}  // namespace

std::unique_ptr<ImageSamples> open_cifar(std::vector<std::unique_ptr<ByteSource>> files,
                                         const CifarFormat& format, const AugmentConfig& augment) {
  return std::make_unique<CifarDataset>(std::move(files), format, augment);
}

void CifarConfig::fields(recipe::Fields& f) {
  f.value("path", path, "folder with the binary version's files", recipe::Need::kRequired);
  f.choice("labels", labels, kLabelWords, "CIFAR-100's 100 fine or 20 coarse classes");
}

std::unique_ptr<Dataset> CifarConfig::open_train(const AugmentConfig& augment) const {
  const Version version = find_version(path, labels);
  if (version.train.empty()) {
    throw Error(Exit::kData, "{}: expected data_batch_1.bin, found test_batch.bin alone; {}",
                path.string(), kWhereFrom);
  }
  if (!version.format.has_two_labels && version.train.size() < kBatches) {
    log::warning("{}: {} of CIFAR-10's {} files of training samples are there; training on those",
                 path.string(), version.train.size(), kBatches);
  }
  return open_files(version.train, version.format, augment);
}

std::unique_ptr<Dataset> CifarConfig::open_eval() const {
  const Version version = find_version(path, labels);
  if (!is_there(version.test)) {
    log::warning("{} is missing: there is no evaluation data", version.test.string());
    return nullptr;
  }
  return open_files({version.test}, version.format, {});
}

}  // namespace brim::data
