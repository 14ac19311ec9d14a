// Token files: any bytes are rows of ids below the vocabulary or are refused by an Error. The first
// bytes choose the keys.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "framework/base/error.h"
#include "framework/data/sources/tokens.h"

namespace {

void read_all(const brim::data::Dataset& dataset, int64_t vocabulary) {
  const auto bytes = static_cast<size_t>(dataset.sample_bytes());
  std::vector<int32_t> row(bytes / sizeof(int32_t));
  for (int64_t i = 0; i < dataset.size(); ++i) {
    dataset.read(i, nullptr, {reinterpret_cast<uint8_t*>(row.data()), bytes});
    const size_t tokens = dataset.length(i) ? row.size() / 3 : row.size();
    for (size_t t = 0; t < tokens; ++t) {
      if (row[t] < 0 || row[t] >= vocabulary) std::abort();
    }
    if (dataset.length(i).value_or(2) < 2) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace brim::data;
  constexpr size_t kKeys = 6;
  if (size < kKeys) return 0;
  TokensConfig config;
  config.type = data[0] % 2 == 0 ? TokenType::kUint16 : TokenType::kUint32;
  config.packing = static_cast<Packing>(data[1] % 3);
  config.length = 1 + data[2];
  config.vocabulary = 2 + 256 * data[3] + data[4];
  config.end_of_document = data[5];
  try {
    const auto dataset =
        config.open(std::make_unique<MemoryBytes>(std::span(data, size).subspan(kKeys), "input"));
    read_all(*dataset, config.known_vocabulary());
  } catch (const brim::Error&) {
  }
  return 0;
}
