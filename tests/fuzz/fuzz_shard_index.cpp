// Any bytes under a right digest are the index of a shard or an Error; what is accepted stays
// within its shard and prints as it was read.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "framework/base/error.h"
#include "framework/data/shards/shard_index.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace brim::data;  // one function
  const std::string sealed = seal_index({reinterpret_cast<const char*>(data), size});
  try {
    const ShardIndex index = parse_index(sealed, "input");
    for (int64_t i = 0; i < index.size(); ++i) {
      const ShardSample& sample = index.samples[static_cast<size_t>(i)];
      if (sample.offset + sample.bytes > static_cast<uint64_t>(index.shard_bytes) ||
          index.name(i).empty()) {
        std::abort();
      }
    }
    if (print_index(index) != sealed) std::abort();
  } catch (const brim::Error& error) {
    if (error.status() != brim::Exit::kData) std::abort();
  }
  return 0;
}
