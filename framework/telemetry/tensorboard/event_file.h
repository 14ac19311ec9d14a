// TensorBoard event files with scalars, histograms, text and hyperparameters. The few protobuf
// messages are encoded by hand: LibTorch's wheel exports its own protobuf symbols, so linking
// libprotobuf beside it is unsafe. Messages: event.proto, summary.proto and tensor.proto in
// tensorboard/compat/proto.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "framework/telemetry/append_file.h"
#include "framework/telemetry/tensorboard/histogram.h"

namespace brim::telemetry {

/// Seconds since 1970, as TensorBoard wants them.
double wall_time_s();

/// A new file `events.out.tfevents.<unix>.<host>.<pid>.brim` in a folder that exists. Errors and
/// threads are AppendFile's. Tags are UTF-8.
class EventFile {
 public:
  explicit EventFile(const std::filesystem::path& folder);

  void add_scalar(std::string_view tag, int64_t step, double value,
                  double wall_time = wall_time_s());
  void add_histogram(std::string_view tag, int64_t step, const Histogram& histogram);
  /// Markdown. Text over 1 MiB is cut there, with a last line that says so.
  void add_text(std::string_view tag, int64_t step, std::string_view text,
                double wall_time = wall_time_s());
  /// An entry of TensorBoard's hyperparameters: `plugin_data` is the message of plugin_data.proto.
  void add_hparams(std::string_view tag, int64_t step, std::string_view plugin_data);
  void flush() { file_.flush(); }
  void close() { file_.close(); }
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  void add_value(std::string_view tag, int64_t step, std::string_view value_fields,
                 double wall_time);
  AppendFile file_;
};

/// On resume: in each of our event files of `folder` drops the events whose step is greater than
/// `step`, and whatever follows a torn or damaged record. Each file is replaced whole or left as it
/// is. Holds one event in memory; a folder that isn't there is fine.
void cut_back_events(const std::filesystem::path& folder, int64_t step);

}  // namespace brim::telemetry
