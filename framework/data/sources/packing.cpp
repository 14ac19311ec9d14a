#include "framework/data/sources/packing.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

namespace brim::data {
namespace {

constexpr int64_t kChunk = 1 << 16;

/// Adds tokens first … end - 1 as runs.
void cut(int64_t first, int64_t end, int64_t longest, std::vector<TokenRun>& runs) {
  for (; first + 1 < end; first += longest - 1) {
    runs.push_back({first, std::min(longest, end - first)});
  }
}

/// The room in each of so many rows, as a tournament: a node holds the most of its two children.
class Room {
 public:
  Room(size_t rows, int64_t row_tokens)
      : leaves_(std::bit_ceil(rows)), max_(2 * leaves_, static_cast<int32_t>(row_tokens)) {}

  /// Takes `count` from the first row that has it, and returns that row.
  size_t take(int64_t count) {
    size_t node = 1;
    while (node < leaves_) node = 2 * node + (max_[2 * node] >= count ? 0 : 1);
    max_[node] -= static_cast<int32_t>(count);
    const size_t row = node - leaves_;
    for (node /= 2; node > 0; node /= 2) max_[node] = std::max(max_[2 * node], max_[2 * node + 1]);
    return row;
  }

 private:
  size_t leaves_;
  std::vector<int32_t> max_;  // the root is 1, the children of i are 2i and 2i + 1
};

}  // namespace

std::vector<TokenRun> find_documents(const TokenFile& file, int64_t end, int64_t longest) {
  std::vector<TokenRun> runs;
  std::vector<int32_t> tokens;
  int64_t document = 0;  // where the current one begins
  for (int64_t first = 0; first < file.size(); first += kChunk) {
    tokens.resize(static_cast<size_t>(std::min(kChunk, file.size() - first)));
    file.read(first, tokens);
    for (auto found = tokens.begin();; ++found) {
      found = std::find(found, tokens.end(), end);
      if (found == tokens.end()) break;
      const int64_t next = first + (found - tokens.begin()) + 1;
      cut(document, next, longest, runs);
      document = next;
    }
  }
  cut(document, file.size(), longest, runs);
  return runs;
}

PackedRows PackedRows::first_fit(const std::vector<TokenRun>& runs, int64_t row_tokens) {
  PackedRows result;
  Room room(std::max<size_t>(runs.size(), 1), row_tokens);
  std::vector<size_t> rows;  // by run
  rows.reserve(runs.size());
  for (const TokenRun& run : runs) {
    rows.push_back(room.take(run.count));
    if (rows.back() == result.ends_.size()) result.ends_.push_back(0);
    ++result.ends_[rows.back()];
  }
  std::partial_sum(result.ends_.begin(), result.ends_.end(), result.ends_.begin());
  std::vector<int64_t> next = result.ends_;  // by row: one past where its next run goes, backwards
  result.runs_.resize(runs.size());
  for (size_t i = runs.size(); i-- > 0;) {
    result.runs_[static_cast<size_t>(--next[rows[i]])] = runs[i];
  }
  return result;
}

PackedRows PackedRows::one_each(std::vector<TokenRun> runs) {
  PackedRows result;
  result.runs_ = std::move(runs);
  result.ends_.resize(result.runs_.size());
  std::iota(result.ends_.begin(), result.ends_.end(), 1);
  return result;
}

std::span<const TokenRun> PackedRows::row(int64_t index) const {
  const auto i = static_cast<size_t>(index);
  const auto first = static_cast<size_t>(i == 0 ? 0 : ends_[i - 1]);
  return std::span(runs_).subspan(first, static_cast<size_t>(ends_[i]) - first);
}

}  // namespace brim::data
