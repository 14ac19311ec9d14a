// Any text is an index of weights or an Error; what is accepted names plain files.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "framework/base/error.h"
#include "framework/checkpoint/weight_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto files =
        brim::checkpoint::parse_weight_index({reinterpret_cast<const char*>(data), size}, "input");
    if (files.empty()) std::abort();
    for (const auto& [tensor, file] : files) {
      if (file.find('/') != std::string::npos || !file.ends_with(".safetensors")) std::abort();
    }
  } catch (const brim::Error& error) {
    if (error.status() != brim::Exit::kCheckpoint) std::abort();
  }
  return 0;
}
