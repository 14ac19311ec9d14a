#include "framework/cli/eval_classes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "framework/base/columns.h"

namespace brim::cli {
namespace {

using train::ClassResult;

constexpr size_t kShownClasses = 10;
constexpr size_t kShownMistakes = 3;

double share_correct(const ClassResult& result) {
  return static_cast<double>(result.correct) / static_cast<double>(result.samples);
}

/// "cat (3), ship (1)": the commonest mistakes.
std::string mistakes(const ClassResult& result, size_t label,
                     const std::vector<std::string>& names) {
  std::vector<size_t> others(result.taken_for.size());
  std::iota(others.begin(), others.end(), 0);
  std::erase_if(others, [&](size_t i) { return i == label || result.taken_for[i] == 0; });
  std::ranges::stable_sort(others, std::greater<>{}, [&](size_t i) { return result.taken_for[i]; });
  std::string text;
  for (size_t i = 0; i < std::min(others.size(), kShownMistakes); ++i) {
    text += fmt::format("{}{} ({})", i == 0 ? "" : ", ", names.at(others[i]),
                        result.taken_for[others[i]]);
  }
  if (others.size() > kShownMistakes) text += ", …";
  return text;
}

}  // namespace

std::string hardest_classes(const std::vector<ClassResult>& results,
                            const std::vector<std::string>& names) {
  std::vector<size_t> labels(results.size());
  std::iota(labels.begin(), labels.end(), 0);
  std::erase_if(labels, [&](size_t i) { return results[i].correct == results[i].samples; });
  if (labels.empty()) return "";
  std::ranges::stable_sort(labels, {}, [&](size_t i) { return share_correct(results[i]); });
  const size_t wrong = labels.size();
  labels.resize(std::min(wrong, kShownClasses));
  size_t width = std::string("class").size();
  for (const size_t label : labels) width = std::max(width, width_of(names.at(label)));
  std::string text = fmt::format("{}  samples  correct  taken for\n", pad_right("class", width));
  for (const size_t label : labels) {
    const ClassResult& result = results[label];
    text +=
        fmt::format("{}  {:>7}  {:>5.1f} %  {}\n", pad_right(names.at(label), width),
                    result.samples, 100 * share_correct(result), mistakes(result, label, names));
  }
  if (wrong > labels.size()) {
    text += fmt::format("and {} more with mistakes; --json has all\n", wrong - labels.size());
  }
  return text;
}

}  // namespace brim::cli
