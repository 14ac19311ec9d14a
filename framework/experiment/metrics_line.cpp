#include "framework/experiment/metrics_line.h"

#include <charconv>
#include <limits>
#include <system_error>

namespace brim::experiment {
namespace {

constexpr int kDeepest = 16;  // ours nest once

class LineReader {
 public:
  LineReader(std::string_view line, std::vector<LineMetric>& metrics)
      : rest_(line), metrics_(metrics) {}

  bool read() {
    skip_blanks();
    if (!object("", 0)) return false;
    skip_blanks();
    return rest_.empty();
  }

 private:
  void skip_blanks() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\t' || rest_[0] == '\r')) {
      rest_.remove_prefix(1);
    }
  }

  bool take(char c) {
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool word(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }

  bool string(std::string_view& text) {
    if (!take('"')) return false;
    for (size_t i = 0; i < rest_.size(); ++i) {
      if (rest_[i] == '"') {
        text = rest_.substr(0, i);
        rest_.remove_prefix(i + 1);
        return true;
      }
      if (rest_[i] == '\\') ++i;
    }
    return false;
  }

  bool number(double& value) {
    const size_t sign = rest_[0] == '-' ? 1 : 0;
    if (rest_.size() <= sign || rest_[sign] < '0' || rest_[sign] > '9') return false;
    const auto [end, code] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (code == std::errc::result_out_of_range) {
      value = std::numeric_limits<double>::quiet_NaN();
    } else if (code != std::errc()) {
      return false;
    }
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return true;
  }

  /// `depth` objects and arrays are around the value; metrics are kept where that is at most two
  /// objects.
  bool value(std::string_view section, std::string_view key, int depth, bool is_kept) {
    if (rest_.empty() || depth > kDeepest) return false;
    switch (rest_[0]) {
      case '{':
        return depth == 1 && is_kept ? object(key, depth) : object("", depth, false);
      case '[':
        return array(depth);
      case '"': {
        std::string_view ignored;
        return string(ignored);
      }
      case 't':
        return word("true");
      case 'f':
        return word("false");
      case 'n':
        if (is_kept) {
          metrics_.push_back({section, key, std::numeric_limits<double>::quiet_NaN()});
        }
        return word("null");
      default: {
        double metric = 0.0;
        if (!number(metric)) return false;
        if (is_kept) metrics_.push_back({section, key, metric});
        return true;
      }
    }
  }

  bool object(std::string_view section, int depth, bool is_kept = true) {
    if (!take('{')) return false;
    skip_blanks();
    if (take('}')) return true;
    do {
      skip_blanks();
      std::string_view key;
      if (!string(key)) return false;
      skip_blanks();
      if (!take(':')) return false;
      skip_blanks();
      if (!value(section, key, depth + 1, is_kept)) return false;
      skip_blanks();
    } while (take(','));
    return take('}');
  }

  bool array(int depth) {
    take('[');
    skip_blanks();
    if (take(']')) return true;
    do {
      skip_blanks();
      if (!value("", "", depth + 1, false)) return false;
      skip_blanks();
    } while (take(','));
    return take(']');
  }

  std::string_view rest_;
  std::vector<LineMetric>& metrics_;
};

}  // namespace

bool read_metrics_line(std::string_view line, std::vector<LineMetric>& metrics) {
  metrics.clear();
  return LineReader(line, metrics).read();
}

}  // namespace brim::experiment
