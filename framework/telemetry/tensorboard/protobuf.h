// Writing protobuf's wire format, for the few messages of event files:
// https://protobuf.dev/programming-guides/encoding/
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace brim::telemetry::protobuf {

enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

inline void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

inline void put_key(std::string& out, uint32_t field, Wire wire) {
  put_varint(out, field << 3 | wire);
}

inline void put_int(std::string& out, uint32_t field, int64_t value) {
  put_key(out, field, kVarint);
  put_varint(out, static_cast<uint64_t>(value));
}

inline void put_bytes(std::string& out, uint32_t field, std::string_view value) {
  put_key(out, field, kBytes);
  put_varint(out, value.size());
  out += value;
}

template <class Int>
void append_fixed(std::string& out, Int bits) {
  for (size_t i = 0; i < sizeof(Int); ++i) out += static_cast<char>((bits >> (8 * i)) & 0xff);
}

template <class Int>
void put_fixed(std::string& out, uint32_t field, Wire wire, Int bits) {
  put_key(out, field, wire);
  append_fixed(out, bits);
}

inline void put_double(std::string& out, uint32_t field, double value) {
  put_fixed(out, field, kFixed64, std::bit_cast<uint64_t>(value));
}

/// A packed repeated field.
inline void put_doubles(std::string& out, uint32_t field, std::span<const double> values) {
  put_key(out, field, kBytes);
  put_varint(out, values.size() * sizeof(double));
  for (const double value : values) append_fixed(out, std::bit_cast<uint64_t>(value));
}

inline void put_float(std::string& out, uint32_t field, float value) {
  put_fixed(out, field, kFixed32, std::bit_cast<uint32_t>(value));
}

}  // namespace brim::telemetry::protobuf
