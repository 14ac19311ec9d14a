// trainer data tokenize: text files to token files.

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/base/units.h"
#include "framework/cli/commands.h"
#include "framework/cli/options.h"
#include "framework/data/sources/token_file.h"
#include "framework/text/tokenize.h"

namespace brim::cli {
namespace {

using nlohmann::json;
using Strings = std::vector<std::string>;

text::TokenizeOptions read_options(const cxxopts::ParseResult& parsed) {
  text::TokenizeOptions how;
  if (parsed.count("in") == 0) {
    throw UsageError("no text files given; see trainer help data tokenize");
  }
  how.inputs = parsed["in"].as<Strings>();
  how.output = required_option(parsed, "data tokenize", "output");
  how.tokenizer.name = required_option(parsed, "data tokenize", "tokenizer");
  if (parsed.count("vocab") != 0) how.tokenizer.vocabulary = parsed["vocab"].as<std::string>();
  if (parsed.count("merges") != 0) how.tokenizer.merges = parsed["merges"].as<std::string>();
  how.eval_fraction = parsed["eval-fraction"].as<double>();
  if (!(how.eval_fraction >= 0 && how.eval_fraction <= 0.9)) {
    throw UsageError("--eval-fraction: expected a number from 0 to 0.9, found {}",
                     how.eval_fraction);
  }
  how.threads = threads_option(parsed);
  return how;
}

json counts_json(const text::TokenFileCounts& counts) {
  return {{"tokens", counts.tokens},
          {"documents", counts.documents},
          {"text_bytes", counts.text_bytes}};
}

void print_result(const text::TokenizeResult& done, const std::string& folder, double seconds) {
  const auto line = [&](std::string_view name, const text::TokenFileCounts& counts) {
    fmt::print("{}/{}: {} of {}, {:.2f} bytes of text a token\n", folder, name,
               format_plural(counts.tokens, "token"), format_plural(counts.documents, "document"),
               static_cast<double>(counts.text_bytes) / static_cast<double>(counts.tokens));
  };
  line(data::kTrainTokens, done.train);
  if (done.eval.tokens > 0) line(data::kEvalTokens, done.eval);
  fmt::print("{}; in a recipe:\n\n[data]\nkind = \"tokens\"\ntype = \"{}\"\nvocabulary = {}\n",
             format_duration(seconds), done.is_uint16 ? "uint16" : "uint32", done.vocabulary);
  fmt::print("[data.train]\npath = \"{}/{}\"\n", folder, data::kTrainTokens);
  if (done.eval.tokens == 0) return;
  fmt::print("[data.eval]\npath = \"{}/{}\"\n", folder, data::kEvalTokens);
}

int tokenize_data(const cxxopts::ParseResult& parsed, std::span<char* const> /*argv*/) {
  const text::TokenizeOptions how = read_options(parsed);
  const double start = now_s();
  const auto done = text::tokenize(how, [](int64_t bytes) {
    if (log::is_terminal()) log::live(fmt::format("{} of text", format_bytes(bytes)));
  });
  log::live("");
  if (parsed.count("json") == 0) {
    print_result(done, how.output.string(), now_s() - start);
    return 0;
  }
  json report = {{"train", counts_json(done.train)},
                 {"vocabulary", done.vocabulary},
                 {"type", done.is_uint16 ? "uint16" : "uint32"},
                 {"seconds", now_s() - start}};
  if (done.eval.tokens > 0) report["eval"] = counts_json(done.eval);
  fmt::print("{}\n", report.dump());
  return 0;
}

}  // namespace

Command data_tokenize_command() {
  return {.name = "data tokenize",
          .arguments = "FILE...",
          .summary = "text to token files",
          .details =
              "Makes token files from text: UTF-8, plain or gzip; .jsonl has a document's "
              "\"text\" on each line.",
          .add_options =
              [](cxxopts::Options& options) {
                using cxxopts::value;
                options.add_options()("in", "text files, taken in this order", value<Strings>(),
                                      "FILE...")("tokenizer", "how text is cut into tokens",
                                                 value<std::string>(), "bytes|chars|gpt2")(
                    "vocab", "vocab.json or tokenizer.json of gpt2, or of chars as made before",
                    value<std::string>(), "FILE")(
                    "merges", "merges.txt of gpt2 beside its vocab.json", value<std::string>(),
                    "FILE")("output", "folder to make", value<std::string>(), "DIR")(
                    "eval-fraction", "part of the text for evaluation: its end",
                    value<double>()->default_value("0"), "SHARE")(
                    "threads", "encoding threads (default: the cores)", value<int64_t>(), "N");
                add_json_option(options);
              },
          .positional = {"in"},
          .examples = {{"trainer data tokenize book.txt --tokenizer chars --output book",
                        "book/train.bin"}},
          .run = tokenize_data};
}

}  // namespace brim::cli
