#include "framework/data/shards/tar_writer.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "framework/base/error.h"
#include "framework/data/shards/tar.h"

namespace brim::data {
namespace {

constexpr size_t kNameBytes = 100;
constexpr size_t kPrefixBytes = 155;
constexpr int64_t kMaxOctalSize = 077777777777;  // 11 digits

/// A name as a ustar header holds it: "prefix/name".
struct SplitName {
  std::string_view prefix;
  std::string_view name;
};

/// Nullopt where it fits no ustar header: too long, or not ASCII.
std::optional<SplitName> split_name(std::string_view name) {
  if (std::ranges::any_of(name, [](char c) { return static_cast<unsigned char>(c) > 0x7e; })) {
    return {};
  }
  if (name.size() <= kNameBytes) return SplitName{"", name};
  const size_t slash = name.find('/', name.size() - kNameBytes - 1);
  if (slash == std::string_view::npos || slash == 0 || slash > kPrefixBytes ||
      slash + 1 == name.size()) {
    return {};
  }
  return SplitName{name.substr(0, slash), name.substr(slash + 1)};
}

/// "length key=value\n", where the length counts its own digits too.
std::string pax_record(const std::string& key, const std::string& value) {
  const size_t rest = key.size() + value.size() + 3;
  size_t length = rest;
  while (length != rest + std::to_string(length).size()) {
    length = rest + std::to_string(length).size();
  }
  return fmt::format("{} {}={}\n", length, key, value);
}

void put(std::vector<uint8_t>& block, size_t offset, std::string_view text) {
  std::ranges::copy(text, block.begin() + static_cast<std::ptrdiff_t>(offset));
}

}  // namespace

void TarWriter::write_member(char type, std::string_view prefix, std::string_view name,
                             std::span<const uint8_t> content) {
  const size_t padding = -content.size() % kTarBlock;
  buffer_.assign(kTarBlock, 0);
  const auto size = static_cast<int64_t>(content.size());
  put(buffer_, 0, name);
  put(buffer_, 100, "0000644");                                              // mode
  put(buffer_, 108, "0000000");                                              // user
  put(buffer_, 116, "0000000");                                              // group
  put(buffer_, 124, fmt::format("{:011o}", std::min(size, kMaxOctalSize)));  // else PAX says it
  put(buffer_, 136, "00000000000");                                          // time
  put(buffer_, 148, "        ");  // checksum, for the sum
  buffer_[156] = static_cast<uint8_t>(type);
  put(buffer_, 257, "ustar");
  put(buffer_, 263, "00");
  put(buffer_, 345, prefix);
  const int sum = std::accumulate(buffer_.begin(), buffer_.end(), 0);
  put(buffer_, 148, fmt::format("{:06o}", sum));
  buffer_[154] = 0;

  buffer_.insert(buffer_.end(), content.begin(), content.end());
  buffer_.resize(buffer_.size() + padding);
  sink_(std::as_bytes(std::span(buffer_)));
  size_ += static_cast<int64_t>(buffer_.size());
}

void TarWriter::add_pax(const std::vector<std::pair<std::string, std::string>>& records) {
  std::string text;
  for (const auto& [key, value] : records) text += pax_record(key, value);
  write_member('x', "", "PaxHeader", {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

int64_t TarWriter::add(const std::string& name, std::span<const uint8_t> content) {
  if (const std::string_view problem = unsafe_name(name); !problem.empty()) {
    throw Error(Exit::kBug, "a member's name '{}' {}", name, problem);
  }
  const auto split = split_name(name);
  const auto size = static_cast<int64_t>(content.size());
  std::vector<std::pair<std::string, std::string>> records;
  if (!split) records.emplace_back("path", name);
  if (size > kMaxOctalSize) records.emplace_back("size", std::to_string(size));
  if (!records.empty()) add_pax(records);
  const SplitName short_name =
      split.value_or(SplitName{"", std::string_view(name).substr(0, kNameBytes)});
  const int64_t offset = size_ + kTarBlock;
  write_member('0', short_name.prefix, short_name.name, content);
  return offset;
}

void TarWriter::finish() {
  buffer_.assign(2 * kTarBlock, 0);
  sink_(std::as_bytes(std::span(buffer_)));
  size_ += 2 * kTarBlock;
}

}  // namespace brim::data
