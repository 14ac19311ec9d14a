#include "framework/text/gpt2_tokenizer.h"

#include <unordered_map>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/text/gpt2_encoder.h"
#include "framework/text/gpt2_words.h"
#include "framework/text/unicode.h"
#include "framework/text/vocabulary.h"

namespace brim::text {
namespace {

using IdOfToken = std::unordered_map<std::string_view, int32_t>;  // by token as written

/// Vocabulary files write each byte as a visible character: those of Latin-1 that are visible as
/// themselves, the others as U+0100 and on, in their order.
class ByteNames {
 public:
  ByteNames() {
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool is_visible = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      const char32_t point = is_visible ? static_cast<char32_t>(byte) : next++;
      append_utf8(names_.at(static_cast<size_t>(byte)), point);
      bytes_.emplace(point, static_cast<char>(byte));
    }
  }

  const std::string& name(size_t byte) const { return names_.at(byte); }

  /// The bytes of a token as written; false where it has a character that stands for no byte.
  bool to_bytes(std::string_view token, std::string& bytes) const {
    bytes.clear();
    while (!token.empty()) {
      const CodePoint point = first_code_point(token);
      const auto found = bytes_.find(point.value);
      if (point.bytes == 0 || found == bytes_.end()) return false;
      bytes.push_back(found->second);
      token.remove_prefix(point.bytes);
    }
    return !bytes.empty();
  }

 private:
  std::array<std::string, 256> names_;
  std::unordered_map<char32_t, char> bytes_;
};

PairTable make_pairs(const std::vector<Merge>& merges, const IdOfToken& ids,
                     const std::string& where, const std::string& vocabulary_name) {
  PairTable pairs(merges.size());
  const auto id_of = [&](const Merge& merge, std::string_view token) {
    const auto found = ids.find(token);
    if (found != ids.end()) return found->second;
    throw Error(Exit::kData, "{}:{}: the token {} is not in {}; do both files belong together?",
                where, merge.line, in_quotes(token), vocabulary_name);
  };
  std::string merged;
  for (const Merge& merge : merges) {
    merged.assign(merge.left).append(merge.right);
    const PairTable::Result result = {static_cast<int32_t>(&merge - merges.data()),
                                      id_of(merge, merged)};
    if (!pairs.add(id_of(merge, merge.left), id_of(merge, merge.right), result)) {
      throw Error(Exit::kData, "{}:{}: this merge was in a line before", where, merge.line);
    }
  }
  return pairs;
}

std::array<int32_t, 256> find_byte_ids(const ByteNames& names, const IdOfToken& ids,
                                       const std::string& where) {
  std::array<int32_t, 256> result{};
  for (size_t byte = 0; byte < result.size(); ++byte) {
    const auto found = ids.find(names.name(byte));
    if (found == ids.end()) {
      throw Error(
          Exit::kData,
          "{}: expected a token for each of the 256 bytes, found none for 0x{:02X} ({}); is "
          "this the vocabulary of a byte-level BPE?",
          where, byte, in_quotes(names.name(byte)));
    }
    result.at(byte) = found->second;
  }
  return result;
}

MergeTables make_tables(const std::vector<std::string>& tokens, const std::string& vocabulary_name,
                        std::string_view merges_text, const std::string& merges_name,
                        const ByteNames& names) {
  IdOfToken ids;
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id] != kEndOfText) ids.emplace(tokens[id], static_cast<int32_t>(id));
  }
  const auto byte_ids = find_byte_ids(names, ids, vocabulary_name);
  return {byte_ids,
          make_pairs(parse_merges(merges_text, merges_name), ids, merges_name, vocabulary_name)};
}

}  // namespace

Gpt2Tokenizer::Gpt2Tokenizer(std::string_view vocabulary_json, const std::string& vocabulary_name,
                             std::string_view merges_text, const std::string& merges_name)
    : tokens_(parse_vocabulary(vocabulary_json, vocabulary_name)),
      tables_(make_tables(tokens_, vocabulary_name, merges_text, merges_name, ByteNames())) {
  const ByteNames names;
  std::string bytes;
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_[id] == kEndOfText) {
      end_ = static_cast<int32_t>(id);
    } else if (names.to_bytes(tokens_[id], bytes)) {
      tokens_[id] = bytes;
    } else {
      throw Error(Exit::kData,
                  "{}: expected tokens of GPT-2's 256 characters that stand for bytes, found {}",
                  vocabulary_name, in_quotes(tokens_[id]));
    }
  }
  if (end_ >= 0) return;
  throw Error(Exit::kData, "{}: the token \"{}\", which ends a document, is missing",
              vocabulary_name, kEndOfText);
}

std::unique_ptr<Encoder> Gpt2Tokenizer::encoder() const {
  return std::make_unique<Gpt2Encoder>(tables_);
}

std::string_view Gpt2Tokenizer::bytes(int32_t id) const {
  check(id);
  return tokens_[static_cast<size_t>(id)];
}

size_t Gpt2Tokenizer::safe_cut(std::string_view text) const { return last_cut_between_words(text); }

}  // namespace brim::text
