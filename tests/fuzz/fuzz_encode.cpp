// Any bytes are encoded by GPT-2's tokenizer and come back the same; text that is cut where it may
// be has the ids of the whole.
#include <cstdlib>
#include <string_view>
#include <vector>

#include "tests/text/small_vocabulary.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const brim::text::Gpt2Tokenizer tokenizer = brim::text::testing::small_tokenizer();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::vector<int32_t> whole = tokenizer.encode(text);
  if (tokenizer.decode(whole) != text) std::abort();
  const auto encoder = tokenizer.encoder();
  for (const size_t length : {size, size - size / 3, size / 2}) {
    const size_t cut = tokenizer.safe_cut(text.substr(0, length));
    if (cut > length) std::abort();
    std::vector<int32_t> parts;
    encoder->encode(text.substr(0, cut), parts);
    encoder->encode(text.substr(cut), parts);
    if (parts != whole) std::abort();
  }
  return 0;
}
