#include "framework/train/run/state.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/checkpoint/tensors.h"
#include "framework/data/dataset.h"
#include "framework/nn/fused/upcast.h"
#include "framework/nn/measured_forms.h"
#include "framework/nn/model.h"
#include "framework/nn/random_state.h"
#include "framework/nn/stage.h"
#include "framework/train/components.h"
#include "framework/train/job.h"
#include "framework/train/rank_model.h"
#include "framework/train/run/run_folder.h"

namespace brim::train {
namespace {

using checkpoint::TensorMap;

constexpr int kFormat = 1;
constexpr const char* kStateFile = "state.json";
constexpr const char* kSamples = "training samples";
constexpr int64_t kMaxStep = int64_t{1} << 48;  // a thousand steps a second make it in 8,900 years
constexpr int64_t kLargestState = 64 << 20;
constexpr int64_t kLargestSide = 1 << 24;  // of a model's input, in any direction

/// "cpu" of rank 0, "cpu.3" of rank 3.
std::string of_rank(const std::string& name, int64_t rank) {
  return rank == 0 ? name : fmt::format("{}.{}", name, rank);
}

/// Every rank's generators, by of_rank(): each draws its own dropout.
TensorMap random_state(const TrainingComponents& components) {
  TensorMap states;
  for (const auto& [name, generator] : nn::generators(components.model.device)) {
    const at::Tensor own = generator.get_state();
    for (int64_t rank = 0; rank < components.model.group->world(); ++rank) {
      const at::Tensor state =
          rank == components.model.group->rank() ? own.clone() : at::empty_like(own);
      components.model.group->broadcast(state, "the random states of all ranks", rank);
      states[of_rank(name, rank)] = state;
    }
  }
  return states;
}

/// State of all ranks, row by row into a file, and what rank 0 has beside it.
class StreamedState final : public optim::StateWriter {
 public:
  StreamedState(checkpoint::Store& store, std::string stem, TensorMap beside)
      : store_(store), stem_(std::move(stem)), beside_(std::move(beside)) {}

  void begin(const optim::State& layout) override {
    TensorMap all = layout;
    all.insert(beside_.begin(), beside_.end());
    file_ = store_.stream(stem_, all);
    for (const auto& [name, tensor] : beside_) write(name, 0, tensor.cpu().contiguous());
  }

  void write(const std::string& name, int64_t first_row, const at::Tensor& rows) override {
    const std::span<const std::byte> bytes = checkpoint::bytes_of(rows);
    const int64_t row_bytes = rows.dim() == 0 || rows.size(0) == 0
                                  ? 0
                                  : static_cast<int64_t>(bytes.size()) / rows.size(0);
    file_->write(name, first_row * row_bytes, bytes);
  }

  const std::shared_ptr<checkpoint::SafetensorsWriter>& file() const { return file_; }

 private:
  checkpoint::Store& store_;
  std::string stem_;
  TensorMap beside_;
  std::shared_ptr<checkpoint::SafetensorsWriter> file_;
};

/// What must be the same for a step number to mean the same samples.
nlohmann::json order(const JobConfig& job, const TrainingComponents& components) {
  return {{"run.seed", job.run.seed},
          {"batch.global", *job.batch.global},
          {"data.drop_last", job.data.drop_last},
          {"data.sampler", components.data.order->text()},
          {kSamples, components.data.train->size()}};
}

void require_same_order(const nlohmann::json& saved, const nlohmann::json& ours,
                        const std::filesystem::path& checkpoint) {
  std::string differences;
  bool is_other_recipe = false;
  for (const auto& [key, value] : ours.items()) {
    if (saved.at(key) != value) {
      is_other_recipe |= key != kSamples;
      differences += fmt::format("{}{} was {} and is {}", differences.empty() ? "" : "; ", key,
                                 saved.at(key).dump(), value.dump());
    }
  }
  if (differences.empty()) return;
  throw Error(Exit::kCheckpoint, "{}: the checkpoint is of another job: {}. {}",
              checkpoint.string(), differences,
              is_other_recipe ? "Resume with the run's own recipe.toml"
                              : "Resume with the data that it was trained on, put back what was "
                                "removed (data.on_error = \"skip\" leaves damaged samples out), or "
                                "begin a new run");
}

nlohmann::json input_json(const nn::ModelShape& input) {
  if (input.kind() == nn::InputKind::kTokens) {
    return {{"length", input.length},
            {"vocabulary", input.vocabulary},
            {"documents", input.has_documents}};
  }
  return {{"channels", input.channels},
          {"height", input.height},
          {"width", input.width},
          {"classes", input.classes}};
}

nn::ModelShape read_input(const nlohmann::json& json, const std::filesystem::path& path) {
  const auto size = [&](const char* name) {
    const auto value = json.at(name).get<int64_t>();
    if (value >= 1 && value <= kLargestSide) return value;
    throw Error(Exit::kCheckpoint, "{}: expected an input's {} from 1 to {}, found {}",
                path.string(), name, kLargestSide, value);
  };
  if (json.contains("length")) {
    return {.length = size("length"),
            .vocabulary = size("vocabulary"),
            .has_documents = json.at("documents").get<bool>()};
  }
  return {.channels = size("channels"),
          .height = size("height"),
          .width = size("width"),
          .classes = size("classes")};
}

/// The forms of operations that the run goes by, and where they were measured.
nlohmann::json forms_json(c10::Device device) {
  nlohmann::json times = nlohmann::json::object();
  for (const auto& [name, form] : nn::measured_forms()) {
    times[name] = {{"fused_s", form.fused_s}, {"plain_s", form.plain_s}};
  }
  return {{"measured_on", device_and_versions(device)}, {"seconds", std::move(times)}};
}

/// A run continues with the forms that it had, so that its results have the same bits; not on
/// another device or with other versions, where others may be faster.
void restore_forms(const nlohmann::json& state, const RankModel& model) {
  if (!state.contains("forms")) return;  // a Brim that measured none wrote it
  const nlohmann::json& saved = state.at("forms");
  if (saved.at("seconds").empty()) return;
  const std::string here = device_and_versions(model.device);
  if (saved.at("measured_on") != here) {
    log::info(
        "the checkpoint's measured forms of operations are of another device or version; they are "
        "left out on {}",
        here);
    return;
  }
  nn::MeasuredForms forms;
  for (const auto& [name, form] : saved.at("seconds").items()) {
    forms[name] = {form.at("fused_s").get<double>(), form.at("plain_s").get<double>()};
  }
  nn::remember_forms(forms);
  if (model.device.is_cpu()) nn::choose_products(nn::whole_of(*model.module).fused());
}

/// Of one that scales: with on_nan = "skip" there is one that only looks at gradients.
TensorMap scaler_state(const TrainingComponents& components) {
  return components.model.precision.scaler ? components.scaler->state() : TensorMap();
}

}  // namespace

nlohmann::json read_state_json(const std::filesystem::path& checkpoint) {
  const std::filesystem::path path = checkpoint / kStateFile;
  return parse_json(read_file(path, Exit::kCheckpoint, kLargestState), path.string());
}

checkpoint::Snapshot snapshot(const JobConfig& job, const TrainingComponents& components,
                              const TrainState& state, checkpoint::Store* store) {
  checkpoint::Snapshot result;
  result.step = state.step;
  const auto stream = [&](const std::string& stem, const TensorMap& beside, const auto& gather) {
    std::optional<StreamedState> into;
    if (store != nullptr) into.emplace(*store, stem, beside);
    gather(into ? &*into : nullptr);
    if (into) result.streamed[stem] = into->file();
  };
  TensorMap optimizer = components.optimizer->state();
  if (distributed::SplitState* split = components.model.split()) {
    const auto stream_rows = [&](const std::string& stem, const TensorMap& own,
                                 const TensorMap& beside) {
      stream(stem, beside, [&](auto* into) { split->gather(own, into); });
    };
    stream_rows("model", components.model.own_tensors(), {});
    stream_rows("optimizer", optimizer, scaler_state(components));
    if (components.ema) stream_rows("ema", components.ema->state(), {});
  } else {
    result.tensors["model"] = nn::named_tensors(*components.model.module);
    if (components.ema) result.tensors["ema"] = components.ema->state();
    if (components.optimizer->is_sharded()) {
      stream("optimizer", scaler_state(components),
             [&](auto* into) { components.optimizer->gather_state(into); });
    } else {
      optimizer.merge(scaler_state(components));
      result.tensors["optimizer"] = std::move(optimizer);
    }
  }
  result.tensors["random"] = random_state(components);
  result.state = {{"format", kFormat},
                  {"step", state.step},
                  {"evaluation_due", state.evaluation_due},
                  {"order", order(job, components)},
                  {"schedule", components.schedule->state()},
                  {"input", input_json(components.model.input)},
                  {"classes", class_names(*components.data.train)},
                  {"forms", forms_json(components.model.device)},
                  {"buckets", state.buckets},
                  {"history", to_json(state.history)}};
  result.state["best"] = state.best ? nlohmann::json(state.best->metric) : nlohmann::json();
  const bool has_loss = state.best && std::isfinite(state.best->loss);
  result.state["best_loss"] = has_loss ? nlohmann::json(state.best->loss) : nlohmann::json();
  return result;
}

namespace {

bool is_of_scaler(const TensorMap::value_type& entry) {
  return entry.first.starts_with("grad_scaler.");
}

/// A rank takes its part, whatever ranks there were when it was saved.
void restore_optimizer(const checkpoint::Snapshot& saved, const std::filesystem::path& path,
                       TrainingComponents& components) {
  const auto found = saved.tensors.find("optimizer");
  TensorMap whole = found == saved.tensors.end() ? TensorMap{} : found->second;
  const TensorMap scaler = scaler_state(components);
  TensorMap scales;
  const bool was_scaled = std::any_of(whole.begin(), whole.end(), is_of_scaler);
  std::erase_if(whole, [&](const auto& entry) {
    if (is_of_scaler(entry)) scales.insert(entry);
    return is_of_scaler(entry);
  });
  TensorMap into = components.optimizer->state();
  const distributed::SplitState* split = components.model.split();
  TensorMap from =
      split != nullptr ? split->local_shard(whole, into) : components.optimizer->local_shard(whole);
  // A run may begin or cease to scale: precision.mode or train.on_nan differs then.
  if (was_scaled && !scaler.empty()) {
    from.merge(scales);
    into.insert(scaler.begin(), scaler.end());
  } else if (!scaler.empty()) {
    log::info("{} has no state of the gradient scaler, which starts afresh", path.string());
  }
  checkpoint::copy_into(from, into, (path / "optimizer.safetensors").string(), saved.files);
}

/// A checkpoint of Brim 0.2 has no loss of its best evaluation.
Score read_best(const nlohmann::json& state, const std::filesystem::path& path) {
  Score best{.metric = state.at("best").get<double>(),
             .loss = std::numeric_limits<double>::infinity()};
  if (std::abs(best.metric) > std::numeric_limits<float>::max()) {
    throw Error(Exit::kCheckpoint,
                "{}: expected a best metric within float32, found {}; use another checkpoint",
                path.string(), best.metric);
  }
  const auto loss = state.find("best_loss");
  if (loss != state.end() && !loss->is_null()) best.loss = loss->get<double>();
  return best;
}

/// What state.json says of a snapshot beside the tensors.
TrainState read_state(const checkpoint::Snapshot& saved, const std::filesystem::path& path) {
  const nlohmann::json& state = saved.state;
  if (state.at("format") != kFormat) {
    throw Error(Exit::kCheckpoint, "{}: expected format {}, found {}", path.string(), kFormat,
                state.at("format").dump());
  }
  TrainState result;
  result.step = saved.step;
  if (saved.step > kMaxStep || state.at("step") != saved.step) {
    throw Error(Exit::kCheckpoint,
                "{}: expected the manifest's step, at most {}, found steps {} and {}; use another "
                "checkpoint",
                path.string(), kMaxStep, state.at("step").dump(), saved.step);
  }
  result.evaluation_due = state.at("evaluation_due").get<bool>();
  if (!state.at("best").is_null()) result.best = read_best(state, path);
  if (state.contains("buckets")) state.at("buckets").get_to(result.buckets);
  if (state.contains("classes")) state.at("classes").get_to(result.classes);
  if (state.contains("history")) result.history = read_history(state.at("history"));
  return result;
}

void copy_tensors(const checkpoint::Snapshot& saved, const std::string& file, TensorMap into,
                  const RankModel& model, const std::filesystem::path& path) {
  const auto found = saved.tensors.find(file);
  TensorMap from = found == saved.tensors.end() ? TensorMap{} : found->second;
  if (const auto* split = model.split()) from = split->local_shard(from, into);
  checkpoint::copy_into(from, into, (path / (file + ".safetensors")).string(), saved.files);
}

void copy_model(const checkpoint::Snapshot& saved, RankModel& model, optim::Ema* ema,
                const std::filesystem::path& path) {
  copy_tensors(saved, "model", model.own_tensors(), model, path);
  if (ema != nullptr) copy_tensors(saved, "ema", ema->state(), model, path);
}

void restore_random(const checkpoint::Snapshot& saved, const std::filesystem::path& path,
                    const RankModel& model) {
  const auto random = saved.tensors.find("random");
  if (random == saved.tensors.end()) {
    throw Error(Exit::kCheckpoint, "{}: random.safetensors is missing", path.string());
  }
  for (auto& [name, generator] : nn::generators(model.device)) {
    const auto own = random->second.find(of_rank(name, model.group->rank()));
    if (own == random->second.end()) continue;
    try {
      generator.set_state(own->second);
    } catch (const c10::Error& problem) {
      throw Error(Exit::kCheckpoint,
                  "{}: {}: expected the state of one of LibTorch's random generators: {}",
                  (path / "random.safetensors").string(), own->first,
                  problem.what_without_backtrace());
    }
  }
}

/// What `read` returns; where the JSON that it reads is not as a run writes it, Error(kCheckpoint).
template <class Read>
auto reading_state_of(const std::filesystem::path& path, const Read& read) {
  try {
    return read();
  } catch (const nlohmann::json::exception& problem) {
    throw Error(Exit::kCheckpoint, "{}: expected the state of a Brim run: {}",
                (path / kStateFile).string(), json_complaint(problem));
  }
}

}  // namespace

std::vector<std::string> class_names(const data::Dataset& data) {
  const data::ImageSamples* images = data.images();
  if (images == nullptr) return {};
  std::vector<std::string> names = images->class_names();
  for (std::string& name : names) name = printable(name);
  return names;
}

void require_same_classes(const TrainState& state, const data::Dataset& train_data,
                          const std::filesystem::path& path) {
  const std::vector<std::string> ours = class_names(train_data);
  const std::vector<std::string>& saved = state.classes;
  if (saved.empty() || saved == ours) return;
  const auto name = [](const std::vector<std::string>& names, size_t label) {
    return label < names.size() ? fmt::format("\"{}\"", names[label]) : std::string("none");
  };
  size_t label = 0;
  while (name(saved, label) == name(ours, label)) ++label;
  throw Error(Exit::kCheckpoint,
              "{}: the classes are others than those that the model has learned: class {} was {} "
              "and is {}. Give it data with the same classes",
              path.string(), label, name(saved, label), name(ours, label));
}

TrainState load_model(const std::filesystem::path& path, RankModel& model, optim::Ema* ema) {
  const checkpoint::Snapshot saved = checkpoint::load_checkpoint(path);
  return reading_state_of(path, [&] {
    TrainState state = read_state(saved, path);
    copy_model(saved, model, ema, path);
    restore_forms(saved.state, model);
    return state;
  });
}

TrainState resume(const std::filesystem::path& path, const JobConfig& job,
                  TrainingComponents& components) {
  const checkpoint::Snapshot saved = checkpoint::load_checkpoint(path);
  return reading_state_of(path, [&] {
    TrainState state = read_state(saved, path);
    require_same_order(saved.state.at("order"), order(job, components), path);
    require_same_classes(state, *components.data.train, path);
    copy_model(saved, components.model, components.ema.get(), path);
    restore_optimizer(saved, path, components);
    restore_random(saved, path, components.model);
    components.schedule->load(saved.state.at("schedule"));
    restore_forms(saved.state, components.model);
    return state;
  });
}

int64_t global_batch_of(const std::filesystem::path& checkpoint) {
  const nlohmann::json state = read_state_json(checkpoint);
  try {
    const auto global = state.at("order").at("batch.global").get<int64_t>();
    if (global >= 1) return global;
  } catch (const nlohmann::json::exception&) {
  }
  throw Error(Exit::kCheckpoint, "{}: expected the state of a Brim run, with its global batch",
              (checkpoint / kStateFile).string());
}

std::optional<LearnedInput> input_of(const std::filesystem::path& checkpoint) {
  const nlohmann::json state = read_state_json(checkpoint);
  if (!state.contains("input")) return std::nullopt;
  return reading_state_of(checkpoint, [&] {
    LearnedInput input = {read_input(state.at("input"), checkpoint), {}};
    if (state.contains("classes")) state.at("classes").get_to(input.classes);
    if (input.classes.empty() || std::ssize(input.classes) == input.shape.classes) return input;
    throw Error(Exit::kCheckpoint, "{}: expected the names of {} classes, found {}",
                (checkpoint / kStateFile).string(), input.shape.classes, input.classes.size());
  });
}

void require_finite_weights(const RankModel& model, const RunFolder& folder) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : model.own_tensors()) {
    if (!tensor.is_floating_point() || at::isfinite(tensor).all().item<bool>()) continue;
    throw Error(Exit::kNumeric, "{} holds values that are not finite, so it is not saved; {}", name,
                describe_last_good(folder));
  }
}

}  // namespace brim::train
