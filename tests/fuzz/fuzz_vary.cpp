// Any bytes as the texts of --vary, one a line: only brim::Error may come out, and what is drawn
// from a range lies in it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "framework/base/error.h"
#include "framework/sweep/space.h"

namespace {

void draw_from(const brim::sweep::Parameter& parameter) {
  for (const double place : {0.0, 0.3, 0.999999}) {
    const std::string setting = brim::sweep::setting_at(parameter, place);
    if (!setting.starts_with(parameter.key + "=")) std::abort();
    if (!parameter.is_range()) continue;
    const double value = std::strtod(setting.c_str() + parameter.key.size() + 1, nullptr);
    if (!(value >= parameter.low && value <= parameter.high)) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace brim::sweep;  // one function
  static const brim::recipe::Value recipe =
      brim::recipe::parse("[a]\nreal = 0.5\nwhole = 3\nword = \"x\"\n", "fuzz.toml");
  std::vector<std::string> texts;
  std::istringstream lines(std::string(reinterpret_cast<const char*>(data), size));
  for (std::string line; std::getline(lines, line);) texts.push_back(line);
  try {
    const std::vector<Parameter> space = parse_space(texts, recipe);
    for (const Parameter& parameter : space) draw_from(parameter);
    constexpr int64_t kMax = 10000;
    const int64_t count = count_combinations(space, kMax);
    if (count < kMax && combination(space, count - 1).size() != space.size()) std::abort();
  } catch (const brim::Error&) {
  }
  return 0;
}
