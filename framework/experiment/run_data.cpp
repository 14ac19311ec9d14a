#include "framework/experiment/run_data.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <limits>
#include <system_error>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/units.h"
#include "framework/telemetry/run_record.h"

namespace brim::experiment {
namespace fs = std::filesystem;

namespace {

constexpr size_t kBlockBytes = size_t{1} << 20;  // read at once
constexpr size_t kLongestLineBytes = size_t{1} << 22;
constexpr size_t kMaxMetrics = 256;
constexpr size_t kMaxMetricNameBytes = 128;
constexpr double kLastStep = 9e15;  // steps are whole numbers that a double holds exactly

bool is_there(const fs::path& path) {
  std::error_code error;
  const bool found = fs::exists(path, error);
  if (error) throw Error(Exit::kResource, "{}: {}", path.string(), error.message());
  return found;
}

std::string text_of(const fs::path& path) {
  return is_there(path) ? read_file(path, Exit::kResource, telemetry::kLongestRunFile)
                        : std::string();
}

std::string name_of(const fs::path& folder) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(folder, error);
  const fs::path& path = error ? folder : whole;
  return path.filename().empty() ? path.string() : path.filename().string();
}

/// Of a line's step and its times, those that no run can have. Null says nothing. A phase may be
/// negative by what another one was given of it (Timeline::move).
bool is_beyond_reason(const LineMetric& metric) {
  if (metric.section.empty() && metric.key == "step") {
    return !(metric.value >= 0 && metric.value <= kLastStep);
  }
  if (metric.section.empty() && metric.key == "step_s") {
    return metric.value < 0 || metric.value > kMaxRunS;
  }
  const bool is_time = metric.section == "phases_s" || metric.section == "overlapped_s";
  return is_time && std::abs(metric.value) > kMaxRunS;
}

}  // namespace

FileVersion version_of(const fs::path& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) return {};
  return {status.st_ino, status.st_size,
          status.st_mtim.tv_sec * int64_t{1'000'000'000} + status.st_mtim.tv_nsec};
}

const Series* RunData::metric(std::string_view name) const {
  const auto found = metrics.find(name);
  return found == metrics.end() || found->second.empty() ? nullptr : &found->second;
}

std::optional<BestEvaluation> RunData::best_evaluation() const {
  const bool has_tokens = metric("tokens_per_s") != nullptr;
  const Series* top1 = metric("eval_top1");
  if (top1 != nullptr && !has_tokens) return BestEvaluation{"top1", top1->high(), top1->last()};
  const Series* loss = metric("eval_loss");
  if (loss == nullptr) return std::nullopt;
  return BestEvaluation{"loss", loss->low(), loss->last()};
}

int64_t RunData::last_step() const {
  int64_t last = 0;
  for (const auto& [name, series] : metrics) last = std::max(last, series.last_step());
  return last;
}

const nlohmann::json& RunData::first_part() const {
  const auto earlier = record.find("earlier");
  const bool is_resumed = earlier != record.end() && earlier->is_array() && !earlier->empty() &&
                          earlier->front().is_object();
  return is_resumed ? earlier->front() : record;
}

int64_t RunData::steps() const {
  const int64_t before = integer_at(first_part(), "after_step").value_or(0);
  return std::max<int64_t>(0, last_step() - std::max<int64_t>(0, before));
}

std::vector<std::string> RunData::remarks() const {
  std::vector<std::string> words = notices;
  if (lines == 0) words.emplace_back("metrics.jsonl holds no step yet");
  if (damaged_lines > 0) {
    words.push_back(fmt::format("{} of metrics.jsonl {} left out as damaged",
                                format_plural(damaged_lines, "line"),
                                damaged_lines == 1 ? "was" : "were"));
  }
  if (torn_bytes > 0) {
    words.push_back(fmt::format("the last line of metrics.jsonl is torn after {} and was left out",
                                format_plural(torn_bytes, "byte")));
  }
  if (left_out_metrics > 0) {
    words.push_back(
        fmt::format("only the first {} metrics were read; {} values of others "
                    "were left out",
                    kMaxMetrics, left_out_metrics));
  }
  return words;
}

RunReader::RunReader(const fs::path& folder) : file_(nullptr, &std::fclose) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (status.type() == fs::file_type::not_found) {
    throw Error(Exit::kData, "{}: expected the folder of a run, found nothing there",
                folder.string());
  }
  if (error) throw Error(Exit::kResource, "{}: {}", folder.string(), error.message());
  if (status.type() != fs::file_type::directory) {
    throw Error(Exit::kData, "{}: expected the folder of a run, found a file", folder.string());
  }
  if (!is_there(folder / "run.json") && !is_there(folder / "metrics.jsonl")) {
    throw Error(Exit::kData,
                "{}: expected the folder of a run (as trainer --output makes it), found neither "
                "run.json nor metrics.jsonl in it{}",
                folder.string(),
                is_there(folder / "sweep.db")
                    ? "; a sweep's runs are in its folder trials, its page is sweep.html"
                    : "");
  }
  data_.folder = folder;
  data_.name = name_of(folder);
  read_files();
}

/// run.json and recipe.toml, where they have changed.
bool RunReader::read_files() {
  const fs::path record = data_.folder / "run.json", recipe = data_.folder / "recipe.toml";
  const std::array versions = {version_of(record), version_of(recipe)};
  if (versions == versions_ && data_.record.is_object()) return false;
  versions_ = versions;
  data_.notices.clear();
  data_.recipe = text_of(recipe);
  if (data_.recipe.empty()) data_.notices.emplace_back("recipe.toml is missing or empty");
  const std::string text = text_of(record);
  data_.record = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (data_.record.is_object()) return true;
  data_.record = nlohmann::json::object();
  data_.notices.emplace_back(text.empty() ? "run.json is missing or empty"
                                          : "run.json is damaged and was left out");
  return true;
}

/// From the start of the file, with nothing taken in.
void RunReader::open() {
  data_.metrics.clear();
  data_.age_s = {};
  data_.ended_s = 0;
  data_.restarts.clear();
  data_.texts.clear();
  earlier_s_ = 0.0;
  data_.lines = data_.damaged_lines = data_.left_out_metrics = data_.torn_bytes = 0;
  data_.losses = data_.losses_not_finite = 0;
  expected_.clear();
  unfinished_.clear();
  is_too_long_ = false;
  read_bytes_ = 0;
  const fs::path path = data_.folder / "metrics.jsonl";
  file_ = open_stream(path, Exit::kResource);
}

bool RunReader::update() {
  const bool are_files_new = read_files();
  return read_metrics() || are_files_new;
}

bool RunReader::read_metrics() {
  const fs::path path = data_.folder / "metrics.jsonl";
  struct stat now = {};
  const bool is_found = ::stat(path.c_str(), &now) == 0;
  if (file_ == nullptr || !is_found || now.st_ino != file_number_ || now.st_size < read_bytes_) {
    open();
    file_number_ = now.st_ino;
    if (file_ == nullptr) return false;
  }
  std::clearerr(file_.get());
  std::string block(kBlockBytes, '\0');
  bool is_new = false;
  while (const size_t got = std::fread(block.data(), 1, block.size(), file_.get())) {
    read_bytes_ += static_cast<int64_t>(got);
    take_block(std::string_view(block).substr(0, got));
    is_new = true;
  }
  if (std::ferror(file_.get()) != 0) {
    throw Error(Exit::kResource, "{}: cannot read: {}", path.string(), errno_text(errno));
  }
  data_.torn_bytes = static_cast<int64_t>(unfinished_.size());
  return is_new;
}

void RunReader::take_block(std::string_view block) {
  while (!block.empty()) {
    const size_t end = block.find('\n');
    const std::string_view piece = block.substr(0, end);
    if (end != std::string_view::npos && unfinished_.empty()) {
      take_line(piece);
    } else {
      if (unfinished_.size() + piece.size() > kLongestLineBytes) is_too_long_ = true;
      if (!is_too_long_) unfinished_ += piece;
      if (end == std::string_view::npos) return;
      is_too_long_ ? void(++data_.damaged_lines) : take_line(unfinished_);
      unfinished_.clear();
      is_too_long_ = false;
    }
    block.remove_prefix(end + 1);
  }
}

void RunReader::take_line(std::string_view line) {
  if (!read_metrics_line(line, line_)) {
    ++data_.damaged_lines;
    return;
  }
  const auto step = std::ranges::find_if(line_, [](const LineMetric& metric) {
    return metric.section.empty() && metric.key == "step";
  });
  if (step == line_.end()) return;
  if (std::ranges::any_of(line_, is_beyond_reason)) {
    ++data_.damaged_lines;
    return;
  }
  if (take_end()) return;
  ++data_.lines;
  const auto at = static_cast<int64_t>(step->value);
  take_age(at);
  if (line_.size() == 1) take_text(at, line);
  for (size_t i = 0; i < line_.size(); ++i) {
    if (i == static_cast<size_t>(step - line_.begin())) continue;
    const LineMetric& metric = line_[i];
    if (metric.section.empty() && metric.key == "loss") count_loss(metric.value);
    // Most lines have the metrics of the one before, in the same order.
    if (i >= expected_.size()) expected_.resize(i + 1);
    Expected& expected = expected_[i];
    if (expected.series == nullptr || expected.key != metric.key ||
        expected.section != metric.section) {
      expected = {std::string(metric.section), std::string(metric.key), find(metric)};
    }
    if (expected.series != nullptr) {
      expected.series->add(at, metric.value);
    } else {
      ++data_.left_out_metrics;
    }
  }
}

void RunReader::count_loss(double loss) {
  ++data_.losses;
  if (!std::isfinite(loss)) ++data_.losses_not_finite;
}

/// Not-a-number where the line has none.
RunReader::Ages RunReader::ages() const {
  Ages ages;
  for (const LineMetric& metric : line_) {
    if (!metric.section.empty()) continue;
    if (metric.key == "process_age_s") ages.process_s = metric.value;
    if (metric.key == "run_age_s") ages.run_s = metric.value;
  }
  return ages;
}

/// The last line of a process that was not killed has its ages alone.
bool RunReader::take_end() {
  if (line_.size() != 3) return false;
  const auto [process_s, run_s] = ages();
  if (!(process_s >= 0 && run_s >= 0)) return false;
  data_.ended_s = std::max(data_.ended_s, run_s);
  return true;
}

/// Other lines have the age of their process and, in files of newer versions, that of the run. In
/// older ones a process that is younger than the one before has taken over from it.
void RunReader::take_age(int64_t step) {
  constexpr double kRounding = 1e-3;
  const auto [process_s, run_s] = ages();
  if (!std::isfinite(process_s)) return;
  const double before_s = data_.age_s.empty() ? 0.0 : data_.age_s.last();
  double earlier_s = earlier_s_;
  if (std::isfinite(run_s)) {
    earlier_s = run_s - process_s;
  } else if (earlier_s + process_s < before_s) {
    earlier_s = before_s;
  }
  if (earlier_s > earlier_s_ + kRounding && !data_.age_s.empty() &&
      data_.restarts.size() < RunData::kMaxRestarts) {
    data_.restarts.push_back({data_.age_s.last_step(), earlier_s});
  }
  earlier_s_ = earlier_s;
  data_.age_s.add(step, std::max(before_s, earlier_s + process_s));
}

void RunReader::take_text(int64_t step, std::string_view line) {
  const auto object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object() || !object.contains("text") || !object["text"].is_string()) return;
  data_.texts.push_back({step, object["text"].get<std::string>()});
  if (data_.texts.size() > RunData::kMaxTexts) data_.texts.erase(data_.texts.begin());
}

/// Null where there are too many already.
Series* RunReader::find(const LineMetric& metric) {
  if (metric.section.size() + metric.key.size() > kMaxMetricNameBytes) return nullptr;
  std::string name(metric.section);
  if (!name.empty()) name += '/';
  name += metric.key;
  const auto found = data_.metrics.find(name);
  if (found != data_.metrics.end()) return &found->second;
  if (data_.metrics.size() >= kMaxMetrics) return nullptr;
  return &data_.metrics[name];
}

RunData read_run(const fs::path& folder) {
  RunReader reader(folder);
  reader.update();
  return reader.data();
}

}  // namespace brim::experiment
