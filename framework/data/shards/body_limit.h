// How much of a download goes to the disk: no more than its cap, no more than the server declared,
// and never the last of what is free. A body can be without end.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "framework/base/error.h"

namespace brim::data {

/// Of a file system, for this user.
struct DiskSpace {
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
};

/// Where the open file lies. 128 GiB for file systems that don't say.
DiskSpace disk_space(int fd);

/// What downloads leave free: a twentieth of the file system, at most 1 GiB.
int64_t reserve_bytes(const DiskSpace& disk);

/// Belongs to one file.
class BodyLimit {
 public:
  using AskDisk = std::function<DiskSpace(int fd)>;

  /// Why a body is not taken, and what to do.
  struct Refusal {
    Exit status;
    std::string reason;
  };

  /// `max_bytes`: the cap; 0: none, then a body of undeclared length may have half of what is free
  /// when it begins. `ask` is asked of `fd`, to which the body is written.
  BodyLimit(int64_t max_bytes, AskDisk ask, int fd)
      : ask_(std::move(ask)), fd_(fd), max_bytes_(max_bytes) {}

  /// To be called when a body begins, of `declared_bytes`; below 0: the server doesn't say.
  std::optional<Refusal> begin(int64_t declared_bytes);
  /// To be called before `bytes` of it in all are written.
  std::optional<Refusal> grow(int64_t bytes);

 private:
  AskDisk ask_;
  int fd_;
  int64_t max_bytes_;
  // Of the body.
  int64_t declared_bytes_ = -1;
  int64_t undeclared_cap_ = 0;  // without max_bytes_
  int64_t asked_at_bytes_ = 0;
  int64_t ask_every_bytes_ = 0;
};

}  // namespace brim::data
