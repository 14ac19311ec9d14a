// A file of text as a stream of bytes; gzip is taken apart where the file is gzip.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace brim::text {

class TextFile {
 public:
  /// Throws Error(kData) where there is no such file or it is no regular one.
  explicit TextFile(const std::filesystem::path& path);
  ~TextFile();
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;

  /// Appends the next bytes, `most` at most; false where none are left. Throws Error(kData) for
  /// gzip that is damaged or cut.
  bool read(std::string& text, size_t most);

 private:
  std::string name_;
  void* file_;  // a gzFile
};

/// The .txt and .txt.gz files in a folder and all below it, in files_below()'s order. Throws
/// Error(kData) where a folder can't be read or there is none.
std::vector<std::string> text_files_below(const std::string& folder);

}  // namespace brim::text
