#include "framework/text/tokenize.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "framework/base/error.h"
#include "framework/base/parallel.h"
#include "framework/base/stop.h"
#include "framework/data/sources/token_file.h"
#include "framework/text/char_tokenizer.h"
#include "framework/text/piece_reader.h"
#include "framework/text/token_folder.h"
#include "framework/text/unicode.h"
#include "framework/text/vocabulary.h"

namespace brim::text {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

constexpr int64_t kNoEval = std::numeric_limits<int64_t>::max();

/// What a first pass over the inputs finds.
struct Scan {
  std::vector<int64_t> bytes;  // of each input
  std::set<char32_t> points;   // characters of its text
};

void collect(std::string_view text, std::vector<bool>& seen) {
  while (!text.empty()) {
    const CodePoint point = first_code_point(text);
    seen[point.value] = true;
    text.remove_prefix(point.bytes);
  }
}

void require_no_stop() {
  if (stop_requested()) throw Error(Exit::kStopped, "stopped; nothing was written");
}

Scan scan(const std::vector<std::string>& inputs, bool with_points) {
  Scan result;
  std::vector<bool> seen(0x110000);
  const auto cut = [](std::string_view text) { return text.size() - cut_off_bytes(text); };
  for (const std::string& input : inputs) {
    PieceReader reader(input, cut, kNoEval);
    int64_t bytes = 0;
    while (const auto piece = reader.next()) {
      require_no_stop();
      bytes += static_cast<int64_t>(piece->text.size());
      if (!with_points) continue;
      if (piece->line == 0) {
        collect(piece->text, seen);
      } else {
        for_each_document(*piece, [&](std::string_view text) { collect(text, seen); });
      }
    }
    result.bytes.push_back(bytes);
  }
  for (char32_t point = 0; point < seen.size(); ++point) {
    if (seen[point]) result.points.insert(point);
  }
  return result;
}

/// Where the evaluation text begins in each input.
std::vector<int64_t> eval_starts(const std::vector<int64_t>& bytes, double fraction) {
  int64_t total = 0;
  for (const int64_t count : bytes) total += count;
  auto left = static_cast<int64_t>(static_cast<double>(total) * (1 - fraction));
  std::vector<int64_t> starts;
  for (const int64_t count : bytes) {
    starts.push_back(left);
    left -= count;
  }
  return starts;
}

/// A piece of text and its ids.
struct Work {
  Piece piece;
  std::vector<int32_t> ids;
  int64_t documents = 0;
  int64_t text_bytes = 0;
};

void encode(Encoder& encoder, int32_t end, Work& work) {
  const auto add = [&](std::string_view text, bool ends) {
    work.text_bytes += static_cast<int64_t>(text.size());
    encoder.encode(text, work.ids);
    if (!ends) return;
    work.ids.push_back(end);
    ++work.documents;
  };
  if (work.piece.line == 0) return add(work.piece.text, work.piece.ends_document);
  for_each_document(work.piece, [&](std::string_view text) {
    if (!text.empty()) add(text, true);
  });
}

/// Goes through the inputs and fills the token files.
class Pass {
 public:
  Pass(const Tokenizer& tokenizer, TokenWriter& train, TokenWriter* eval, int64_t threads,
       const std::function<void(int64_t)>& report)
      : tokenizer_(tokenizer), train_(train), eval_(eval), report_(report) {
    for (int64_t i = 0; i < threads; ++i) encoders_.push_back(tokenizer.encoder());
  }

  void read(const std::string& input, int64_t eval_from) {
    PieceReader reader(
        input, [this](std::string_view text) { return tokenizer_.safe_cut(text); }, eval_from);
    while (auto piece = reader.next()) {
      batch_.push_back({std::move(*piece), {}, 0, 0});
      if (batch_.size() == encoders_.size()) flush();
    }
  }

  /// Encodes what has been read, each piece on its thread, and writes it in order.
  void flush() {
    require_no_stop();
    const auto count = static_cast<int64_t>(batch_.size());
    parallel_for(count, count, [&](int64_t i) {
      const auto at = static_cast<size_t>(i);
      try {
        encode(*encoders_[at], tokenizer_.end_of_text(), batch_[at]);
      } catch (const Error& error) {
        const std::string& name = batch_[at].piece.name;
        const std::string_view text = error.what();
        throw Error(error.status(), "{}{}", text.starts_with(name) ? "" : name + ": ", text);
      }
    });
    for (const Work& work : batch_) {
      TokenWriter& writer = work.piece.is_eval && eval_ != nullptr ? *eval_ : train_;
      writer.write(work.ids, work.documents, work.text_bytes);
      done_bytes_ += static_cast<int64_t>(work.piece.text.size());
    }
    batch_.clear();
    if (report_) report_(done_bytes_);
  }

 private:
  const Tokenizer& tokenizer_;
  TokenWriter& train_;
  TokenWriter* eval_;
  const std::function<void(int64_t)>& report_;
  std::vector<std::unique_ptr<Encoder>> encoders_;  // one for each piece of a batch
  std::vector<Work> batch_;
  int64_t done_bytes_ = 0;
};

/// Writes the tokenizer's files, those of a vocabulary made here too, and loads them.
std::unique_ptr<Tokenizer> place_tokenizer(const TokenizeOptions& options, const Scan& found,
                                           const fs::path& folder) {
  TokenizerFiles files = options.tokenizer;
  if (files.name == "chars" && files.vocabulary.empty()) {
    files.vocabulary = folder / kVocabularyName;
    write_file(files.vocabulary, print_vocabulary(CharTokenizer::tokens_for(found.points)));
    return load_tokenizer(files);
  }
  const TokenizerTexts texts = read_tokenizer(files);
  if (!texts.vocabulary.empty()) write_file(folder / kVocabularyName, texts.vocabulary);
  if (!texts.merges.empty()) write_file(folder / kMergesName, texts.merges);
  return make_tokenizer(files, texts);
}

json describe(const TokenWriter& writer) {
  return {{"file", writer.path().filename().string()},
          {"tokens", writer.counts().tokens},
          {"documents", writer.counts().documents},
          {"text_bytes", writer.counts().text_bytes},
          {"xxh3_128", digest_file(writer.path())}};
}

void finish(TokenWriter& writer, std::string_view what, std::string_view advice) {
  if (writer.counts().tokens == 0) {
    throw Error(Exit::kData, "expected text for {}, found none; {}", what, advice);
  }
  writer.commit();
}

}  // namespace

TokenizeResult tokenize(const TokenizeOptions& options,
                        const std::function<void(int64_t)>& report) {
  const bool makes_vocabulary =
      options.tokenizer.name == "chars" && options.tokenizer.vocabulary.empty();
  if (!makes_vocabulary) (void)load_tokenizer(options.tokenizer);  // before a long pass
  for (const std::string& input : options.inputs) TextFile{input};
  TokenFolder folder(options.output);
  Scan found;
  std::vector<int64_t> starts(options.inputs.size(), kNoEval);
  if (makes_vocabulary || options.eval_fraction > 0) {
    found = scan(options.inputs, makes_vocabulary);
    if (options.eval_fraction > 0) starts = eval_starts(found.bytes, options.eval_fraction);
  }
  const auto tokenizer = place_tokenizer(options, found, folder.temporary());
  const bool is_uint16 = tokenizer->vocabulary() <= 65'536;
  TokenWriter train(folder.temporary() / data::kTrainTokens, is_uint16);
  std::optional<TokenWriter> eval;
  if (options.eval_fraction > 0) eval.emplace(folder.temporary() / data::kEvalTokens, is_uint16);
  Pass pass(*tokenizer, train, eval ? &*eval : nullptr, options.threads, report);
  for (size_t i = 0; i < options.inputs.size(); ++i) pass.read(options.inputs[i], starts[i]);
  pass.flush();

  finish(train, "training", "are the inputs empty?");
  if (eval) finish(*eval, "evaluation", "give a larger part, or inputs of more lines");
  TokenizeResult result = {train.counts(), eval ? eval->counts() : TokenFileCounts(),
                           tokenizer->vocabulary(), tokenizer->end_of_text(), is_uint16};
  json description = {{"format", 1},
                      {"tokenizer", tokenizer->name()},
                      {"vocabulary", result.vocabulary},
                      {"end_of_document", result.end_of_document},
                      {"type", is_uint16 ? "uint16" : "uint32"},
                      {"train", describe(train)}};
  if (eval) description["eval"] = describe(*eval);
  for (const std::string_view name : {kVocabularyName, kMergesName}) {
    const fs::path path = folder.temporary() / name;
    if (fs::exists(path)) description["xxh3_128"][std::string(name)] = digest_file(path);
  }
  write_file(folder.temporary() / data::kTokenDescription, description.dump(2) + "\n");
  folder.publish();
  return result;
}

}  // namespace brim::text
