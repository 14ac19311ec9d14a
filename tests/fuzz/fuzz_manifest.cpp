// Any text is a manifest or an Error; what is accepted names plain files and prints as it was read.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "framework/base/error.h"
#include "framework/checkpoint/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace brim::checkpoint;  // one function
  Manifest manifest;
  try {
    manifest = parse_manifest({reinterpret_cast<const char*>(data), size}, "input");
  } catch (const brim::Error& error) {
    if (error.status() != brim::Exit::kCheckpoint) std::abort();
    return 0;
  }
  for (const FileRecord& file : manifest.files) {
    if (file.size < 0 || file.name == ".." || file.name.find('/') != std::string::npos) {
      std::abort();
    }
  }
  const std::string printed = print_manifest(manifest);
  if (print_manifest(parse_manifest(printed, "printed")) != printed) std::abort();
  return 0;
}
