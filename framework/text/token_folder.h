// The folder that tokenize() writes: made under another name, renamed when all is in it.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "framework/base/files.h"
#include "framework/text/tokenize.h"

namespace brim::text {

/// One file of ids. It appears by commit().
class TokenWriter {
 public:
  TokenWriter(const std::filesystem::path& path, bool is_uint16)
      : path_(path), is_uint16_(is_uint16), file_(path) {}

  void write(std::span<const int32_t> ids, int64_t documents, int64_t text_bytes);
  void commit() { file_.commit(); }
  const TokenFileCounts& counts() const { return counts_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  bool is_uint16_;
  AtomicFile file_;
  TokenFileCounts counts_;
  std::vector<uint16_t> narrow_;
};

class TokenFolder {
 public:
  /// Removes what killed processes left of writing it. Throws Error(kRecipe) where `path` is there
  /// and not an empty folder.
  explicit TokenFolder(std::filesystem::path path);
  ~TokenFolder();
  TokenFolder(const TokenFolder&) = delete;
  TokenFolder& operator=(const TokenFolder&) = delete;

  /// Where files are written until publish().
  const std::filesystem::path& temporary() const { return temporary_; }
  void publish();

 private:
  void make_way();

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  std::optional<FileLock> lock_;  // of the temporary folder
};

}  // namespace brim::text
