#include "framework/data/sources/tokens.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/log.h"
#include "framework/data/sources/packing.h"

namespace brim::data {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 2> kTypeWords = {"uint16", "uint32"};
constexpr std::array<std::string_view, 3> kPackingWords = {"stream", "documents", "padded"};

std::span<int32_t> as_tokens(std::span<uint8_t> bytes) {
  return {reinterpret_cast<int32_t*>(bytes.data()), bytes.size() / sizeof(int32_t)};
}

/// Windows of the whole file.
class TokenStream final : public TokenSamples {
 public:
  TokenStream(TokenFile file, int64_t length)
      : file_(std::move(file)), length_(length), size_((file_.size() - 1) / length) {
    if (file_.size() > length) return;
    throw Error(Exit::kData, "{}: expected at least {} tokens, one more than data.length, found {}",
                file_.name(), length + 1, file_.size());
  }

  int64_t size() const override { return size_; }
  TokenShape shape() const override {
    return {.length = length_, .vocabulary = file_.vocabulary()};
  }
  std::string name(int64_t index) const override {
    return fmt::format("{}[tokens {} to {}]", file_.name(), index * length_, (index + 1) * length_);
  }
  int64_t read(int64_t index, RandomStream*, std::span<uint8_t> bytes) const override {
    file_.read(index * length_, as_tokens(bytes));
    return 0;
  }

 private:
  TokenFile file_;
  int64_t length_;
  int64_t size_;
};

/// Documents in rows.
class TokenRows final : public TokenSamples {
 public:
  TokenRows(TokenFile file, PackedRows rows, int64_t length)
      : file_(std::move(file)), rows_(std::move(rows)), row_tokens_(length + 1) {
    if (rows_.size() > 0) return;
    throw Error(Exit::kData, "{}: expected documents of at least 2 tokens, found none",
                file_.name());
  }

  int64_t size() const override { return rows_.size(); }
  TokenShape shape() const override {
    return {.length = row_tokens_ - 1, .vocabulary = file_.vocabulary(), .has_documents = true};
  }
  /// Every token of a document but its first is predicted.
  int64_t weight(int64_t index) const override {
    int64_t predicted = 0;
    for (const TokenRun& run : rows_.row(index)) predicted += run.count - 1;
    return predicted;
  }
  bool is_weighted() const override { return true; }
  std::string name(int64_t index) const override {
    return fmt::format("{}[documents from token {}]", file_.name(), rows_.row(index)[0].first);
  }
  std::optional<int64_t> length(int64_t index) const override {
    int64_t filled = 0;
    for (const TokenRun& run : rows_.row(index)) filled += run.count;
    return filled;
  }

  int64_t read(int64_t index, RandomStream*, std::span<uint8_t> bytes) const override {
    const auto values = as_tokens(bytes);
    const auto row = static_cast<size_t>(row_tokens_);
    const auto tokens = values.first(row);
    const auto positions = values.subspan(row, row);
    const auto segments = values.subspan(2 * row, row);
    size_t filled = 0;
    int32_t segment = 0;
    for (const TokenRun& run : rows_.row(index)) {
      const auto count = static_cast<size_t>(run.count);
      const auto place = positions.subspan(filled, count);
      file_.read(run.first, tokens.subspan(filled, count));
      std::iota(place.begin(), place.end(), 0);
      std::ranges::fill(segments.subspan(filled, count), ++segment);
      filled += count;
    }
    for (const auto plane : {tokens, positions, segments}) {
      std::ranges::fill(plane.subspan(filled), 0);
    }
    return 0;
  }

 private:
  TokenFile file_;
  PackedRows rows_;
  int64_t row_tokens_;
};

struct TrainFile {
  fs::path& path;
  void fields(recipe::Fields& f) {
    f.value("path", path, "file of token ids, as nanoGPT's train.bin", recipe::Need::kRequired);
  }
};

struct EvalFile {
  fs::path& path;
  void fields(recipe::Fields& f) {
    f.value("path", path, "file of token ids, as nanoGPT's val.bin; not given: no evaluation");
  }
};

/// What `trainer data tokenize` says of its train.bin and eval.bin.
struct Description {
  std::string tokenizer, type;
  int64_t vocabulary = 0, end_of_document = 0;

  bool is_of(const Description& other) const {
    return tokenizer == other.tokenizer && vocabulary == other.vocabulary;
  }
};

/// nullopt where nothing is known of the file: another program's have no description.
std::optional<Description> describe(const fs::path& file) {
  constexpr int64_t kLongest = 1 << 20;
  const fs::path path = file.parent_path() / kTokenDescription;
  std::error_code ignored;
  if (file.filename() != kTrainTokens && file.filename() != kEvalTokens) return std::nullopt;
  if (!fs::is_regular_file(path, ignored)) return std::nullopt;
  try {
    const auto json = parse_json(read_file(path, Exit::kData, kLongest), path.string());
    return Description{json.at("tokenizer").get<std::string>(), json.at("type").get<std::string>(),
                       json.at("vocabulary").get<int64_t>(),
                       json.at("end_of_document").get<int64_t>()};
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

/// Throws Error(kData) where a file without a description begins as no file of such ids does.
void require_plain_ids(const ByteSource& bytes, TokenType type) {
  constexpr std::string_view kNumpy = "\x93NUMPY";
  constexpr size_t kLooked = 4096;
  std::vector<uint8_t> start(std::min<size_t>(kLooked, static_cast<size_t>(bytes.size())));
  bytes.read(0, start);
  if (std::string_view(reinterpret_cast<const char*>(start.data()), start.size())
          .starts_with(kNumpy)) {
    throw Error(Exit::kData,
                "{}: expected token ids without a header, found a NumPy file; write the ids with "
                "array.tofile(path)",
                bytes.name());
  }
  if (type != TokenType::kUint16 || start.size() < kLooked) return;
  bool has_high = false, has_low = false;
  for (size_t i = 0; i < start.size(); i += 4) {
    has_low |= start[i] != 0 || start[i + 1] != 0;
    has_high |= start[i + 2] != 0 || start[i + 3] != 0;
  }
  if (has_high || !has_low) return;
  throw Error(Exit::kData,
              "{}: expected uint16 ids, found that every second one is 0, as in a file of uint32 "
              "ids; set data.type = \"uint32\"",
              bytes.name());
}

/// Throws Error(kData) where what `found` says of the file contradicts the options.
std::unique_ptr<Dataset> open_file(const TokensConfig& config, const fs::path& path,
                                   const std::optional<Description>& found) {
  auto bytes = std::make_unique<FileBytes>(path);
  if (!found) {
    require_plain_ids(*bytes, config.type);
    return config.open(std::move(bytes));
  }
  const std::string_view word = kTypeWords.at(static_cast<size_t>(config.type));
  if (found->type != word) {
    throw Error(Exit::kData, "{}: holds {} ids, as tokens.json beside it says, and data.type is {}",
                path.string(), found->type, word);
  }
  if (const int64_t ids = config.known_vocabulary(); ids < found->vocabulary) {
    throw Error(Exit::kData,
                "{}: holds ids of a vocabulary of {}, as tokens.json beside it says, and "
                "data.vocabulary is {}",
                path.string(), found->vocabulary, ids);
  }
  if (config.packing != Packing::kStream &&
      config.end_of_document.value_or(found->end_of_document) != found->end_of_document) {
    log::warning(
        "{}: documents end with {}, as tokens.json beside it says; by data.end_of_document "
        "they end with {}",
        path.string(), found->end_of_document, *config.end_of_document);
  }
  return config.open(std::move(bytes), found->end_of_document);
}

}  // namespace

void TokensConfig::fields(recipe::Fields& f) {
  TrainFile train_file{train};
  f.section("train", train_file, "the training set");
  EvalFile eval_file{eval};
  f.section("eval", eval_file, "the evaluation set");
  f.choice("type", type, kTypeWords, "type of the ids in the files, little-endian");
  f.auto_or("vocabulary", vocabulary,
            "number of different ids; the files hold none from it on; auto: that of tokens.json "
            "beside train.bin, else GPT-2's 50257",
            recipe::between(2, 2147483648.0));
  f.value("length", length, "tokens that the model sees at a time", recipe::between(1, 1 << 24));
  f.choice("packing", packing, kPackingWords,
           "stream: windows of the whole file; documents: whole documents, several in a row where "
           "they fit, attention within each; padded: one document in a row");
  f.auto_or("end_of_document", end_of_document,
            "id that ends a document; auto: that of tokens.json beside train.bin, else the last of "
            "the vocabulary",
            recipe::between(0, 2147483647.0));
}

int64_t TokensConfig::known_vocabulary() const {
  constexpr int64_t kOfGpt2 = 50'257;
  if (vocabulary) return *vocabulary;
  for (const fs::path& file : {train, eval}) {  // the training data may be gone
    if (const auto found = describe(file)) return found->vocabulary;
  }
  return kOfGpt2;
}

std::unique_ptr<Dataset> TokensConfig::open(std::unique_ptr<ByteSource> bytes,
                                            std::optional<int64_t> usual_end) const {
  const int64_t ids = known_vocabulary();
  const int64_t end = end_of_document.value_or(usual_end.value_or(ids - 1));
  if (end >= ids) {
    throw Error(Exit::kRecipe,
                "[data]: expected 'end_of_document' to be below 'vocabulary' ({}), found {}", ids,
                end);
  }
  TokenFile file(std::move(bytes), type, ids);
  if (packing == Packing::kStream) return std::make_unique<TokenStream>(std::move(file), length);
  auto runs = find_documents(file, end, length + 1);
  auto rows = packing == Packing::kDocuments ? PackedRows::first_fit(runs, length + 1)
                                             : PackedRows::one_each(std::move(runs));
  return std::make_unique<TokenRows>(std::move(file), std::move(rows), length);
}

std::unique_ptr<Dataset> TokensConfig::open_train(const AugmentConfig& /*augment*/) const {
  if (packing == Packing::kStream && end_of_document) {
    log::warning("data.end_of_document has no effect: packing is \"stream\"");
  }
  return open_file(*this, train, describe(train));
}

std::unique_ptr<Dataset> TokensConfig::open_eval() const {
  if (eval.empty()) return nullptr;
  const auto learned = describe(train), found = describe(eval);
  if (learned && found && !found->is_of(*learned)) {
    throw Error(Exit::kData,
                "{}: expected the tokenizer of {}, \"{}\" with {} ids, found \"{}\" with {}",
                eval.string(), train.string(), learned->tokenizer, learned->vocabulary,
                found->tokenizer, found->vocabulary);
  }
  return open_file(*this, eval, found);
}

}  // namespace brim::data
