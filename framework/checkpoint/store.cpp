#include "framework/checkpoint/store.h"

#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/log.h"
#include "framework/checkpoint/manifest.h"

namespace brim::checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kStateName = "state.json";
constexpr std::string_view kTensorEnding = ".safetensors";

/// Memory that at::from_blob() looks into is someone else's: it has no allocator.
bool is_of_no_one_else(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.has_storage() && tensor.use_count() == 1 &&
         tensor.storage().use_count() == 1 && tensor.storage().allocator() != nullptr;
}

}  // namespace

Snapshot load_checkpoint(const fs::path& checkpoint) {
  const Manifest manifest = read_manifest(checkpoint);
  verify_files(checkpoint, manifest);
  Snapshot snapshot;
  snapshot.step = manifest.step;
  bool has_state = false;
  for (const FileRecord& file : manifest.files) {
    const fs::path path = checkpoint / file.name;
    if (file.name == kStateName) {
      const auto limit = static_cast<int64_t>(JsonLimits{}.bytes);
      snapshot.state = parse_json(read_file(path, Exit::kCheckpoint, limit), path.string());
      has_state = true;
    } else if (file.name.ends_with(kTensorEnding)) {
      const auto stem = file.name.substr(0, file.name.size() - kTensorEnding.size());
      snapshot.files.push_back(std::make_shared<const WeightFiles>(path));
      snapshot.tensors[stem] = view_tensors(snapshot.files.back());
    } else {
      throw Error(Exit::kCheckpoint,
                  "{}: expected {} and *{} files in a checkpoint; this one is not from this "
                  "version of Brim",
                  path.string(), kStateName, kTensorEnding);
    }
  }
  if (!has_state) {
    throw Error(Exit::kCheckpoint, "{}: the checkpoint has no {}; use another one",
                checkpoint.string(), kStateName);
  }
  return snapshot;
}

Store::Store(const fs::path& folder, int64_t keep)
    : folder_(folder), writer_(folder, keep), thread_([this] { run(); }) {}

Store::~Store() {
  try {
    wait();
  } catch (const std::exception& error) {
    log::warning("{}", error.what());
  }
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Store::save(Snapshot snapshot, bool is_best) {
  wait();
  if (snapshot.step < 0) {
    throw Error(Exit::kBug, "a checkpoint's step is {}: expected 0 or more", snapshot.step);
  }
  for (const auto& [stem, tensors] : snapshot.tensors) {
    if (!is_plain_name(stem)) {
      throw Error(Exit::kBug, "{} cannot name a file of a checkpoint", in_quotes(stem));
    }
  }
  Work work = {{.step = snapshot.step,
                .tensors = {},
                .streamed = std::move(snapshot.streamed),
                .files = std::move(snapshot.files),
                .state = {}},
               print_json(snapshot.state, std::string(kStateName)),
               is_best};
  for (auto& [stem, tensors] : snapshot.tensors) {
    TensorMap& kept = work.snapshot.tensors[stem];
    for (auto item = tensors.begin(); item != tensors.end();) {
      const auto next = std::next(item);
      if (is_of_no_one_else(item->second)) kept.insert(tensors.extract(item));
      item = next;
    }
    kept.merge(copy_to_cpu(tensors));
  }
  {
    const std::lock_guard lock(mutex_);
    work_ = std::move(work);
  }
  changed_.notify_all();
}

std::shared_ptr<SafetensorsWriter> Store::stream(const std::string& stem, const TensorMap& layout) {
  wait();
  return std::make_shared<SafetensorsWriter>(spool_path(folder_, stem + std::string(kTensorEnding)),
                                             layout_of(layout));
}

void Store::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !work_; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

bool Store::is_idle() {
  const std::lock_guard lock(mutex_);
  return !work_;
}

void Store::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return work_ || is_closing_; });
    if (!work_) return;
    lock.unlock();
    std::exception_ptr failure;
    try {
      write(*work_);  // only this thread resets work_, and save() fills it only when it is empty
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    work_.reset();
    changed_.notify_all();
  }
}

void Store::write(const Work& work) {
  writer_.write(work.snapshot.step, work.is_best, [&](const fs::path& folder) {
    std::vector<std::string> names;
    for (const auto& [stem, tensors] : work.snapshot.tensors) {
      names.push_back(stem + std::string(kTensorEnding));
      save_tensors(folder / names.back(), tensors);
    }
    for (const auto& [stem, writer] : work.snapshot.streamed) {
      names.push_back(stem + std::string(kTensorEnding));
      writer->commit();
      std::error_code code;
      fs::rename(spool_path(folder_, names.back()), folder / names.back(), code);
      if (code) {
        throw Error(Exit::kResource, "{}: cannot be moved there: {}",
                    (folder / names.back()).string(), code.message());
      }
    }
    names.emplace_back(kStateName);
    write_file(folder / kStateName, work.state);
    return names;
  });
}

}  // namespace brim::checkpoint
