// Vocabulary files: any two texts, with a NUL byte between, are a tokenizer or an Error, as is a
// tokenizer.json. One that is accepted gives each of its tokens' bytes back.
#include <cstdlib>
#include <string>
#include <string_view>

#include "framework/base/error.h"
#include "framework/text/char_tokenizer.h"
#include "framework/text/gpt2_tokenizer.h"
#include "framework/text/tokenizer_json.h"
#include "framework/text/vocabulary.h"

namespace {

void check(const brim::text::Tokenizer& tokenizer) {
  std::string all;
  for (int64_t id = 0; id < tokenizer.vocabulary(); ++id) {
    if (id != tokenizer.end_of_text()) all += tokenizer.bytes(static_cast<int32_t>(id));
  }
  if (tokenizer.decode(tokenizer.encode(all)) != all) std::abort();
}

template <class Action>
void try_to(Action action) {
  try {
    action();
  } catch (const brim::Error& error) {
    if (error.status() != brim::Exit::kData) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace brim::text;  // two tokenizers
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0'), size);
  const std::string_view vocabulary = input.substr(0, end);
  const std::string_view merges = input.substr(std::min(end + 1, size));
  try_to([&] { check(Gpt2Tokenizer(vocabulary, "vocab.json", merges, "merges.txt")); });
  try_to([&] {
    const auto [tokens, lines] = split_tokenizer_json(vocabulary, "tokenizer.json");
    check(Gpt2Tokenizer(tokens, "tokenizer.json", lines, "tokenizer.json"));
  });
  try_to([&] { check(CharTokenizer(parse_vocabulary(vocabulary, "vocab.json"), "vocab.json")); });
  return 0;
}
