#include "framework/nn/measured_forms.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/ScopeExit.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "framework/base/descriptor.h"
#include "framework/base/files.h"
#include "framework/base/stop.h"
#include "framework/device/memory/memory.h"
#include "framework/device/stream_event.h"
#include "framework/nn/without_storage.h"

namespace brim::nn {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMeasuredBytes = 16 << 20;
constexpr int64_t kMeasuredGpuBytes = 256 << 20;  // enough for the launches not to be what is timed
constexpr double kLongPass_s = 0.05;  // where a pass takes longer, a part of the batch is measured
constexpr double kLeast_s = 3e-4;     // a shorter operation is repeated until this has passed
constexpr int kRounds = 5;            // at most, after two passes to warm up
constexpr double kLongest_s = 0.1;    // after which no further round is begun
constexpr double kClear = 1.3;        // a ratio after which none is
constexpr int kGpuRounds = 5;       // at least: a pass takes a millisecond, and the first ones vary
constexpr int64_t kStepsBytes = 3;  // of a parameter: itself, its gradient, a momentum
constexpr int64_t kCopiedBytes = 32 << 20;  // of parameters at most, in
constexpr int64_t kCopies = 16;             // copies at most
constexpr double kLockWait_s = 10;          // another process measures for a fraction of a second
constexpr off_t kLargestFile = 4 << 20;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// --- what is known -------------------------------------------------------------------------------

struct Known {
  std::mutex mutex;
  MeasuredForms used;
  MeasuredForms shared;                         // what the file said when it was last read
  std::unordered_map<uint64_t, bool> is_fused;  // by quick_key(), of what has been asked for
  std::filesystem::path file;
  int64_t parameter_bytes = 0;  // of the model
};

Known& known() {
  static auto* all = new Known;  // never destroyed: threads may end after main()
  return *all;
}

bool is_autocast(const at::Tensor& x) {
  return at::autocast::is_autocast_enabled(x.device().type());
}

/// What a step's passes find their form by.
uint64_t quick_key(const TwoForms& operation) {
  uint64_t key = 14695981039346656037U;  // FNV-1a, over whole values
  const auto add = [&](uint64_t value) { key = (key ^ value) * 1099511628211U; };
  for (const char c : operation.name) add(static_cast<uint64_t>(c));
  for (const at::TensorList& list : {operation.batch, operation.parameters}) {
    for (const at::Tensor& tensor : list) {
      add(tensor.defined() ? 1 + static_cast<uint64_t>(tensor.scalar_type()) : 0);
      if (!tensor.defined()) continue;
      add(static_cast<uint64_t>(tensor.dim()));
      for (const int64_t size : tensor.sizes()) add(static_cast<uint64_t>(size));
    }
  }
  const at::Tensor& x = operation.batch[0];
  add(is_autocast(x)
          ? 1 + static_cast<uint64_t>(at::autocast::get_autocast_dtype(x.device().type()))
          : 0);
  add(static_cast<uint64_t>(at::get_num_threads()));
  return key;
}

/// How much of the batch is measured.
int64_t measured_count(const at::Tensor& x) {
  const int64_t sample_bytes = std::max<int64_t>(1, static_cast<int64_t>(x.nbytes()) / x.size(0));
  const int64_t measured_bytes = x.is_cpu() ? kMeasuredBytes : kMeasuredGpuBytes;
  return std::clamp<int64_t>(measured_bytes / sample_bytes, 1, x.size(0));
}

/// Of the operation's parameters, that passes are measured over.
int64_t copies_of(const TwoForms& operation) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : operation.parameters) {
    if (tensor.defined()) bytes += static_cast<int64_t>(tensor.nbytes());
  }
  if (bytes == 0 || !operation.is_of_model || !operation.batch[0].is_cpu()) return 1;
  const int64_t all = std::min(kStepsBytes * known().parameter_bytes, kCopiedBytes);
  return std::clamp<int64_t>(all / bytes, 1, kCopies);
}

std::string name_of(const TwoForms& operation) {
  const at::Tensor& x = operation.batch[0];
  std::string name(operation.name);
  const auto add = [&](const at::Tensor& tensor, int64_t count) {
    if (!tensor.defined()) return;
    std::vector<int64_t> sizes = tensor.sizes().vec();
    if (count > 0) sizes[0] = count;
    name += fmt::format(" {}[{}]", c10::toString(tensor.scalar_type()), fmt::join(sizes, ","));
  };
  for (const at::Tensor& tensor : operation.batch) add(tensor, measured_count(x));
  for (const at::Tensor& tensor : operation.parameters) add(tensor, 0);
  if (const int64_t copies = copies_of(operation); copies > 1) {
    name += fmt::format(" copies {}", copies);
  }
  if (is_autocast(x)) {
    name += fmt::format(" autocast {}",
                        c10::toString(at::autocast::get_autocast_dtype(x.device().type())));
  }
  return x.is_cpu() ? fmt::format("{} threads {}", name, at::get_num_threads())
                    : name + fmt::format(" {}", c10::DeviceTypeName(x.device().type(), true));
}

// --- measuring -----------------------------------------------------------------------------------

/// Tensors that share the memory of the operation's, with gradients of their own.
std::vector<at::Tensor> leaves(at::TensorList tensors, std::optional<int64_t> count) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) {
      result.emplace_back();
      continue;
    }
    at::Tensor leaf = count ? tensor.detach().narrow(0, 0, *count) : tensor.detach();
    result.push_back(leaf.requires_grad_(at::isFloatingType(leaf.scalar_type())));
  }
  return result;
}

class Measurement {
 public:
  /// Of the first `count` of the batch, over so many copies of the parameters in turn.
  Measurement(const TwoForms& operation, int64_t count, int64_t copies)
      : batch_(leaves(operation.batch, count)), device_(operation.batch[0].device()) {
    for (int64_t i = 0; i < copies; ++i) {
      Copy copy{.parameters = leaves(operation.parameters, std::nullopt), .inputs = {}};
      for (at::Tensor& tensor : copy.parameters) {
        if (i == 0 || !tensor.defined()) continue;
        tensor = tensor.detach().clone().requires_grad_(tensor.requires_grad());
      }
      for (const auto* list : {&batch_, &copy.parameters}) {
        for (const at::Tensor& tensor : *list) {
          if (tensor.defined() && tensor.requires_grad()) copy.inputs.push_back(tensor);
        }
      }
      copies_.push_back(std::move(copy));
    }
  }

  /// Of `rounds` and as many more as it takes.
  FormTimes times(Form fused, Form plain, int rounds) {
    const at::AutoGradMode with_gradients(true);
    if (!device_.is_cpu()) rounds = std::max(rounds, kGpuRounds);
    const Clock::time_point start = Clock::now();
    std::array<Form, 2> forms = {fused, plain};
    std::array<int, 2> repeats{};
    std::array<double, 2> best{};
    for (size_t i = 0; i < 2; ++i) {
      seconds(forms[i], 1);  // primitives and memory of first use
      best[i] = seconds(forms[i], 1);
      repeats[i] = static_cast<int>(std::clamp(kLeast_s / best[i], 1.0, 100.0));
    }
    const auto is_decided = [&] {
      const double ratio = best[0] / best[1];
      return std::max(ratio, 1 / ratio) > kClear || seconds_since(start) > kLongest_s;
    };
    for (int round = 0; round < std::max(kRounds, rounds); ++round) {
      const bool is_timed = round > 0 || (repeats[0] == 1 && repeats[1] == 1);
      if (round >= rounds && is_timed && is_decided()) {
        // Other work may have disturbed the one pass that says so.
        const size_t slower = best[0] < best[1] ? 1 : 0;
        best[slower] = std::min(best[slower], seconds(forms[slower], repeats[slower]));
        if (is_decided()) break;
      }
      for (size_t i = 0; i < 2; ++i) best[i] = std::min(best[i], seconds(forms[i], repeats[i]));
    }
    return {best[0], best[1]};
  }

  /// Of one pass forward and backward, the mean of some.
  double seconds(Form form, int repeats) {
    wait();
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < repeats; ++i) {
      const Copy& copy = copies_[next_++ % copies_.size()];
      const std::vector<at::Tensor> results = form(batch_, copy.parameters);
      std::vector<at::Tensor> gradients;
      gradients.reserve(results.size());
      for (const at::Tensor& result : results) gradients.push_back(result.detach());
      torch::autograd::grad(results, copy.inputs, gradients, /*retain_graph=*/false,
                            /*create_graph=*/false, /*allow_unused=*/true);
    }
    wait();
    return seconds_since(start) / repeats;
  }

 private:
  /// For this stream alone: others may wait for other ranks.
  void wait() const {
    if (!device_.is_cpu()) device::current_stream(device_).synchronize();
  }

  struct Copy {
    std::vector<at::Tensor> parameters, inputs;  // `inputs`: what has gradients, of the batch too
  };

  std::vector<at::Tensor> batch_;
  std::vector<Copy> copies_;
  size_t next_ = 0;
  at::Device device_;
};

/// How much of the batch is measured: on a CPU, quarters of what measured_count() says, but some
/// rows for each thread, as one pass in the plain form takes kLongPass_s.
int64_t count_in_time(const TwoForms& operation, Form plain) {
  const at::Tensor& x = operation.batch[0];
  const int64_t all = measured_count(x);
  const int64_t parts = std::clamp<int64_t>(all / (4 * at::get_num_threads()), 1, 4);
  if (!x.is_cpu() || parts == 1) return all;
  const at::AutoGradMode with_gradients(true);
  const double part_s = Measurement(operation, all / parts, /*copies=*/1).seconds(plain, 1);
  const auto fitting = static_cast<int64_t>(kLongPass_s / part_s);
  return fitting >= parts ? all : all / parts * std::max<int64_t>(1, fitting);
}

std::atomic<bool> measures = false;  // backward passes on a GPU have a thread of their own

/// nullopt where memory runs out. With the mutex held.
std::optional<FormTimes> measure(const TwoForms& operation, Form fused, Form plain) {
  std::optional<FormTimes> times;
  measures = true;
  const auto ends = c10::make_scope_exit([] { measures = false; });
  const bool fits = device::fits([&] {
    times = Measurement(operation, count_in_time(operation, plain), copies_of(operation))
                .times(fused, plain, operation.rounds);
  });
  return fits ? times : std::nullopt;
}

// --- the file ------------------------------------------------------------------------------------

/// What is before the next `end` in text, which then begins behind it.
std::string_view take_until(std::string_view& text, char end) {
  const size_t length = std::min(text.find(end), text.size());
  const std::string_view taken = text.substr(0, length);
  text.remove_prefix(std::min(length + 1, text.size()));
  return taken;
}

/// "NAME \t fused seconds \t plain seconds \t .", or nothing where it is something else or its end
/// was never written.
std::optional<MeasuredForms::value_type> parse_line(std::string_view line) {
  const std::string_view name = take_until(line, '\t');
  const auto take_seconds = [&] {
    const std::string_view text = take_until(line, '\t');
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() ? value : 0.0;
  };
  FormTimes times{};
  times.fused_s = take_seconds();
  times.plain_s = take_seconds();
  const auto is_time = [](double s) { return s > 0 && std::isfinite(s); };
  if (name.empty() || line != "." || !is_time(times.fused_s) || !is_time(times.plain_s))
    return std::nullopt;
  return MeasuredForms::value_type(std::string(name), times);
}

MeasuredForms read_forms(int file) {
  MeasuredForms forms;
  const off_t size = ::lseek(file, 0, SEEK_END);
  if (size <= 0 || size > kLargestFile) return forms;
  std::string text(static_cast<size_t>(size), '\0');
  const ssize_t got = ::pread(file, text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
  for (std::string_view rest = text; !rest.empty();) {
    if (auto form = parse_line(take_until(rest, '\n'))) forms.insert(std::move(*form));
  }
  return forms;
}

/// Of the shared file: a pipe in its place must not hang a run.
constexpr int kOpenFlags = O_CLOEXEC | O_NONBLOCK;

/// The shared file, held: no other process measures while one lives.
class SharedFile {
 public:
  /// Not open where the file can't be had: not writable, or too long in another's hands.
  explicit SharedFile(const std::filesystem::path& path)
      : file_(::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | kOpenFlags, 0644)) {
    const Clock::time_point start = Clock::now();
    while (file_.get() >= 0 && ::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) return;
      if (seconds_since(start) > kLockWait_s || !sleep_unless_stopped(std::chrono::milliseconds(2)))
        return;
    }
    is_open_ = file_.get() >= 0;
  }
  bool is_open() const { return is_open_; }

  MeasuredForms read() const { return read_forms(file_.get()); }

  /// In one write, after a line break that ends what a killed process left.
  void append(const std::string& name, const FormTimes& times) {
    if (::lseek(file_.get(), 0, SEEK_END) > kLargestFile && ::ftruncate(file_.get(), 0) != 0)
      return;
    const std::string line = fmt::format("\n{}\t{}\t{}\t.\n", name, times.fused_s, times.plain_s);
    [[maybe_unused]] const ssize_t written = ::write(file_.get(), line.data(), line.size());
  }

 private:
  Descriptor file_;
  bool is_open_ = false;
};

// --- choosing ------------------------------------------------------------------------------------

std::optional<FormTimes> find(const MeasuredForms& forms, const std::string& name) {
  const auto form = forms.find(name);
  return form == forms.end() ? std::nullopt : std::optional(form->second);
}

/// With the mutex held. nullopt where nothing was measured.
std::optional<FormTimes> find_or_measure(Known& all, const std::string& name,
                                         const TwoForms& operation, Form fused, Form plain) {
  if (const auto used = find(all.used, name)) return used;
  if (!operation.is_training) return std::nullopt;
  if (const auto read = find(all.shared, name)) return read;
  std::optional<SharedFile> file;
  if (!all.file.empty()) file.emplace(all.file);
  if (file && file->is_open()) {
    all.shared = file->read();
    if (const auto shared = find(all.shared, name)) return shared;
  } else {
    all.file.clear();  // no second wait for it
  }
  const std::optional<FormTimes> times = measure(operation, fused, plain);
  if (times && file && file->is_open()) file->append(name, *times);
  return times;
}

}  // namespace

bool takes_fused(Fused when, const TwoForms& operation, Form fused, Form plain) {
  if (when == Fused::kNever || when == Fused::kAlways) return when == Fused::kAlways;
  if (when == Fused::kUsual) return operation.is_fused_otherwise;
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  if (WithoutStorage::is_on()) {  // nothing is computed that could be timed
    const std::string name = name_of(operation);
    auto times = find(all.used, name);
    if (!times) times = find(all.shared, name);
    return times ? times->prefers_fused() : operation.is_fused_otherwise;
  }
  const uint64_t key = quick_key(operation);
  const auto answer = all.is_fused.find(key);
  if (answer != all.is_fused.end()) return answer->second;
  const std::string name = name_of(operation);
  const auto times = find_or_measure(all, name, operation, fused, plain);
  if (times) all.used[name] = *times;
  const bool is_fused = times ? times->prefers_fused() : operation.is_fused_otherwise;
  // What memory was too short for is not tried again in each step.
  if (times || operation.is_training) all.is_fused[key] = is_fused;
  return is_fused;
}

void expect_parameters(int64_t bytes) {
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  if (all.parameter_bytes != bytes) all.is_fused.clear();
  all.parameter_bytes = bytes;
}

MeasuredForms measured_forms() {
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  return all.used;
}

void remember_forms(const MeasuredForms& forms) {
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  for (const auto& [name, times] : forms) all.used[name] = times;
  all.is_fused.clear();
}

void share_measured_forms(std::filesystem::path file) {
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  all.file.clear();
  if (file.empty()) return;
  try {
    make_folder(file.parent_path());
  } catch (const Error&) {
    return;
  }
  const Descriptor known_file(::open(file.c_str(), O_RDONLY | kOpenFlags));
  all.shared = read_forms(known_file.get());
  all.file = std::move(file);
}

bool is_measuring_forms() { return measures; }

}  // namespace brim::nn
