// `kind = "tokens"`: rows of token ids for language models, from files in nanoGPT's format
// (token_file.h).
//
// A row has length + 1 tokens: a model sees all but the last and predicts all but the first. A
// sample's bytes are int32: with packing "stream" the tokens [length + 1], else [3, length + 1]:
//   tokens     0 in what is left of the row
//   positions  from 0 on within each document, or part of one that was cut
//   segments   1, 2, … for the documents of the row, 0 for what is left: attention stays within a
//              segment, and a token whose segment is another than the next one's predicts nothing
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "framework/data/source.h"
#include "framework/data/sources/token_file.h"

namespace brim::data {

enum class Packing {
  kStream,     // rows are windows of the file, one behind the other, each beginning with the token
               // that ends the one before; less than a row at the end is left out
  kDocuments,  // rows hold whole documents, first fit; those longer than a row are cut
  kPadded,     // rows hold one document each
};

struct TokensConfig : SourceConfig {
  std::filesystem::path train;
  std::filesystem::path eval;  // empty: no evaluation data
  TokenType type = TokenType::kUint16;
  std::optional<int64_t> vocabulary;  // nullopt: the files', or GPT-2's
  int64_t length = 1024;
  Packing packing = Packing::kStream;
  std::optional<int64_t> end_of_document;  // nullopt: the file's, or the last of the vocabulary

  void fields(recipe::Fields& f) override;
  std::unique_ptr<Dataset> open_train(const AugmentConfig& augment) const override;
  std::unique_ptr<Dataset> open_eval() const override;
  std::optional<TokenShape> token_shape() const override {
    return TokenShape{length, known_vocabulary(), packing != Packing::kStream};
  }
  std::filesystem::path tokenizer_folder() const override {
    return train.has_parent_path() ? train.parent_path() : ".";
  }
  /// As given, else as tokens.json beside the files says, else GPT-2's.
  int64_t known_vocabulary() const;
  /// A file, or what stands for one, with these options; `usual_end` is the end of a document where
  /// they give none. Reads all of it unless packing is kStream. The bytes given to the dataset's
  /// read() are aligned for int32.
  std::unique_ptr<Dataset> open(std::unique_ptr<ByteSource> bytes,
                                std::optional<int64_t> usual_end = {}) const;
};

}  // namespace brim::data
