#include "framework/cli/doctor_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/base/stop.h"
#include "framework/base/units.h"
#include "framework/cli/doctor_fix.h"
#include "framework/cli/doctor_prove.h"
#include "framework/doctor/diagnosis.h"
#include "framework/doctor/profile_rules/profile_rules.h"
#include "framework/experiment/profile/profile_file.h"
#include "framework/experiment/profile/profile_text.h"
#include "framework/experiment/run_data.h"
#include "framework/telemetry/memory_account.h"

namespace brim::cli {
namespace {

constexpr double kWatchEveryS = 2.0;
constexpr size_t kProfileRows = 5;
constexpr auto kNap = std::chrono::milliseconds(50);

std::optional<telemetry::MemoryAccount> memory_of(const experiment::RunData& run) {
  return telemetry::read_memory_account(run.record.value("memory", nlohmann::json()));
}

std::string memory_table(const experiment::RunData& run) {
  const auto memory = memory_of(run);
  return memory ? printable_lines(memory->table()) : "";
}

/// What trainer profile has found of the run's steps; "" where it was not asked.
std::string profile_text(const std::optional<telemetry::StepProfile>& profile) {
  if (!profile) return "";
  const std::string findings = doctor::describe(doctor::findings_of(*profile));
  return printable_lines("\n" + experiment::describe(*profile, kProfileRows) +
                         (findings.empty() ? "" : "\n" + findings));
}

/// What is said beside the diagnosis, as far as it was asked for.
struct Beside {
  std::optional<doctor::Proof> proof = {};
  std::optional<doctor::Fix> fix = {};
  std::optional<telemetry::StepProfile> profile = {};
};

/// The diagnosis; as JSON with what stands beside it.
std::string report_on(const experiment::RunData& run, bool as_json, const Beside& beside = {}) {
  const doctor::Diagnosis diagnosis = doctor::diagnose(doctor::facts_of(run));
  if (as_json) {
    nlohmann::json json = doctor::to_json(diagnosis);
    json["run"] = run.folder.string();
    if (const auto memory = memory_of(run)) json["memory"] = telemetry::to_json(*memory);
    if (beside.proof) json["proof"] = doctor::to_json(*beside.proof);
    if (beside.fix) json["fix"] = doctor::to_json(*beside.fix);
    if (beside.profile) {
      json["profile"] = {{"steps", beside.profile->steps},
                         {"wall_s", beside.profile->wall_s},
                         {"findings", doctor::to_json(doctor::findings_of(*beside.profile))}};
    }
    return json_line(json);
  }
  return printable_lines(doctor::describe(diagnosis));
}

/// Until a stop is asked for: the diagnosis whenever it has changed, and where memory goes, which
/// does not change while a run continues, once.
void watch(experiment::RunReader& reader, bool as_json) {
  std::string shown;
  std::string shown_memory;
  for (double looked_s = 0; !stop_requested(); std::this_thread::sleep_for(kNap)) {
    if (now_s() - looked_s < kWatchEveryS) continue;
    looked_s = now_s();
    reader.update();
    const std::string report = report_on(reader.data(), as_json);
    if (report == shown) continue;
    shown = report;
    const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
    if (is_terminal && !as_json) fmt::print("\033[H\033[2J");  // the page again
    if (!is_terminal && !as_json) fmt::print("{}\n", timestamp());
    fmt::print("{}", report);
    const std::string memory = as_json ? "" : memory_table(reader.data());
    if (is_terminal || memory != shown_memory) fmt::print("{}", memory);
    shown_memory = memory;
    std::fflush(stdout);
  }
}

}  // namespace

int doctor_run(const cxxopts::ParseResult& parsed) {
  experiment::RunReader reader(required_option(parsed, "doctor", "run"));
  const bool as_json = parsed.count("json") != 0;
  const bool proves = parsed.count("prove") != 0;
  const bool fixes = parsed.count("fix") != 0;
  if (parsed.count("watch") != 0) {
    if (proves || fixes) {
      throw UsageError("--watch and --{} don't go together; see trainer help doctor",
                       proves ? "prove" : "fix");
    }
    watch(reader, as_json);
    return 0;
  }
  for (const char* name : {"apply", "repeats", "steps"}) {
    if (!fixes && parsed.count(name) != 0) throw UsageError("--{}: expected --fix too", name);
  }
  reader.update();
  const experiment::RunData& run = reader.data();
  for (const std::string& remark : run.remarks()) {
    log::warning("{}: {}", run.folder.string(), remark);
  }
  Beside beside;
  if (proves) beside.proof = prove_run(run, parsed.count("trust-library") != 0);
  beside.profile = experiment::find_profile(run.folder);
  if (as_json) {
    if (fixes) beside.fix = fix_run(run, parsed);
    fmt::print("{}", report_on(run, as_json, beside));
    return 0;
  }
  fmt::print("{}{}", report_on(run, as_json), memory_table(run));
  fmt::print("{}", profile_text(beside.profile));
  if (beside.proof) {
    fmt::print("{}proof    {}\n", beside.profile ? "\n" : "", printable(beside.proof->sentence()));
  }
  if (!fixes) return 0;
  std::fflush(stdout);
  fmt::print("{}", printable_lines(fix_run(run, parsed).describe()));
  return 0;
}

}  // namespace brim::cli
