// trainer export: a checkpoint's weights as one safetensors file, with the model's own names or
// those that another package gives them; or as a TorchScript file where the run trained one.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/printable.h"
#include "framework/base/temporaries.h"
#include "framework/base/units.h"
#include "framework/checkpoint/manifest.h"
#include "framework/checkpoint/tensors.h"
#include "framework/cli/commands.h"
#include "framework/cli/options.h"
#include "framework/nn/torchscript.h"
#include "framework/train/job.h"
#include "framework/train/run/run_folder.h"
#include "framework/train/run/state.h"
#include "framework/train/weights/renamed_weights.h"

namespace brim::cli {
namespace {

/// Averaged weights in place of the last step's, where the run kept an average; buffers as they
/// are. Throws Error(kCheckpoint) where a file of the checkpoint is damaged.
checkpoint::TensorMap weights_of(const std::filesystem::path& checkpoint, bool wants_average) {
  checkpoint::verify_files(checkpoint, checkpoint::read_manifest(checkpoint));
  checkpoint::TensorMap weights = checkpoint::load_tensors(checkpoint / "model.safetensors");
  const std::filesystem::path average = checkpoint / "ema.safetensors";
  if (!wants_average || !std::filesystem::exists(average)) return weights;
  constexpr std::string_view kPrefix = "ema.";
  for (auto& [name, tensor] : checkpoint::load_tensors(average)) {
    const auto found =
        name.starts_with(kPrefix) ? weights.find(name.substr(kPrefix.size())) : weights.end();
    if (found == weights.end() || found->second.sizes() != tensor.sizes()) {
      throw Error(Exit::kCheckpoint, "{}: expected averages of the model's parameters",
                  average.string());
    }
    found->second = std::move(tensor);
  }
  return weights;
}

constexpr std::array<std::string_view, 3> kFormats = {"torchvision", "timm", "hf"};

/// The weights with the names that this package gives them.
checkpoint::TensorMap named_for(const std::string& package, const train::SavedRun& saved,
                                checkpoint::TensorMap weights,
                                const cxxopts::ParseResult& options) {
  if (std::ranges::find(kFormats, package) == kFormats.end()) {
    throw UsageError("--format {}: expected torchvision, timm, hf or torchscript", package);
  }
  const train::JobConfig job = train::read_job(load_document(options, saved.run.recipe().string()));
  for (const nn::WeightNames& names : job.model.model->weight_names()) {
    if (names.package != package) continue;
    if (const auto input = train::input_of(saved.checkpoint)) {
      job.model.model->leave_out_padding(weights, input->shape);
    }
    return train::name_as_theirs(weights, names);
  }
  throw Error(Exit::kRecipe,
              "--format {}: that package has no {}; leave --format out for the names that "
              "model.pretrained takes",
              package, job.model.model.selected());
}

/// The module that the run began with, as torch.jit.save() would write it, with these weights.
void save_torchscript(const std::filesystem::path& output, const train::SavedRun& saved,
                      const checkpoint::TensorMap& weights, const cxxopts::ParseResult& options) {
  const train::JobConfig job = train::read_job(load_document(options, saved.run.recipe().string()));
  const auto* model = dynamic_cast<const nn::TorchScriptConfig*>(&*job.model.model);
  if (model == nullptr) {
    throw Error(Exit::kRecipe,
                "--format torchscript: expected a run with model.torchscript, found model {}; "
                "LibTorch makes no script of a C++ model",
                job.model.model.selected());
  }
  write_file(output, nn::with_weights(model->file, weights));
}

int export_weights(const cxxopts::ParseResult& parsed, std::span<char* const> /*argv*/) {
  const std::filesystem::path output = required_option(parsed, "export", "output");
  const train::SavedRun saved = train::find_saved(required_option(parsed, "export", "from"));
  std::error_code unknown;
  const auto there = std::filesystem::symlink_status(output, unknown);
  if (std::filesystem::exists(there)) {
    throw UsageError("--output {}: there is a {} already; choose another name", output.string(),
                     std::filesystem::is_directory(there) ? "folder" : "file");
  }
  const std::string format = parsed.count("format") != 0 ? parsed["format"].as<std::string>() : "";
  const bool is_script = format == "torchscript";
  auto weights = weights_of(saved.checkpoint, parsed.count("no-ema") == 0);
  if (!format.empty() && !is_script) weights = named_for(format, saved, weights, parsed);
  if (!is_script && output.extension() != ".safetensors") {
    throw UsageError(
        "--output {}: expected a name that ends in .safetensors, which is what is written",
        output.string());
  }
  int64_t bytes = 0;
  for (const auto& [name, tensor] : weights) bytes += static_cast<int64_t>(tensor.nbytes());
  remove_temporaries(output);
  if (is_script) {
    save_torchscript(output, saved, weights, parsed);
  } else {
    checkpoint::save_tensors(output, weights, {{"format", "pt"}});
  }
  fmt::print("{}: {}, {}, of {}\n", printable(output.string()),
             format_plural(static_cast<int64_t>(weights.size()), "tensor"), format_bytes(bytes),
             printable(saved.checkpoint.string()));
  return 0;
}

}  // namespace

Command export_command() {
  return {.name = "export",
          .arguments = "RUN|CHECKPOINT",
          .summary = "weights for torchvision, timm, Hugging Face",
          .details =
              "Writes a checkpoint's weights as one safetensors file that torchvision, timm "
              "and model.pretrained load. There is no ONNX: what makes it of a model is part of "
              "PyTorch's Python. Load the weights into that model there, and call "
              "torch.onnx.export().",
          .add_options =
              [](cxxopts::Options& options) {
                options.add_options()("from",
                                      "a run's folder, whose best checkpoint counts, or a "
                                      "checkpoint's",
                                      cxxopts::value<std::string>(), "RUN|CHECKPOINT")(
                    "output", "the file to make", cxxopts::value<std::string>(), "FILE")(
                    "format",
                    "whose names the weights get; without it, the model's own; torchscript: a "
                    "scripted model with its new weights, for torch.jit.load()",
                    cxxopts::value<std::string>(), "torchvision|timm|hf|torchscript")(
                    "no-ema",
                    "the weights as trained, not their moving average, where the run kept one");
                add_trust_option(options);
              },
          .positional = {"from"},
          .examples = {{"trainer export runs/digits --output digits.safetensors",
                        "the model's own names"}},
          .run = export_weights};
}

}  // namespace brim::cli
