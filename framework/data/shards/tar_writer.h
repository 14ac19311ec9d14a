// Writes tar archives of regular files: ustar, with a PAX header where a name or a size doesn't fit
// it. Owner, mode and time are the same for all members, so that equal samples make equal archives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace brim::data {

class TarWriter {
 public:
  /// Takes an archive's next bytes; what it throws comes out of add() and finish().
  using Sink = std::function<void(std::span<const std::byte>)>;
  explicit TarWriter(Sink sink) : sink_(std::move(sink)) {}

  /// Returns where the content lies in the archive. `name` is relative, without "..".
  int64_t add(const std::string& name, std::span<const uint8_t> content);
  /// The end of the archive; nothing is added after it.
  void finish();

  /// Bytes so far.
  int64_t size() const { return size_; }

 private:
  void add_pax(const std::vector<std::pair<std::string, std::string>>& records);
  void write_member(char type, std::string_view prefix, std::string_view name,
                    std::span<const uint8_t> content);

  Sink sink_;
  int64_t size_ = 0;
  std::vector<uint8_t> buffer_;
};

}  // namespace brim::data
