// Any bytes are a safetensors file or an Error; what is accepted obeys the format.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "framework/base/error.h"
#include "framework/checkpoint/safetensors.h"
#include "framework/checkpoint/safetensors_rules.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace brim::checkpoint;  // one function
  const auto image = std::as_bytes(std::span(data, size));
  try {
    const Safetensors content = parse_safetensors(image, "input");
    // The last tensor ends with the file, each of the others where the next one starts.
    const std::byte* end = image.data() + image.size();
    for (auto tensor = content.tensors.rbegin(); tensor != content.tensors.rend(); ++tensor) {
      if (tensor->bytes.data() + tensor->bytes.size() != end) std::abort();
      end = tensor->bytes.data();
      const auto bytes = tensor_size(tensor->dtype, tensor->shape);
      if (!bytes || static_cast<size_t>(*bytes) != tensor->bytes.size()) std::abort();
    }
  } catch (const brim::Error& error) {
    if (error.status() != brim::Exit::kCheckpoint) std::abort();
  }
  return 0;
}
