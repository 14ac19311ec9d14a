// TFRecord framing, the container of TensorBoard's event files: length (uint64, little-endian),
// masked CRC of the length, payload, masked CRC of the payload.
// Format: tensorflow/core/lib/io/record_writer.h. CRC32C: RFC 3720, appendix B.4.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace brim::telemetry {

/// The longest payload that is written, and that a reader believes.
inline constexpr uint64_t kMaxRecordBytes = uint64_t{1} << 24;

/// CRC-32C (Castagnoli) of the bytes.
uint32_t crc32c(std::string_view bytes);

/// The payload with its frame around it. At most kMaxRecordBytes.
std::string frame_record(std::string_view payload);

/// Reads the next frame of `file` into `frame` (the whole of it; payload_of() is its middle).
/// False at the end of the file and at a frame that is torn or damaged.
bool read_frame(std::FILE* file, std::string& frame);

/// The payload inside a frame that read_frame() returned.
std::string_view payload_of(std::string_view frame);

}  // namespace brim::telemetry
