// What the checkpoint tests share: a folder of their own, files, and errors as values.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "framework/base/error.h"

namespace brim::checkpoint {

/// A folder that is removed with everything in it at the end of the test.
class TestFolder {
 public:
  TestFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "brim-test-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// Changes one bit of a file.
inline void flip_bit(const std::filesystem::path& path, size_t offset) {
  std::string content = read_text(path);
  content.at(offset) = static_cast<char>(content.at(offset) ^ 1);
  write_text(path, content);
}

/// The brim::Error that `body` throws, as (status, message); a failed expectation if it throws
/// none.
template <class Body>
std::pair<Exit, std::string> error_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return {error.status(), error.what()};
  }
  ADD_FAILURE() << "expected an error";
  return {Exit::kDone, ""};
}

}  // namespace brim::checkpoint
