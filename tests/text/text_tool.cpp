// Text to ids and back, for test_tokenizers.py. Texts on stdin and answers on stdout are each a
// little-endian uint32, the number of bytes or ids, followed by them:
//   text_tool encode VOCABULARY MERGES     the ids of each text, which must decode to it again
//   text_tool classes                      one answer: the class of each code point
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/text/gpt2_tokenizer.h"
#include "framework/text/unicode.h"
#include "framework/text/vocabulary.h"

namespace brim::text {
namespace {

void write(const std::vector<int32_t>& ids) {
  const auto count = static_cast<uint32_t>(ids.size());
  std::fwrite(&count, sizeof(count), 1, stdout);
  std::fwrite(ids.data(), sizeof(int32_t), ids.size(), stdout);
}

bool read(std::string& text) {
  uint32_t count = 0;
  if (std::fread(&count, sizeof(count), 1, stdin) != 1) return false;
  text.resize(count);
  return std::fread(text.data(), 1, count, stdin) == count;
}

void encode(const char* vocabulary, const char* merges) {
  const Gpt2Tokenizer tokenizer(read_file(vocabulary, Exit::kData, kMaxVocabularyBytes), vocabulary,
                                read_file(merges, Exit::kData, kMaxVocabularyBytes), merges);
  const auto encoder = tokenizer.encoder();
  std::vector<int32_t> ids;
  for (std::string text; read(text);) {
    ids.clear();
    encoder->encode(text, ids);
    if (tokenizer.decode(ids) != text) throw Error(Exit::kBug, "decoded to another text");
    write(ids);
  }
}

void classes() {
  std::vector<int32_t> result;
  for (char32_t point = 0; point < 0x110000; ++point) {
    result.push_back(static_cast<int32_t>(class_of(point)));
  }
  write(result);
}

int body(int count, char** words) {
  const std::string_view command = count > 1 ? words[1] : "";
  if (command == "encode" && count == 4) {
    encode(words[2], words[3]);
  } else if (command == "classes") {
    classes();
  } else {
    throw Error(Exit::kRecipe, "usage: see text_tool.cpp");
  }
  return 0;
}

}  // namespace
}  // namespace brim::text

int main(int count, char** words) { return brim::run_program(brim::text::body, count, words); }
