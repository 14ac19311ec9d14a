#include "framework/text/tokenizer_files.h"

#include <nlohmann/json.hpp>
#include <system_error>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/temporaries.h"
#include "framework/data/sources/token_file.h"
#include "framework/text/byte_tokenizer.h"
#include "framework/text/char_tokenizer.h"
#include "framework/text/gpt2_tokenizer.h"
#include "framework/text/vocabulary.h"

namespace brim::text {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kMaxDescriptionBytes = int64_t{1} << 20;

std::string read_vocabulary(const fs::path& path) {
  return read_file(path, Exit::kData, kMaxVocabularyBytes);
}

void expect_file(const fs::path& path, std::string_view what, std::string_view option,
                 bool is_expected) {
  if (path.empty() != is_expected) return;
  throw Error(Exit::kRecipe, "this tokenizer {} {} file ({})", is_expected ? "needs a" : "takes no",
              what, option);
}

}  // namespace

TokenizerTexts read_tokenizer(const TokenizerFiles& files) {
  if (files.name != "bytes" && files.name != "chars" && files.name != "gpt2") {
    throw Error(Exit::kRecipe, "expected the tokenizer bytes, chars or gpt2, found '{}'",
                files.name);
  }
  expect_file(files.vocabulary, "vocabulary", "--vocab", files.name != "bytes");
  if (files.name != "gpt2") expect_file(files.merges, "merges", "--merges", false);
  if (files.name == "bytes") return {};
  std::string vocabulary = read_vocabulary(files.vocabulary);
  if (files.name == "chars") return {std::move(vocabulary), {}};
  if (files.merges.empty()) return split_tokenizer_json(vocabulary, files.vocabulary.string());
  return {std::move(vocabulary), read_vocabulary(files.merges)};
}

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerFiles& files,
                                          const TokenizerTexts& texts) {
  if (files.name == "bytes") return std::make_unique<ByteTokenizer>();
  const std::string where = files.vocabulary.string();
  if (files.name == "chars") {
    return std::make_unique<CharTokenizer>(parse_vocabulary(texts.vocabulary, where), where);
  }
  return std::make_unique<Gpt2Tokenizer>(texts.vocabulary, where, texts.merges,
                                         files.merges.empty() ? where : files.merges.string());
}

std::unique_ptr<Tokenizer> load_tokenizer(const TokenizerFiles& files) {
  return make_tokenizer(files, read_tokenizer(files));
}

std::unique_ptr<Tokenizer> open_tokenizer(const fs::path& folder) {
  const fs::path path = folder / data::kTokenDescription;
  try {
    const auto description =
        parse_json(read_file(path, Exit::kData, kMaxDescriptionBytes), path.string(), {.depth = 8});
    const auto name = description.is_object() ? description.value("tokenizer", nlohmann::json())
                                              : nlohmann::json();
    if (!name.is_string()) {
      throw Error(Exit::kData, "{}: expected an object with the tokenizer's name", path.string());
    }
    TokenizerFiles files = {name.get<std::string>(), {}, {}};
    if (files.name != "bytes") files.vocabulary = folder / kVocabularyName;
    if (files.name == "gpt2") files.merges = folder / kMergesName;
    return load_tokenizer(files);
  } catch (const Error& error) {
    throw Error(Exit::kData, "{}", error.what());
  }
}

bool has_tokenizer(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / data::kTokenDescription, ignored);
}

void copy_tokenizer(const fs::path& from, const fs::path& to) {
  make_folder(to);
  // The description last: with it the tokenizer is there.
  for (const std::string_view name : {kVocabularyName, kMergesName, data::kTokenDescription}) {
    std::error_code ignored;
    remove_temporaries(to / name);
    if (name != data::kTokenDescription && !fs::exists(from / name, ignored)) continue;
    write_file(to / name, read_vocabulary(from / name));
  }
}

}  // namespace brim::text
