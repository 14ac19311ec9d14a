// IDX files, plain and gzip: any bytes are parsed or refused by an Error.
#include <cstdint>
#include <span>

#include "framework/base/error.h"
#include "framework/data/sources/idx.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> bytes(data, size);
  try {
    if (brim::data::is_gzip(bytes)) {
      const auto whole = brim::data::inflate_idx(bytes, "input");
      brim::data::parse_idx(whole, "input");
    } else {
      brim::data::parse_idx(bytes, "input");
    }
  } catch (const brim::Error&) {
  }
  return 0;
}
