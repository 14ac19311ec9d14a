#include "framework/telemetry/metrics_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/log.h"
#include "framework/base/units.h"

namespace brim::telemetry {
namespace {

using nlohmann::json;

constexpr size_t kBlockBytes = size_t{1} << 16;
constexpr size_t kLongestLineBytes = size_t{1} << 22;  // ours have a few hundred bytes
constexpr uint64_t kMaxStep = uint64_t{1} << 48;       // a step beyond it is damage

enum class Verdict { kKeep, kLater, kDamaged };

/// `last` becomes the line's step where that is later.
Verdict judge(const json& object, int64_t step, int64_t& last) {
  if (!object.is_object()) return Verdict::kDamaged;
  const auto found = object.find("step");
  if (found == object.end() || !found->is_number()) return Verdict::kKeep;
  if (found->is_number_unsigned() && found->get<uint64_t>() <= kMaxStep) {
    last = std::max(last, found->get<int64_t>());
  }
  if (found->is_number_unsigned()) {  // may lie beyond int64
    return step < 0 || found->get<uint64_t>() > static_cast<uint64_t>(step) ? Verdict::kLater
                                                                            : Verdict::kKeep;
  }
  const bool later = found->is_number_integer() ? found->get<int64_t>() > step
                                                : found->get<double>() > static_cast<double>(step);
  return later ? Verdict::kLater : Verdict::kKeep;
}

/// Calls take(line, is_whole) for each line of the file, without its newline. A line over
/// kLongestLineBytes arrives cut short, so it can't parse and counts as damaged.
template <class Take>
void for_each_line(std::FILE* file, const std::filesystem::path& path, Take take) {
  std::vector<char> block(kBlockBytes);
  std::string line;
  while (true) {
    const size_t got = std::fread(block.data(), 1, block.size(), file);
    std::string_view rest(block.data(), got);
    while (!rest.empty()) {
      const size_t end = rest.find('\n');
      const std::string_view piece = rest.substr(0, end);
      line += piece.substr(0, kLongestLineBytes - std::min(kLongestLineBytes, line.size()));
      if (end == std::string_view::npos) break;
      take(line, true);
      line.clear();
      rest.remove_prefix(end + 1);
    }
    if (got < block.size()) break;
  }
  if (std::ferror(file) != 0) {
    throw Error(Exit::kResource, "{}: cannot read: {}", path.string(), errno_text(errno));
  }
  if (!line.empty()) take(line, false);
}

}  // namespace

std::string MetricsFile::append(const json& line) {
  std::string text = json_line(line);
  file_.append(text);
  return text;
}

int64_t cut_back_metrics(const std::filesystem::path& path, int64_t step,
                         const std::function<void(const json& line)>& look) {
  int64_t last = step;
  const FileStream file = open_stream(path, Exit::kResource);
  if (file == nullptr) return last;
  AtomicFile shorter(path);
  std::string kept;
  int64_t dropped = 0;
  int64_t damaged = 0;
  for_each_line(file.get(), path, [&](const std::string& line, bool is_whole) {
    const json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (look && object.is_object()) look(object);
    const Verdict verdict = judge(object, step, last);
    if (verdict != Verdict::kKeep || !is_whole) {
      ++dropped;
      if (verdict == Verdict::kDamaged && is_whole) ++damaged;
      return;
    }
    kept += line;
    kept += '\n';
    if (kept.size() >= kBlockBytes) {
      shorter.write(kept);
      kept.clear();
    }
  });
  if (damaged > 0) {
    log::warning("{}: dropped {} (not JSON objects)", path.string(),
                 format_plural(damaged, "damaged line"));
  }
  if (dropped == 0) return last;
  shorter.write(kept);
  shorter.commit();
  return last;
}

}  // namespace brim::telemetry
