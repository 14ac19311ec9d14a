// trainer devices: the GPUs and the CPU as this process finds them, once or again and again.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/base/machine.h"
#include "framework/base/printable.h"
#include "framework/base/stop.h"
#include "framework/base/units.h"
#include "framework/cli/commands.h"
#include "framework/cli/devices_rules.h"
#include "framework/cli/options.h"
#include "framework/device/gpus/nvml.h"
#include "framework/device/gpus/report.h"
#include "framework/device/gpus/selection.h"
#include "framework/site/limits.h"
#include "framework/telemetry/run_record.h"
#include "framework/train/job.h"

namespace brim::cli {
namespace {

using device::GpuReading;
using device::Nvml;
using nlohmann::json;

/// GPM's counters need 100 ms between two readings.
constexpr double kCounterInterval_s = 0.15;

/// Sleeps in small pieces; false once a stop was asked for.
bool wait(double seconds) {
  const double end = now_s() + seconds;
  while (!stop_requested() && now_s() < end) {
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(0.05, end - now_s())));
  }
  return !stop_requested();
}

/// With activities, where a GPU has the counters.
std::vector<GpuReading> first_reading(Nvml& nvml) {
  std::vector<GpuReading> gpus = nvml.read();
  if (!nvml.has_counters() || !wait(kCounterInterval_s)) return gpus;
  return nvml.read();
}

json cpu_record() {
  const Machine machine;
  const std::optional<double> quota = machine.core_quota();
  const std::optional<int64_t> limit = machine.memory_limit_bytes();
  return {{"name", telemetry::machine_record()["cpu"]},
          {"cores", machine.allowed_cores()},
          {"usable_cores", machine.usable_cores()},
          {"core_quota", quota ? json(*quota) : json(nullptr)},
          {"memory_total_bytes", machine.memory_bytes()},
          {"memory_limit_bytes", limit ? json(*limit) : json(nullptr)},
          {"memory_free_bytes", machine.free_memory_bytes()}};
}

/// What a run would train on, by a recipe or by --devices alone; nullopt where neither is given.
std::optional<device::Selection> choice(const cxxopts::ParseResult& options, const Nvml& nvml,
                                        const std::vector<GpuReading>& gpus) {
  device::DeviceConfig config;
  if (options.count("recipe") != 0) {
    config = train::read_job(load_document(options)).device;
  } else if (options.count("devices") != 0) {
    config.select = options["devices"].as<std::string>();
  } else {
    return std::nullopt;
  }
  device::Census census{.gpus = gpus, .is_known = nvml.is_there()};
  site::limits().keep_off(census, /*is_training=*/true);
  device::Selection found =
      device::select_devices(config, census, std::getenv("CUDA_VISIBLE_DEVICES"));
  found.locks.clear();  // others may have them while these are looked at
  return found;
}

std::string describe(const device::Selection& choice, bool has_driver) {
  std::string text;
  for (const std::string& line : choice.warnings) text += "warning: " + line + "\n";
  using Where = device::Selection::Where;
  text += fmt::format("would use: {}, {}\n",
                      choice.where == Where::kGpus ? "CUDA_VISIBLE_DEVICES=" + choice.visible
                      : choice.where == Where::kCpu || !has_driver ? "CPU"
                                                                   : "the GPUs that CUDA finds",
                      format_plural(choice.ranks, "process", "processes"));
  return text;
}

json to_json(const device::Selection& choice) {
  return {{"on_cpu", choice.where == device::Selection::Where::kCpu},
          {"ranks", choice.ranks},
          {"cuda_visible_devices", choice.visible},
          {"warnings", choice.warnings}};
}

json record(const Nvml& nvml, const std::vector<GpuReading>& gpus) {
  const auto driver = nvml.driver_version();
  json list = json::array();
  for (const GpuReading& gpu : gpus) list.push_back(device::to_json(gpu));
  return {{"time", timestamp()},
          {"driver", driver ? json(*driver) : json(nullptr)},
          {"no_gpus_because", nvml.is_there() ? json(nullptr) : json(nvml.why_not())},
          {"gpus", list},
          {"cpu", cpu_record()}};
}

std::string describe_cpu() {
  const json cpu = cpu_record();
  std::string text =
      fmt::format("CPU    {}\n       {} of {} cores usable", cpu["name"].get<std::string>(),
                  cpu["usable_cores"].get<int>(), cpu["cores"].get<int>());
  if (!cpu["core_quota"].is_null()) {
    text += fmt::format(" (the cgroup's quota: {:.1f})", cpu["core_quota"].get<double>());
  }
  text +=
      fmt::format(", memory: {} free of {}", format_bytes(cpu["memory_free_bytes"].get<int64_t>()),
                  format_bytes(cpu["memory_total_bytes"].get<int64_t>()));
  if (!cpu["memory_limit_bytes"].is_null()) {
    text += fmt::format(" (the cgroup's limit: {})",
                        format_bytes(cpu["memory_limit_bytes"].get<int64_t>()));
  }
  return text + "\n";
}

std::string describe_all(const Nvml& nvml, const std::vector<GpuReading>& gpus) {
  std::string text;
  for (const GpuReading& gpu : gpus) text += device::describe(gpu);
  if (!nvml.is_there()) text += fmt::format("no NVIDIA GPU: {}\n", nvml.why_not());
  if (nvml.is_there() && gpus.empty()) text += "no NVIDIA GPU: the driver shows none\n";
  return text + describe_cpu();
}

int show_devices(const cxxopts::ParseResult& parsed, std::span<char* const> /*argv*/) {
  const auto every_s = parsed["every"].as<double>();
  if (!(every_s >= kCounterInterval_s && every_s <= 86400)) {
    throw UsageError("--every: expected seconds from {} to 86400, found {}", kCounterInterval_s,
                     every_s);
  }
  const bool is_watch = parsed.count("watch") != 0;
  Nvml nvml;
  std::vector<GpuReading> gpus = first_reading(nvml);
  const std::optional<device::Selection> chosen = choice(parsed, nvml, gpus);
  do {
    json line = record(nvml, gpus);
    add_sharing(line, gpus);
    if (parsed.count("json") != 0) {
      if (chosen) line["choice"] = to_json(*chosen);
      fmt::print("{}", json_line(line));
    } else {
      // Over the reading before, on a terminal.
      if (is_watch && ::isatty(STDOUT_FILENO) != 0) fmt::print("\x1b[H\x1b[2J");
      fmt::print("{}{}", is_watch ? timestamp() + "\n" : "",
                 printable_lines(describe_all(nvml, gpus) + describe_sharing(line)));
      if (chosen) fmt::print("{}", printable_lines(describe(*chosen, nvml.is_there())));
    }
    std::fflush(stdout);
    if (!is_watch || !wait(every_s)) break;
    gpus = nvml.read();
  } while (std::ferror(stdout) == 0);
  return 0;
}

}  // namespace

Command devices_command() {
  return {.name = "devices",
          .arguments = "",
          .summary = "the GPUs and the CPU, and who uses them",
          .details =
              "Shows memory, activity and health of the GPUs and the CPU, the rules of a shared "
              "machine, who holds what and what idles while it is held; with --recipe or "
              "--devices, those that a run would use.",
          .add_options =
              [](cxxopts::Options& options) {
                add_job_options(options);
                options.add_options()("watch", "again and again until Ctrl-C")(
                    "every", "seconds between two readings, with --watch",
                    cxxopts::value<double>()->default_value("2"), "SECONDS");
                add_json_option(options, "print JSON, a line a reading");
              },
          .positional = {},
          .examples = {{"trainer devices", "what there is"},
                       {"trainer devices --recipe digits", "and what a run would use"}},
          .run = show_devices};
}

}  // namespace brim::cli
