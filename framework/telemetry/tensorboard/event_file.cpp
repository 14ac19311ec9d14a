#include "framework/telemetry/tensorboard/event_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/host.h"
#include "framework/telemetry/tensorboard/protobuf.h"
#include "framework/telemetry/tensorboard/tf_record.h"

namespace brim::telemetry {
namespace fs = std::filesystem;
using namespace protobuf;
namespace {

constexpr size_t kLongestText = size_t{1} << 20;
constexpr std::string_view kPrefix = "events.out.tfevents.";
constexpr std::string_view kSuffix = ".brim";

/// Takes a varint off the front; nullopt where there is none.
std::optional<uint64_t> take_varint(std::string_view& in) {
  uint64_t value = 0;
  for (size_t i = 0; i < in.size() && i < 10; ++i) {
    const auto byte = static_cast<unsigned char>(in[i]);
    value |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
    if (byte < 0x80) {
      in.remove_prefix(i + 1);
      return value;
    }
  }
  return std::nullopt;
}

/// Event.step (absent is 0); nullopt where the bytes are no message.
std::optional<int64_t> step_of(std::string_view event) {
  constexpr uint64_t kStepField = 2;
  int64_t step = 0;
  while (!event.empty()) {
    const auto key = take_varint(event);
    if (!key) return std::nullopt;
    size_t skip = 0;
    if ((*key & 7) == kVarint) {
      const auto value = take_varint(event);
      if (!value) return std::nullopt;
      if (*key >> 3 == kStepField) step = static_cast<int64_t>(*value);
    } else if ((*key & 7) == kBytes) {
      const auto length = take_varint(event);
      if (!length) return std::nullopt;
      skip = static_cast<size_t>(*length);
    } else if ((*key & 7) == kFixed64 || (*key & 7) == kFixed32) {
      skip = (*key & 7) == kFixed64 ? 8 : 4;
    } else {
      return std::nullopt;
    }
    if (skip > event.size()) return std::nullopt;
    event.remove_prefix(skip);
  }
  return step;
}

/// A TensorProto of one dimension, without its values.
std::string tensor_of(int64_t dtype, int64_t length) {
  std::string size, shape, tensor;
  put_int(size, 1, length);     // Dim.size
  put_bytes(shape, 2, size);    // TensorShapeProto.dim
  put_int(tensor, 1, dtype);    // TensorProto.dtype
  put_bytes(tensor, 2, shape);  // TensorProto.tensor_shape
  return tensor;
}

/// The fields of a Value that a plugin of TensorBoard shows.
std::string plugin_value(std::string_view tensor, std::string_view plugin) {
  std::string metadata, fields;
  put_bytes(metadata, 1, plugin);  // SummaryMetadata.plugin_data
  put_bytes(fields, 8, tensor);    // Value.tensor
  put_bytes(fields, 9, metadata);  // Value.metadata
  return fields;
}

// --- files ---

fs::path new_file_name(const fs::path& folder) {
  // TensorBoard reads a folder's files in the order of their names, so a name that is taken (a run
  // resumed within the second) gets the next second.
  for (auto second = static_cast<int64_t>(wall_time_s());; ++second) {
    fs::path path =
        folder / fmt::format("{}{:010}.{}.{}{}", kPrefix, second, host_name(), ::getpid(), kSuffix);
    if (!fs::exists(fs::symlink_status(path))) return path;
  }
}

void cut_back_file(const fs::path& path, int64_t step) {
  const FileStream file = open_stream(path, Exit::kResource);
  if (file == nullptr) return;
  AtomicFile shorter(path);
  uint64_t kept_bytes = 0;
  std::string frame;
  std::string kept;
  while (read_frame(file.get(), frame)) {
    const auto event_step = step_of(payload_of(frame));
    if (!event_step) break;
    if (*event_step > step) continue;
    kept += frame;
    kept_bytes += frame.size();
    if (kept.size() < (size_t{1} << 16)) continue;
    shorter.write(kept);
    kept.clear();
  }
  if (std::ferror(file.get()) != 0) {
    throw Error(Exit::kResource, "{}: cannot read: {}", path.string(), errno_text(errno));
  }
  if (kept_bytes == fs::file_size(path)) return;
  shorter.write(kept);
  shorter.commit();
}

}  // namespace

double wall_time_s() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

EventFile::EventFile(const fs::path& folder) : file_(new_file_name(folder)) {
  std::string event;
  put_double(event, 1, wall_time_s());   // Event.wall_time
  put_bytes(event, 3, "brain.Event:2");  // Event.file_version
  file_.append(frame_record(event));
}

void EventFile::add_scalar(std::string_view tag, int64_t step, double value, double wall_time) {
  std::string fields;
  put_float(fields, 2, static_cast<float>(value));  // Value.simple_value
  add_value(tag, step, fields, wall_time);
}

void EventFile::add_histogram(std::string_view tag, int64_t step, const Histogram& histogram) {
  std::string message, fields;
  put_double(message, 1, histogram.minimum);  // HistogramProto.min
  put_double(message, 2, histogram.maximum);
  put_double(message, 3, histogram.count);  // HistogramProto.num
  put_double(message, 4, histogram.sum);
  put_double(message, 5, histogram.sum_of_squares);
  put_doubles(message, 6, histogram.limits);  // HistogramProto.bucket_limit
  put_doubles(message, 7, histogram.counts);  // HistogramProto.bucket
  put_bytes(fields, 5, message);              // Value.histo
  add_value(tag, step, fields, wall_time_s());
}

void EventFile::add_text(std::string_view tag, int64_t step, std::string_view text,
                         double wall_time) {
  constexpr int64_t kDtString = 7;
  std::string shown(text.substr(0, kLongestText));
  if (text.size() > kLongestText) {
    // Never in the middle of a UTF-8 character.
    while (!shown.empty() && (static_cast<unsigned char>(text[shown.size()]) & 0xc0) == 0x80) {
      shown.pop_back();
    }
    shown += "\n\n(cut here by Brim: longer than 1 MiB)";
  }
  std::string tensor = tensor_of(kDtString, 1), plugin;
  put_bytes(tensor, 8, shown);   // TensorProto.string_val
  put_bytes(plugin, 1, "text");  // PluginData.plugin_name
  add_value(tag, step, plugin_value(tensor, plugin), wall_time);
}

void EventFile::add_hparams(std::string_view tag, int64_t step, std::string_view plugin_data) {
  constexpr int64_t kDtFloat = 1;
  std::string plugin;
  put_bytes(plugin, 1, "hparams");    // PluginData.plugin_name
  put_bytes(plugin, 2, plugin_data);  // PluginData.content
  add_value(tag, step, plugin_value(tensor_of(kDtFloat, 0), plugin), wall_time_s());
}

void EventFile::add_value(std::string_view tag, int64_t step, std::string_view value_fields,
                          double wall_time) {
  std::string value, summary, event;
  put_bytes(value, 1, tag);  // Value.tag
  value += value_fields;
  put_bytes(summary, 1, value);     // Summary.value
  put_double(event, 1, wall_time);  // Event.wall_time
  put_int(event, 2, step);          // Event.step
  put_bytes(event, 5, summary);     // Event.summary
  file_.append(frame_record(event));
}

void cut_back_events(const fs::path& folder, int64_t step) {
  std::vector<fs::path> ours;
  std::error_code code;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
    const std::string name = it->path().filename();
    if (name.starts_with(kPrefix) && name.ends_with(kSuffix) && it->is_regular_file()) {
      ours.push_back(it->path());
    }
  }
  if (code && code != std::errc::no_such_file_or_directory) {
    throw Error(Exit::kResource, "{}: cannot read the folder: {}", folder.string(), code.message());
  }
  for (const fs::path& path : ours) cut_back_file(path, step);
}

}  // namespace brim::telemetry
