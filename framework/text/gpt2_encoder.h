// The encoder of gpt2_tokenizer.h: words, those it remembers, and the merging of the others.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "framework/text/gpt2_tokenizer.h"

namespace brim::text {

/// Refers to `tables`. Not thread-safe.
class Gpt2Encoder final : public Encoder {
 public:
  explicit Gpt2Encoder(const MergeTables& tables) : tables_(tables) {}

  void encode(std::string_view text, std::vector<int32_t>& ids) override;

 private:
  /// A token of the word that is being merged; a list through the array.
  struct Symbol {
    int32_t id;  // -1: merged into the one before
    int32_t previous;
    int32_t next;
  };
  /// A pair that may be merged: the lowest rank first, then the leftmost.
  struct Candidate {
    int32_t rank;
    int32_t at;    // of the left part
    int32_t left;  // ids of both parts as they were
    int32_t right;
    int32_t merged;
    bool operator<(const Candidate& other) const {  // for a heap with the first in front
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  struct Slice {
    size_t first;
    size_t count;
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view word) const { return std::hash<std::string_view>()(word); }
  };

  void encode_word(std::string_view word, std::vector<int32_t>& ids);
  void merge(std::string_view word, std::vector<int32_t>& ids);
  void consider(int32_t at);
  void join(const Candidate& pair);
  void remember(std::string_view word, const std::vector<int32_t>& ids, size_t first);

  const MergeTables& tables_;
  std::vector<Symbol> parts_;
  std::vector<Candidate> heap_;
  std::unordered_map<std::string, Slice, Hash, std::equal_to<>> known_;
  std::vector<int32_t> known_ids_;
};

}  // namespace brim::text
