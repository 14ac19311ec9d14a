// A run's folder as reports and diagnoses see it: run.json, recipe.toml and the metrics of
// metrics.jsonl, which are read line by line in bounded memory, also while the run is still going.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/experiment/metrics_line.h"
#include "framework/experiment/series.h"

namespace brim::experiment {

/// The longest time that a run can take, 10⁹ hours: a line with more is damaged.
constexpr double kMaxRunS = 3.6e12;

/// Changes with a file's content, unless that is written over in place within a clock tick.
struct FileVersion {
  uint64_t number = 0;  // its inode; 0: there is no such file
  int64_t bytes = 0;
  int64_t changed_ns = 0;

  friend bool operator==(const FileVersion&, const FileVersion&) = default;
};
FileVersion version_of(const std::filesystem::path& file);

/// Where another process took over.
struct Restart {
  int64_t step = 0;    // the last one that was kept of the process before
  double age_s = 0.0;  // of the run
};

/// What a language model wrote after the evaluation of that step.
struct WrittenText {
  int64_t step = 0;
  std::string text;
};

/// A run's best evaluation.
struct BestEvaluation {
  std::string metric;  // "top1", or "loss"
  double value = 0.0;
  double last = 0.0;  // the same of the last evaluation
};

struct RunData {
  std::filesystem::path folder;
  std::string name;       // the folder's
  nlohmann::json record;  // run.json; an empty object where there is none
  std::string recipe;     // recipe.toml as it stands; "" where there is none
  /// By "key" or "section/key": "loss", "phases_s/forward", "eval_top1".
  std::map<std::string, Series, std::less<>> metrics;
  /// The run's age by step in seconds: the time during which its processes ran.
  Series age_s;
  double ended_s = 0;  // the run's age when its last process ended; 0: it runs, or was killed
  std::vector<Restart> restarts;  // the first kMaxRestarts of them
  static constexpr size_t kMaxRestarts = 200;
  std::vector<WrittenText> texts;  // the newest kMaxTexts, the newest last
  static constexpr size_t kMaxTexts = 3;
  int64_t lines = 0;  // with a step
  int64_t damaged_lines = 0;
  int64_t losses = 0, losses_not_finite = 0;  // that lines have of training; null is not finite
  int64_t left_out_metrics = 0;               // over the number that is kept
  int64_t torn_bytes = 0;            // of a last line without its end: being written, or cut off
  std::vector<std::string> notices;  // of run.json and recipe.toml

  /// Null where the run has no such metric.
  const Series* metric(std::string_view name) const;
  /// By the lowest loss where samples are tokens or the run has no accuracy, else by the highest
  /// accuracy; absent before the first evaluation.
  std::optional<BestEvaluation> best_evaluation() const;
  int64_t last_step() const;
  /// What run.json says of the run's first part: all of it, where the run was never resumed.
  const nlohmann::json& first_part() const;
  /// The steps that the run has taken itself: it may have begun with another run's state.
  int64_t steps() const;
  /// What a reader should know of what is missing or was left out, in words.
  std::vector<std::string> remarks() const;
};

/// Reads a run and follows it. Not thread-safe.
class RunReader {
 public:
  /// Throws Error: kData where the folder is not a run's, kResource where it can't be read.
  explicit RunReader(const std::filesystem::path& folder);

  /// Takes in what the run has written since the last call; all of it again where metrics.jsonl was
  /// cut back, as by a resumed run. Throws Error(kResource). True where there was something new.
  bool update();

  const RunData& data() const { return data_; }

 private:
  struct Expected {
    std::string section;
    std::string key;
    Series* series;
  };
  struct Ages {
    double process_s = std::numeric_limits<double>::quiet_NaN();
    double run_s = std::numeric_limits<double>::quiet_NaN();
  };
  bool read_files();
  bool read_metrics();
  void open();
  void take_block(std::string_view block);
  void take_line(std::string_view line);
  void count_loss(double loss);
  Ages ages() const;
  bool take_end();
  void take_age(int64_t step);
  void take_text(int64_t step, std::string_view line);
  Series* find(const LineMetric& metric);

  RunData data_;
  std::array<FileVersion, 2> versions_;  // of run.json and recipe.toml, as they were read
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  uint64_t file_number_ = 0;  // its inode
  int64_t read_bytes_ = 0;
  std::string unfinished_;  // the bytes after the last line's end
  bool is_too_long_ = false;
  std::vector<LineMetric> line_;
  std::vector<Expected> expected_;  // the metrics of the line before, in its order
  double earlier_s_ = 0.0;          // the run's age when the process of the last line began
};

/// A whole run at once.
RunData read_run(const std::filesystem::path& folder);

}  // namespace brim::experiment
