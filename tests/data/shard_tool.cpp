// What data_core does with shards, for test_shards.py:
//   shard_tool tar FILE                    "size digest name" of each regular file
//   shard_tool write FILE                  a tar of what stdin lists: lines "name content"
//   shard_tool list PATTERN CACHE BUDGET [FREE]   "label digest name" of each sample, in order;
//                                          FREE bytes are free on a disk of twice as much, less
//                                          what is in the folder CACHE
//   shard_tool reopen URL CACHE BUDGET TIMES   what opening the shard says each time
//   shard_tool classes PATTERN CACHE       the names of the classes
//   shard_tool train FOLDER                "label digest" of each pixel image, through the recipe's
//                                          source
//   shard_tool download URL FILE TRIES     one file
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>
#include <system_error>

#include "framework/base/files.h"
#include "framework/data/shards/http.h"
#include "framework/data/shards/tar.h"
#include "framework/data/shards/tar_writer.h"
#include "framework/data/sources/image_folder.h"
#include "framework/data/sources/webdataset.h"

namespace brim::data {
namespace {

std::string digest_of(std::span<const uint8_t> bytes) { return digest(std::as_bytes(bytes)); }

void list_tar(const char* path) {
  const FileBytes file(path);
  TarReader reader(file);
  while (const auto member = reader.next()) {
    fmt::print("{} {} {}\n", member->size, digest_of(reader.bytes(member->offset, member->size)),
               member->name);
  }
}

void write_tar(const char* path) {
  AtomicFile file(path);
  TarWriter writer([&](std::span<const std::byte> bytes) { file.write(bytes); });
  for (std::string line; std::getline(std::cin, line);) {
    const size_t space = line.find(' ');
    const std::string content = line.substr(space + 1);
    writer.add(line.substr(0, space),
               {reinterpret_cast<const uint8_t*>(content.data()), content.size()});
  }
  writer.finish();
  file.commit();
}

CacheOptions small_disk(const std::string& folder, const char* budget, const char* free) {
  CacheOptions options = {folder, std::atoll(budget)};
  if (free == nullptr) return options;
  options.http.disk = [folder, size = std::atoll(free)](int) {
    int64_t left = size;
    std::error_code gone;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const auto bytes = std::filesystem::file_size(entry.path(), gone);
      if (!gone) left -= static_cast<int64_t>(bytes);
    }
    return DiskSpace{.free_bytes = left, .total_bytes = 2 * size};
  };
  return options;
}

void reopen(const char* url, const char* cache, const char* budget, const char* times) {
  ShardCache shards({cache, std::atoll(budget)});
  for (int i = 0; i < std::atoi(times); ++i) {
    try {
      fmt::print("{} bytes\n", shards.open(url)->size());
    } catch (const Error& error) {
      fmt::print("{}: {}\n", error.kind(), error.what());
    }
  }
}

void list_classes(const char* pattern, const char* cache) {
  for (const std::string& name : open_shards(pattern, {}, {cache})->class_names()) {
    fmt::print("{}\n", name);
  }
}

void list_samples(const char* pattern, const CacheOptions& cache) {
  const auto images = open_shards(pattern, {}, cache);
  std::vector<uint8_t> buffer;
  for (int64_t i = 0; i < images->size(); ++i) {
    fmt::print("{} {} {}\n", images->label(i), digest_of(images->bytes(i, buffer)),
               images->name(i));
  }
}

template <class Config>
void list_pixels(const char* folder) {
  Config config;
  config.train = folder;
  const auto dataset = config.open_train({});
  std::vector<uint8_t> pixels(static_cast<size_t>(dataset->sample_bytes()));
  for (int64_t i = 0; i < dataset->size(); ++i) {
    const int64_t label = dataset->read(i, nullptr, pixels);
    fmt::print("{} {}\n", label, digest_of(pixels));
  }
}

void fetch(const char* url, const char* path, const char* tries) {
  const int fd = ::open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  const HttpLimits limits = {
      .connect_s = 5, .stall_s = 2, .tries = std::atoi(tries), .wait_s = 0.01};
  fmt::print("{}\n", download(url, fd, path, limits) == Download::kDone ? "done" : "missing");
  ::close(fd);
}

int body(int count, char** words) {
  const std::string_view command = count > 2 ? words[1] : "";
  if (command == "tar") list_tar(words[2]);
  if (command == "write") write_tar(words[2]);
  if (command == "list") {
    list_samples(words[2], small_disk(words[3], words[4], count > 5 ? words[5] : nullptr));
  }
  if (command == "reopen") reopen(words[2], words[3], words[4], words[5]);
  if (command == "classes") list_classes(words[2], words[3]);
  if (command == "pixels" && words[2] == std::string_view("image_folder")) {
    list_pixels<ImageFolderConfig>(words[3]);
  } else if (command == "pixels") {
    list_pixels<WebDatasetConfig>(words[3]);
  }
  if (command == "download") fetch(words[2], words[3], words[4]);
  return 0;
}

}  // namespace
}  // namespace brim::data

int main(int count, char** words) { return brim::run_program(brim::data::body, count, words); }
