#include "framework/cli/doctor_prove.h"

#include <c10/core/Device.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/base/log.h"
#include "framework/cli/placement.h"
#include "framework/device/choice.h"
#include "framework/device/gpus/device_list.h"
#include "framework/device/memory/memory.h"
#include "framework/distributed/ranks.h"
#include "framework/recipe/document.h"
#include "framework/telemetry/run_record.h"
#include "framework/train/job.h"
#include "framework/train/observe/ceiling.h"

namespace brim::cli {
namespace {

// As long as the run took, within these.
constexpr double kShortest_s = 1;
constexpr double kLongest_s = 15;

/// Of a job for several devices, one of them.
void choose_one(device::DeviceConfig& config) {
  const device::DeviceList list = device::parse_device_list(config.select);
  if (list.ranks < 2) return;
  config.select = list.kind == device::DeviceList::Kind::kCpu ? "cpu" : "auto";
}

/// One rank's part of each step. Pairs that are mixed stay whole.
void take_share(train::BatchConfig& batch, int64_t ranks) {
  if (ranks < 2 || !batch.global) return;
  const int64_t share = *batch.global / ranks;
  batch.global = share < 2 ? 1 : share / 2 * 2;
  if (batch.micro) batch.micro = std::min(*batch.micro, *batch.global);
}

/// What makes the run's metrics another machine's.
void compare_machines(const nlohmann::json& record, c10::Device device, doctor::Proof& proof) {
  const std::string run_device = text_at(record, "device");
  if (!run_device.empty() && run_device.starts_with("cuda") != device.is_cuda()) {
    proof.otherness.push_back(
        fmt::format("the run was on {} and this is {}", run_device, device.str()));
  }
  const std::string other = other_host(record);
  if (!other.empty()) proof.otherness.push_back(other);
}

}  // namespace

std::string other_host(const nlohmann::json& record) {
  if (!record.is_object() || !record.contains("machine")) return "";
  const std::string host = text_at(record["machine"], "host");
  const std::string here = text_at(telemetry::machine_record(), "host");
  if (host.empty() || host == here) return "";
  return fmt::format("the run was on host {} and this is {}", host, here);
}

doctor::Proof prove_run(const experiment::RunData& run, bool trusts_library) {
  if (run.recipe.empty()) {
    throw Error(Exit::kData, "{}: expected the run's recipe.toml, which --prove runs again",
                run.folder.string());
  }
  if (distributed::read_ranks().world > 1) {
    throw UsageError("--prove measures one rank: start it without a launcher");
  }
  const doctor::RunFacts facts = doctor::facts_of(run);
  train::JobConfig job =
      train::read_job(recipe::load((run.folder / "recipe.toml").string(),
                                   {.is_of_run = true, .trusts_library = trusts_library}));
  const int64_t ranks = std::max<int64_t>(1, facts.ranks.value_or(1));
  take_share(job.batch, ranks);
  device::DeviceConfig placed = job.device;
  choose_one(placed);
  const Placement placement = place(placed, job.run.name);
  site::limits().bound_memory(job.device, placement.devices);
  const c10::Device device = device::choose_device(placed);
  const auto memory = device::memory_of(device, job.device, ranks);
  const double seconds = std::clamp(facts.seconds.value_or(0), kShortest_s, kLongest_s);
  log::info("{}: its steps on preloaded samples for {:.0f} s, on {}", job.run.name, seconds,
            device.str());
  const train::Ceiling ceiling = train::measure_ceiling(std::move(job), device, *memory, seconds);
  doctor::Proof proof = doctor::prove(facts, ceiling.samples_per_s, ceiling.steps);
  compare_machines(run.record, device, proof);
  return proof;
}

}  // namespace brim::cli
