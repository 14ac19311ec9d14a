#include "framework/telemetry/tensorboard/tf_record.h"

#include <array>

#include "framework/base/error.h"

namespace brim::telemetry {
namespace {

constexpr size_t kHeaderBytes = 12;  // length and its CRC
constexpr size_t kFooterBytes = 4;   // CRC of the payload

/// One byte at a time: an event has about a hundred of them.
constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    table[byte] = crc;
  }
  return table;
}

/// TFRecord stores CRCs rotated and offset, so that a CRC over data holding CRCs stays strong.
uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

template <class Int>
void put(std::string& out, Int value) {
  for (size_t i = 0; i < sizeof(Int); ++i) out += static_cast<char>((value >> (8 * i)) & 0xff);
}

template <class Int>
Int get(std::string_view bytes) {
  Int value = 0;
  for (size_t i = 0; i < sizeof(Int); ++i) {
    value |= static_cast<Int>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return value;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = crc_table();
  uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  }
  return ~crc;
}

std::string frame_record(std::string_view payload) {
  if (payload.size() > kMaxRecordBytes) {
    throw Error(Exit::kBug, "a record has at most {} bytes, not {}", kMaxRecordBytes,
                payload.size());
  }
  std::string frame;
  frame.reserve(kHeaderBytes + payload.size() + kFooterBytes);
  put(frame, static_cast<uint64_t>(payload.size()));
  put(frame, masked_crc(frame));
  frame += payload;
  put(frame, masked_crc(payload));
  return frame;
}

bool read_frame(std::FILE* file, std::string& frame) {
  frame.resize(kHeaderBytes);
  if (std::fread(frame.data(), 1, kHeaderBytes, file) != kHeaderBytes) return false;
  const std::string_view header(frame);
  const auto length = get<uint64_t>(header);
  if (get<uint32_t>(header.substr(8)) != masked_crc(header.substr(0, 8))) return false;
  if (length > kMaxRecordBytes) return false;
  const size_t rest = static_cast<size_t>(length) + kFooterBytes;
  frame.resize(kHeaderBytes + rest);
  if (std::fread(frame.data() + kHeaderBytes, 1, rest, file) != rest) return false;
  const std::string_view payload = payload_of(frame);
  return get<uint32_t>(std::string_view(frame).substr(kHeaderBytes + payload.size())) ==
         masked_crc(payload);
}

std::string_view payload_of(std::string_view frame) {
  return frame.substr(kHeaderBytes, frame.size() - kHeaderBytes - kFooterBytes);
}

}  // namespace brim::telemetry
