// Any bytes are a tar archive or an Error. What is listed has safe names and lies within the
// archive; the samples found in it survive being printed and read back.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "framework/base/error.h"
#include "framework/data/shards/shard_index.h"
#include "framework/data/shards/tar.h"

namespace {

using namespace brim::data;  // a file of its own

void list(const MemoryBytes& bytes) {
  TarReader reader(bytes);
  while (const auto member = reader.next()) {
    if (!unsafe_name(member->name).empty() || member->size < 0 || member->offset < kTarBlock ||
        member->size > bytes.size() - member->offset) {
      std::abort();
    }
    reader.bytes(member->offset, member->size);
  }
}

void index(const MemoryBytes& bytes) {
  const ShardIndex index = build_index(bytes);
  const std::string printed = print_index(index);
  const ShardIndex again = parse_index(printed, "printed");
  if (again.samples != index.samples || again.names != index.names) std::abort();
}

template <class Body>
void expect_data_error(Body body) {
  try {
    body();
  } catch (const brim::Error& error) {
    if (error.status() != brim::Exit::kData) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemoryBytes bytes({data, size}, "input");
  expect_data_error([&] { list(bytes); });
  expect_data_error([&] { index(bytes); });
  return 0;
}
