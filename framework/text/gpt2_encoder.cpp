#include "framework/text/gpt2_encoder.h"

#include <algorithm>

#include "framework/text/gpt2_words.h"

namespace brim::text {
namespace {

constexpr size_t kLongestKnown = 64;  // bytes of a word that is worth remembering
constexpr size_t kMaxKnown = 65'536;

}  // namespace

void Gpt2Encoder::encode(std::string_view text, std::vector<int32_t>& ids) {
  while (!text.empty()) {
    const size_t size = first_word(text);
    for (size_t at = 0; at < size; at += kLongestWord) {
      encode_word(text.substr(at, std::min(kLongestWord, size - at)), ids);
    }
    text.remove_prefix(size);
  }
}

void Gpt2Encoder::encode_word(std::string_view word, std::vector<int32_t>& ids) {
  if (word.size() > kLongestKnown) return merge(word, ids);
  if (const auto found = known_.find(word); found != known_.end()) {
    const int32_t* const first = known_ids_.data() + found->second.first;
    ids.insert(ids.end(), first, first + found->second.count);
    return;
  }
  const size_t first = ids.size();
  merge(word, ids);
  remember(word, ids, first);
}

void Gpt2Encoder::remember(std::string_view word, const std::vector<int32_t>& ids, size_t first) {
  if (known_.size() == kMaxKnown) {
    known_.clear();
    known_ids_.clear();
  }
  known_.emplace(word, Slice{known_ids_.size(), ids.size() - first});
  known_ids_.insert(known_ids_.end(), ids.begin() + static_cast<ptrdiff_t>(first), ids.end());
}

void Gpt2Encoder::merge(std::string_view word, std::vector<int32_t>& ids) {
  parts_.clear();
  heap_.clear();
  const auto size = static_cast<int32_t>(word.size());
  for (int32_t i = 0; i < size; ++i) {
    const auto byte = static_cast<uint8_t>(word[static_cast<size_t>(i)]);
    parts_.push_back({tables_.byte_ids.at(byte), i - 1, i + 1 == size ? -1 : i + 1});
  }
  for (int32_t i = 0; i < size; ++i) consider(i);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end());
    const Candidate pair = heap_.back();
    heap_.pop_back();
    join(pair);
  }
  for (int32_t at = 0; at >= 0; at = parts_[static_cast<size_t>(at)].next) {
    ids.push_back(parts_[static_cast<size_t>(at)].id);
  }
}

/// Puts the pair that begins at `at` into the heap where it is in the table.
void Gpt2Encoder::consider(int32_t at) {
  const Symbol& left = parts_[static_cast<size_t>(at)];
  if (left.next < 0) return;
  const int32_t right = parts_[static_cast<size_t>(left.next)].id;
  const PairTable::Result result = tables_.pairs.find(left.id, right);
  if (result.rank < 0) return;
  heap_.push_back({result.rank, at, left.id, right, result.merged});
  std::push_heap(heap_.begin(), heap_.end());
}

/// Merges a pair, unless one of its parts has been merged with another since.
void Gpt2Encoder::join(const Candidate& pair) {
  Symbol& left = parts_[static_cast<size_t>(pair.at)];
  if (left.id != pair.left || left.next < 0) return;
  Symbol& right = parts_[static_cast<size_t>(left.next)];
  if (right.id != pair.right) return;
  left.id = pair.merged;
  left.next = right.next;
  right.id = -1;
  if (left.next >= 0) parts_[static_cast<size_t>(left.next)].previous = pair.at;
  if (left.previous >= 0) consider(left.previous);
  consider(pair.at);
}

}  // namespace brim::text
