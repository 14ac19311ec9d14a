// Downloads over http and https by libcurl: retried, resumed after a dropped connection, and whole
// or an error. Where files go and how long they stay is shard_cache.h's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "framework/base/error.h"
#include "framework/data/shards/body_limit.h"

namespace brim::data {

struct HttpLimits {
  double connect_s = 20;  // to have a connection
  double stall_s = 30;    // with less than 1 KiB/s
  int tries = 8;  // that bring less than 1 MiB each, counted again after one that brings more;
                  // and that start over, never counted again
  double wait_s = 0.2;    // before the second try; doubled before each further one, up to 30 s
  int64_t max_bytes = 0;  // of the object; 0: what BodyLimit leaves it of the disk
  BodyLimit::AskDisk disk = disk_space;
};

/// An object that is larger than it may be. Asked for again, it is no smaller.
class TooLargeError : public Error {
 public:
  using Error::Error;
};

enum class Download { kDone, kMissing };

/// Writes what is at `url` to the file of descriptor `fd` from its start. kMissing: the server says
/// that it has none for us (403, 404, 410; gateways also say 400, 405 and 409).
/// A dropped connection is resumed where it broke if the server says that the object is still the
/// same (ETag or Last-Modified), else from the start. Throws Error(kData) for other answers and
/// where all tries fail, Error(kResource) where the file can't be written, TooLargeError of either
/// kind, at the first try, for what BodyLimit refuses; all name the address without its secrets.
/// `path` is the file's, for errors. Throws Error(kStopped) within about a second where a stop is
/// asked for.
Download download(const std::string& url, int fd, const std::filesystem::path& path,
                  const HttpLimits& limits = {});

}  // namespace brim::data
