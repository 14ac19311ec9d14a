// Text to token files, as the dataset `tokens` reads them (framework/data/sources/token_file.h), in
// a folder that is whole or not there:
//   train.bin, eval.bin      little-endian uint16, or uint32 for over 65,536 ids; each document
//                            followed by the id that ends one
//   vocab.json, merges.txt   the tokenizer's files, where it has any
//   tokens.json              tokenizer, vocabulary, type, and each file's counts and digest
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "framework/text/tokenizer_files.h"

namespace brim::text {

struct TokenizeOptions {
  std::vector<std::string> inputs;  // taken in this order; see piece_reader.h
  std::filesystem::path output;     // a folder that isn't there yet, or an empty one
  TokenizerFiles tokenizer;         // `chars` without a vocabulary: the characters of the inputs
  double eval_fraction = 0;  // of the bytes of text: its end, from the beginning of a line on
  int64_t threads = 1;       // the files don't depend on it
};

struct TokenFileCounts {
  int64_t tokens = 0;
  int64_t documents = 0;
  int64_t text_bytes = 0;
};

struct TokenizeResult {
  TokenFileCounts train;
  TokenFileCounts eval;  // tokens 0: there is no such file
  int64_t vocabulary = 0;
  int32_t end_of_document = 0;
  bool is_uint16 = true;
};

/// `report` is told the bytes of text that are done, from this thread. Reads the inputs twice for
/// an eval_fraction and for `chars` without a vocabulary. Throws Error(kRecipe) where `output` has
/// something in it, Error(kData) for inputs, Error(kResource) where it can't be written,
/// Error(kStopped) on request; there is no output then.
TokenizeResult tokenize(const TokenizeOptions& options,
                        const std::function<void(int64_t)>& report = {});

}  // namespace brim::text
