// trainer profile: where the time of a recipe's training steps goes, operator by operator and
// module by module.

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/base/stop.h"
#include "framework/base/units.h"
#include "framework/cli/commands.h"
#include "framework/cli/options.h"
#include "framework/cli/placement.h"
#include "framework/device/choice.h"
#include "framework/device/memory/memory.h"
#include "framework/distributed/group.h"
#include "framework/doctor/profile_rules/profile_rules.h"
#include "framework/experiment/profile/profile_text.h"
#include "framework/experiment/report/profile_page.h"
#include "framework/telemetry/step_profile.h"
#include "framework/train/job.h"
#include "framework/train/observe/profile_job.h"
#include "framework/train/tuning/batch_tuner.h"

namespace brim::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxSteps = 1000;
constexpr int64_t kMaxRows = 1000;
constexpr const char* kPage = "profile.html";

/// So that a folder that takes no files is found before anything is measured.
void make_writable(const fs::path& folder) {
  make_folder(folder);
  for (const char* name : {telemetry::kProfileFile, kPage}) require_replaceable(folder / name);
  require_writable("--output", folder);
}

void write_to(const fs::path& folder, const telemetry::StepProfile& profile,
              const std::vector<doctor::NamedFinding>& findings) {
  write_file(folder / telemetry::kProfileFile, json_line(telemetry::to_json(profile)));
  std::vector<std::string> sentences;
  for (const auto& named : findings) sentences.push_back(named.sentence());
  const fs::path page = folder / kPage;
  write_file(page, experiment::make_profile_page(profile, sentences, timestamp()));
  log::info("written to {}; open it in a browser", page.string());
}

int profile(const cxxopts::ParseResult& parsed, std::span<char* const> /*argv*/) {
  const int64_t steps = integer_option(parsed, "steps", 1, kMaxSteps);
  const auto rows = static_cast<size_t>(integer_option(parsed, "top", 1, kMaxRows));
  train::JobConfig job = train::read_job(load_document(parsed));
  if (job.device.select.find(',') != std::string::npos) {
    throw UsageError("trainer profile measures one process; give one device by --devices, found {}",
                     job.device.select);
  }
  if (parsed.count("output") != 0) make_writable(parsed["output"].as<std::string>());
  const auto hold = hold_device(job.device, "profile");
  const c10::Device device = device::choose_device(job.device);
  const NothingToSave while_profiling;
  const auto memory = device::memory_of(device, job.device);
  if (!job.batch.micro) {
    const auto alone = distributed::Group::alone();
    train::take(train::tune_batch(job, device, alone, *memory), /*world=*/1, job);
  }
  const telemetry::StepProfile result = train::profile_job(std::move(job), device, *memory, steps);
  const std::vector<doctor::NamedFinding> findings = doctor::findings_of(result);
  if (parsed.count("json") != 0) {
    nlohmann::json json = experiment::summary_json(result);
    json["findings"] = doctor::to_json(findings);
    fmt::print("{}", json_line(json));
  } else {
    const std::string advice = doctor::describe(findings);
    fmt::print("{}\n{}", printable_lines(experiment::describe(result, rows)),
               advice.empty() ? "nothing stands out\n" : printable_lines(advice));
  }
  std::fflush(stdout);  // what was measured stays where a file below can't be written
  if (parsed.count("output") != 0) write_to(parsed["output"].as<std::string>(), result, findings);
  return 0;
}

}  // namespace

Command profile_command() {
  return {.name = "profile",
          .arguments = "RECIPE",
          .summary = "where the time of training steps goes, operator by operator",
          .details =
              "Takes some training steps of a recipe and says for each operator and module what "
              "it takes, how near it is to the device's peaks, and what bounds it. Trains "
              "nothing that is kept.",
          .add_options =
              [](cxxopts::Options& options) {
                using cxxopts::value;
                add_job_options(options);
                options.add_options()("steps", "steps to measure, after 3 that warm up",
                                      value<int64_t>()->default_value("10"), "N")(
                    "top", "rows of each table", value<int64_t>()->default_value("15"), "N")(
                    "output", "a folder for profile.html and profile.json, such as a run's",
                    value<std::string>(), "DIR");
                add_json_option(options);
              },
          .positional = {"recipe"},
          .examples = {{"trainer profile digits", "operators and modules, by their time"},
                       {"trainer profile runs/digits/recipe.toml --output runs/digits",
                        "of a run, into its folder, where doctor and report find it"}},
          .run = profile};
}

}  // namespace brim::cli
