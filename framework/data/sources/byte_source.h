// Bytes that are read at positions: a file, or memory. Files are read by pread and never mapped, so
// that one which is cut short under its reader is an error and not a signal.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace brim::data {

/// Const members may be called from several threads at once.
class ByteSource {
 public:
  explicit ByteSource(std::string name) : name_(std::move(name)) {}
  virtual ~ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  /// What errors call it.
  const std::string& name() const { return name_; }
  virtual int64_t size() const = 0;
  /// Fills `out` from `offset`. Throws Error(kData) where that reaches beyond the end.
  virtual void read(int64_t offset, std::span<uint8_t> out) const = 0;

 protected:
  [[noreturn]] void throw_truncated(int64_t offset, size_t wanted, int64_t found_bytes) const;

 private:
  std::string name_;
};

/// Memory owned by someone else.
class MemoryBytes final : public ByteSource {
 public:
  MemoryBytes(std::span<const uint8_t> bytes, std::string name)
      : ByteSource(std::move(name)), bytes_(bytes) {}

  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }
  void read(int64_t offset, std::span<uint8_t> out) const override;

 private:
  std::span<const uint8_t> bytes_;
};

/// An open file.
class FileBytes final : public ByteSource {
 public:
  /// Throws Error(kData) where it is missing or no regular file. `name`: what errors call it;
  /// "": the path.
  explicit FileBytes(const std::filesystem::path& path, std::string name = "");
  ~FileBytes() override;

  /// As it was when the file was opened.
  int64_t size() const override { return size_; }
  int64_t modified_ns() const { return modified_ns_; }
  void read(int64_t offset, std::span<uint8_t> out) const override;
  /// Tells others, by a shared lock (flock), that the file is in use as long as it is open.
  void hold();

 private:
  int fd_ = -1;
  int64_t size_ = 0;
  int64_t modified_ns_ = 0;
};

}  // namespace brim::data
