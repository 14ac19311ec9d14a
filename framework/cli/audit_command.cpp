// trainer audit RUN: which samples the weights of a checkpoint have seen, and how often.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/base/units.h"
#include "framework/checkpoint/folder.h"
#include "framework/checkpoint/manifest.h"
#include "framework/cli/commands.h"
#include "framework/cli/options.h"
#include "framework/data/samplers/shuffled.h"
#include "framework/experiment/run_data.h"
#include "framework/train/audit/ledger_text.h"
#include "framework/train/job.h"
#include "framework/train/run/run_folder.h"

namespace brim::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kManySamples = 100'000'000;  // take half a minute

/// Of a run the newest checkpoint, which its weights are in. All of its files are verified.
fs::path newest_or_named(const fs::path& path) {
  std::error_code ignored;
  const fs::path checkpoints = train::RunFolder{path}.checkpoints();
  if (fs::is_directory(checkpoints, ignored)) {
    if (const auto newest = checkpoint::latest_checkpoint(checkpoints)) return *newest;
  }
  const fs::path named = train::find_saved(path).checkpoint;
  checkpoint::verify_files(named, checkpoint::read_manifest(named));
  return named;
}

/// An order, and what it looks into.
struct OpenedOrder {
  std::unique_ptr<train::JobConfig> job = nullptr;
  std::unique_ptr<data::Dataset> dataset = nullptr;
  std::shared_ptr<const data::Order> order = nullptr;
};

/// Opens the run's data where the order follows from more than their number.
OpenedOrder open_order(const cxxopts::ParseResult& parsed, const train::SampleRecord& record,
                       const fs::path& recipe) {
  OpenedOrder opened;
  opened.order = data::order_without_data(record.order, record.samples, record.seed);
  if (opened.order != nullptr) return opened;
  log::info("the order \"{}\" follows from the data, which are opened for it",
            printable(record.order));
  opened.job =
      std::make_unique<train::JobConfig>(train::read_job(load_document(parsed, recipe.string())));
  const data::DataConfig& data = opened.job->data;
  opened.dataset = data.open_train();
  const int64_t samples = opened.dataset->size();
  if (samples != record.samples) {
    throw Error(Exit::kData,
                "the training data of {}: expected the {} samples of the checkpoint, found {}. "
                "Put back the data that the run was trained on",
                recipe.string(), record.samples, samples);
  }
  opened.order = data.order(*opened.dataset, {record.seed, record.global_batch});
  if (opened.order->text() != record.order) {
    throw Error(Exit::kData,
                "{}: expected the order \"{}\" of the checkpoint, found \"{}\". Put back the "
                "recipe and the data that the run was trained with",
                recipe.string(), record.order, opened.order->text());
  }
  return opened;
}

/// What the run's folder tells beside its checkpoints.
void add_run(const fs::path& run, train::SampleAudit& audit) {
  std::error_code ignored;
  const train::RunFolder folder{run};
  if (!fs::exists(folder.record(), ignored) && !fs::exists(folder.metrics(), ignored)) return;
  const experiment::RunData data = experiment::read_run(run);
  for (const std::string& remark : data.remarks()) log::warning("{}: {}", run.string(), remark);
  audit.logged_step = data.last_step();
  audit.repeated = train::read_repeated_steps(data.record);
  // Those before the checkpoint's own parts are of other weights.
  std::erase_if(audit.repeated, [&](const train::RepeatedSteps& steps) {
    return std::ranges::find(audit.record.history.parts, steps.after_step,
                             &train::HistoryPart::after_step) == audit.record.history.parts.end();
  });
}

int audit(const cxxopts::ParseResult& parsed, std::span<char* const> /*argv*/) {
  if (parsed.count("from") == 0) {
    throw UsageError("no run given; try: trainer audit runs/digits");
  }
  train::SampleAudit audit;
  audit.checkpoint = newest_or_named(parsed["from"].as<std::string>());
  audit.record = train::read_sample_record(audit.checkpoint);
  const fs::path run = audit.checkpoint.parent_path().parent_path();
  if (parsed.count("sample") != 0) {
    audit.sample = integer_option(parsed, "sample", 0, audit.record.samples - 1);
  }
  if (parsed.count("step") != 0) {
    audit.step = integer_option(parsed, "step", 1, audit.record.step);
  }
  add_run(run, audit);
  const OpenedOrder opened = open_order(parsed, audit.record, train::RunFolder{run}.recipe());
  if (audit.record.step > kManySamples / audit.record.global_batch) {
    log::info("going through the samples of {} steps; some millions are done a second",
              format_count(audit.record.step));
  }
  audit.is_permutation = opened.order->is_permutation();
  audit.ledger = train::make_ledger(audit.record, *opened.order, audit.sample);
  if (audit.step) {
    audit.of_step = train::samples_of_step(audit.record, *opened.order, *audit.step);
  }
  fmt::print("{}", parsed.count("json") != 0 ? train::to_json(audit).dump() + "\n"
                                             : printable_lines(train::describe(audit)));
  return static_cast<int>(audit.is_proven() ? Exit::kDone : Exit::kData);
}

}  // namespace

Command audit_command() {
  return {
      .name = "audit",
      .arguments = "RUN|CHECKPOINT",
      .summary = "which samples a run has seen, and how often",
      .details =
          "Proves that the weights of a run's newest checkpoint, or of another one, have seen each "
          "sample exactly once an epoch, over crashes, restarts and other numbers of ranks; or "
          "names the exceptions and leaves with status 3. Samples count from 0. It reads no "
          "sample, and opens the data only where their order follows from them.",
      .add_options =
          [](cxxopts::Options& options) {
            options.add_options()("from", "the folder of a run or of a checkpoint",
                                  cxxopts::value<std::string>(), "RUN|CHECKPOINT")(
                "sample", "the steps and ranks that have seen this sample",
                cxxopts::value<int64_t>(),
                "N")("step", "the samples of this step, by rank", cxxopts::value<int64_t>(), "N");
            add_trust_option(options);
            add_json_option(options);
          },
      .positional = {"from"},
      .examples = {{"trainer audit runs/digits", "each sample exactly once an epoch?"},
                   {"trainer audit runs/digits --sample 17",
                    "when was it seen, and by which rank?"},
                   {"trainer audit runs/digits --step 120", "what was in that batch?"}},
      .run = audit};
}

}  // namespace brim::cli
