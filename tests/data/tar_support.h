// Archives made block by block, so that tests can also make those that no program would write.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "framework/data/sources/byte_source.h"

namespace brim::data {

/// A header's fields as they go into the archive.
struct RawHeader {
  std::string name = "a.jpg";
  std::string size = "00000000000";
  char type = '0';
  std::string prefix = "";
  std::string magic = std::string(
      "ustar\0"
      "00",
      8);
};

inline std::string octal(uint64_t value) { return fmt::format("{:011o}", value); }

/// A block with a right checksum.
inline std::string block(const RawHeader& header) {
  std::string block(512, '\0');
  const auto put = [&](size_t offset, const std::string& text) {
    block.replace(offset, text.size(), text);
  };
  put(0, header.name);
  put(100, "0000644");
  put(124, header.size);
  block[156] = header.type;
  put(257, header.magic);
  put(345, header.prefix);
  put(148, "        ");
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  put(148, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  return block;
}

/// Content up to a whole block.
inline std::string padded(std::string content) {
  content.resize((content.size() + 511) / 512 * 512, '\0');
  return content;
}

inline std::string member(const std::string& name, const std::string& content, char type = '0') {
  return block({.name = name, .size = octal(content.size()), .type = type}) + padded(content);
}

inline std::string pax(const std::string& records) { return member("PaxHeaders/x", records, 'x'); }

inline std::string end_of_archive() { return std::string(1024, '\0'); }

/// Bytes and the source that reads them.
struct Archive {
  explicit Archive(std::string content)
      : bytes(std::move(content)),
        source({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "x.tar") {}
  std::string bytes;
  MemoryBytes source;
};

inline void save(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

}  // namespace brim::data
