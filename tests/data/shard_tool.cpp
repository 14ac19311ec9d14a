// What data_core does with shards, for test_shards.py:
//   shard_tool tar FILE                    "size digest name" of each regular file
//   shard_tool write FILE                  a tar of what stdin lists: lines "name content"
//   shard_tool list PATTERN CACHE BUDGET   "label digest name" of each sample, in order
//   shard_tool train FOLDER                "label digest" of each pixel image, through the recipe's
//   source shard_tool download URL FILE TRIES     one file
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>

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

void list_samples(const char* pattern, const char* cache, const char* budget) {
  const auto images = open_shards(pattern, {}, {cache, std::atoll(budget)});
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
  if (command == "list") list_samples(words[2], words[3], words[4]);
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
