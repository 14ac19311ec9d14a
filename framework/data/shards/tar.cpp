#include "framework/data/shards/tar.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "framework/base/error.h"
#include "framework/base/printable.h"

namespace brim::data {
namespace {

// Places in a header (POSIX.1-2024, ustar Header Block).
struct HeaderField {
  size_t offset;
  size_t bytes;
};
constexpr HeaderField kName = {0, 100};
constexpr HeaderField kSize = {124, 12};
constexpr HeaderField kChecksum = {148, 8};
constexpr size_t kType = 156;
constexpr HeaderField kMagic = {257, 6};
constexpr HeaderField kPrefix = {345, 155};
constexpr std::string_view kPosixMagic("ustar\0", 6);  // GNU's is "ustar ", without a prefix field

constexpr int64_t kWindowBytes = 4096;  // a label, its headers and those of the next image
constexpr int64_t kMaxNameBytes = 64 << 10;
constexpr int64_t kMaxPaxBytes = 1 << 20;
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

std::string_view text(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const uint8_t> at(std::span<const uint8_t> header, HeaderField place) {
  return header.subspan(place.offset, place.bytes);
}

/// A field's text up to its first NUL.
std::string_view field_text(std::span<const uint8_t> header, HeaderField place) {
  const std::string_view field = text(at(header, place));
  return field.substr(0, field.find('\0'));
}

/// The sum of a header's bytes, the checksum's own taken as spaces. Some elders added signed bytes.
struct Sums {
  int64_t of_unsigned = 0;
  int64_t of_signed = 0;
};

Sums sums(std::span<const uint8_t> header) {
  Sums result;
  for (size_t i = 0; i < header.size(); ++i) {
    const bool is_checksum = i >= kChecksum.offset && i < kChecksum.offset + kChecksum.bytes;
    const uint8_t byte = is_checksum ? ' ' : header[i];
    result.of_unsigned += byte;
    result.of_signed += static_cast<int8_t>(byte);
  }
  return result;
}

bool is_compressed(std::span<const uint8_t> bytes) {
  const std::string_view start = text(bytes);
  return start.starts_with("\x1f\x8b") || start.starts_with("\x28\xb5\x2f\xfd") ||
         start.starts_with(
             "\xfd"
             "7zXZ") ||
         start.starts_with("BZh");
}

/// A number in a header, or what is wrong with it.
struct Number {
  int64_t value = 0;
  std::string_view problem;  // "" where nothing is
};

/// GNU's base 256: big-endian, two's complement below the first bit.
Number parse_base256(std::span<const uint8_t> field) {
  if ((field[0] & 0x40) != 0) return {0, "is negative"};
  int64_t value = field[0] & 0x3f;
  for (const uint8_t byte : field.subspan(1)) {
    if (value > kMax >> 8) return {0, "is over 2^63"};
    value = value << 8 | byte;
  }
  return {value, ""};
}

Number parse_number(std::span<const uint8_t> field) {
  if ((field[0] & 0x80) != 0) return parse_base256(field);
  std::string_view digits = text(field);
  digits.remove_prefix(std::min(digits.find_first_not_of(' '), digits.size()));
  int64_t value = 0;  // at most 12 digits of 3 bits
  for (const char digit : digits.substr(0, digits.find_first_of(std::string_view("\0 ", 2)))) {
    if (digit == '-') return {0, "is negative"};
    if (digit < '0' || digit > '7') return {0, "is no octal number"};
    value = value * 8 + (digit - '0');
  }
  return {value, ""};
}

/// A whole number in decimal digits and nothing else; nullopt where it isn't, or is over int64.
std::optional<int64_t> decimal(std::string_view digits) {
  int64_t value = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (code != std::errc() || end != digits.data() + digits.size() || value < 0) return {};
  return value;
}

}  // namespace

std::string_view unsafe_name(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name.find('\0') != std::string_view::npos) return "holds a NUL byte";
  if (name.front() == '/') return "is absolute";
  for (size_t start = 0; start <= name.size();) {
    const size_t end = std::min(name.find('/', start), name.size());
    if (name.substr(start, end - start) == "..") return "leads out of its folder by '..'";
    start = end + 1;
  }
  return "";
}

void TarReader::refuse(int64_t offset, const std::string& reason) const {
  throw Error(Exit::kData, "{}: at byte {}: {}", source_.name(), offset, printable(reason));
}

std::span<const uint8_t> TarReader::bytes(int64_t offset, int64_t count) {
  const auto held = static_cast<int64_t>(window_.size());
  if (offset < window_start_ || offset + count > window_start_ + held) {
    const int64_t left = std::max<int64_t>(source_.size() - offset, 0);
    window_.resize(static_cast<size_t>(std::max(count, std::min(kWindowBytes, left))));
    window_start_ = offset;
    source_.read(offset, window_);
  }
  return std::span(window_).subspan(static_cast<size_t>(offset - window_start_),
                                    static_cast<size_t>(count));
}

/// The header at position_; nullopt for the block of zeros that ends an archive.
std::optional<TarReader::Header> TarReader::read_header() {
  if (source_.size() - position_ < kTarBlock) {
    refuse(position_, fmt::format("truncated: the archive of {} bytes stops here without the block "
                                  "of zeros that ends one",
                                  source_.size()));
  }
  const auto header = bytes(position_, kTarBlock);
  if (std::ranges::all_of(header, [](uint8_t byte) { return byte == 0; })) return {};
  if (position_ == 0 && is_compressed(header)) {
    refuse(0, "a compressed archive, whose samples can't be read one by one; unpack it (gunzip)");
  }
  const Sums found = sums(header);
  const Number expected = parse_number(at(header, kChecksum));
  if (!expected.problem.empty() ||
      (expected.value != found.of_unsigned && expected.value != found.of_signed)) {
    refuse(position_, "damaged, or no tar archive: a header's checksum is wrong");
  }
  const Number size = parse_number(at(header, kSize));
  if (!size.problem.empty()) refuse(position_, fmt::format("a size that {}", size.problem));
  Header result{static_cast<char>(header[kType]), size.value, ""};
  result.name = field_text(header, kName);
  if (text(at(header, kMagic)) == kPosixMagic) {
    const std::string_view prefix = field_text(header, kPrefix);
    if (!prefix.empty()) result.name = fmt::format("{}/{}", prefix, result.name);
  }
  return result;
}

/// Where the content after the header at position_ ends.
int64_t TarReader::content_end(int64_t size, std::string_view name) const {
  const int64_t start = position_ + kTarBlock;
  if (size > source_.size() - start) {
    refuse(position_, fmt::format("truncated: '{}' has {} bytes from byte {}, the archive ends at "
                                  "{}",
                                  name, size, start, source_.size()));
  }
  return start + size;
}

void TarReader::read_pax_record(std::string_view key, std::string_view value, bool is_global,
                                Overrides& overrides) const {
  if (key.starts_with("GNU.sparse.")) refuse(position_, "a sparse file; store it whole");
  if (key != "path" && key != "size") return;
  if (is_global) refuse(position_, fmt::format("a global PAX header with the key '{}'", key));
  if (key == "path") {
    overrides.name = value;
    return;
  }
  overrides.size = decimal(value);
  if (!overrides.size) {
    refuse(position_, fmt::format("a PAX header with the size '{}': expected a whole number from "
                                  "0, below 2^63",
                                  value.substr(0, 40)));
  }
}

/// Records are "length key=value\n", the length in decimal and of the whole record.
void TarReader::read_pax(std::string_view records, bool is_global, Overrides& overrides) const {
  while (!records.empty()) {
    const size_t space = records.find(' ');
    const auto length = decimal(records.substr(0, std::min(space, records.size())));
    if (!length || *length > static_cast<int64_t>(records.size()) ||
        *length < static_cast<int64_t>(space) + 3) {
      refuse(position_, "a damaged PAX header: expected records 'length key=value'");
    }
    std::string_view record = records.substr(space + 1, static_cast<size_t>(*length) - space - 1);
    const size_t equals = record.find('=');
    if (record.back() != '\n' || equals == std::string_view::npos) {
      refuse(position_, "a damaged PAX header: expected records 'length key=value'");
    }
    record.remove_suffix(1);
    read_pax_record(record.substr(0, equals), record.substr(equals + 1), is_global, overrides);
    records.remove_prefix(static_cast<size_t>(*length));
  }
}

/// True for a header that says something of the next member, which it then reads.
bool TarReader::read_extension(const Header& header, Overrides& overrides) {
  const bool is_pax = header.type == 'x' || header.type == 'g';
  if (!is_pax && header.type != 'L' && header.type != 'K') return false;
  const int64_t limit = is_pax ? kMaxPaxBytes : kMaxNameBytes;
  if (header.size > limit) {
    refuse(position_, fmt::format("expected {} of at most {} bytes, found {}",
                                  is_pax ? "a PAX header" : "a name", limit, header.size));
  }
  content_end(header.size, header.name);
  const std::string_view content = text(bytes(position_ + kTarBlock, header.size));
  if (is_pax) {
    read_pax(content, header.type == 'g', overrides);
  } else if (header.type == 'L') {  // 'K' is the target of a link
    overrides.name = content.substr(0, content.find('\0'));
  }
  return true;
}

/// True for a regular file; false for what is passed over, which has no content.
bool TarReader::has_content(const Header& header) {
  switch (header.type) {
    case '0':
    case '\0':
    case '7':                                                     // contiguous
      return header.type != '\0' || !header.name.ends_with('/');  // elders mark folders so
    case '5':
      return false;
    case '1':
      if (header.size != 0) refuse(position_, "a hard link with content");
      [[fallthrough]];
    case '2':
    case '3':
    case '4':
    case '6':
      ++passed_over_;
      return false;
    case 'S':
      refuse(position_, fmt::format("'{}' is a sparse file; store it whole", header.name));
    default:
      refuse(position_, fmt::format("'{}' is a member of the unknown type 0x{:02x}", header.name,
                                    static_cast<uint8_t>(header.type)));
  }
}

std::optional<TarMember> TarReader::next() {
  Overrides overrides;
  while (auto header = read_header()) {
    const bool is_extension = read_extension(*header, overrides);
    if (!is_extension) {
      if (overrides.name) header->name = *overrides.name;
      if (overrides.size) header->size = *overrides.size;
    }
    const bool is_file = !is_extension && has_content(*header);
    const int64_t size = is_extension || is_file ? header->size : 0;
    const int64_t end = content_end(size, header->name);
    const TarMember member = {header->name, position_, position_ + kTarBlock, size};
    if (is_file) {
      const std::string_view problem = unsafe_name(member.name);
      if (!problem.empty()) {
        refuse(position_, fmt::format("the name '{}' {}", member.name, problem));
      }
    }
    position_ = (end + kTarBlock - 1) / kTarBlock * kTarBlock;
    if (is_file) return member;
    if (!is_extension) overrides = {};
  }
  if (overrides.name || overrides.size) refuse(position_, "a PAX or GNU header without its member");
  return {};
}

bool TarReader::has_more() {
  constexpr int64_t kLongestEnd = int64_t{64} << 10;  // writers fill a record up, mostly of 10 KiB
  const int64_t start = position_ + kTarBlock;
  const auto rest = bytes(start, std::min(kLongestEnd, source_.size() - start));
  return std::ranges::any_of(rest, [](uint8_t byte) { return byte != 0; });
}

}  // namespace brim::data
