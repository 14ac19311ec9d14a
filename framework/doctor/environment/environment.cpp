#include "framework/doctor/environment/environment.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "framework/base/error.h"
#include "framework/device/gpus/nvml.h"

namespace brim::doctor::environment {
namespace {

using nlohmann::json;

std::optional<Space> space_in(const std::filesystem::path& folder) {
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) != 0) return std::nullopt;
  const auto block = static_cast<int64_t>(status.f_frsize);
  return Space{.total_bytes = block * static_cast<int64_t>(status.f_blocks),
               .free_bytes = block * static_cast<int64_t>(status.f_bavail)};
}

/// Of a library that is loaded already, or can be: the number as its function gives it.
template <class Function>
std::optional<int64_t> version_of(const char* library, const char* name,
                                  int64_t (*call)(Function)) {
  void* handle = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) return std::nullopt;
  const auto function = reinterpret_cast<Function>(dlsym(handle, name));
  return function == nullptr ? std::nullopt : std::optional(call(function));
}

/// 91501 is 9.15.1.
std::string cudnn_version() {
  using Get = size_t (*)();
  const auto version = version_of<Get>("libcudnn.so.9", "cudnnGetVersion",
                                       [](Get get) { return static_cast<int64_t>(get()); });
  if (!version) return {};
  return fmt::format("{}.{}.{}", *version / 10000, *version / 100 % 100, *version % 100);
}

/// 22809 is 2.28.9.
std::string nccl_version() {
  using Get = int (*)(int*);
  const auto version = version_of<Get>("libnccl.so.2", "ncclGetVersion", [](Get get) -> int64_t {
    int value = 0;
    return get(&value) == 0 ? value : 0;
  });
  if (!version) return {};
  return fmt::format("{}.{}.{}", *version / 10000, *version / 100 % 100, *version % 100);
}

std::string_view word(Health health) {
  static constexpr std::array<std::string_view, 3> kWords = {"pass", "warn", "fail"};
  return kWords[static_cast<size_t>(health)];
}

int64_t count(const std::vector<Result>& results, Health health) {
  return std::ranges::count_if(results,
                               [&](const Result& r) { return r.finding.health == health; });
}

Health worst(const std::vector<Result>& results) {
  Health result = Health::kPass;
  for (const Result& one : results) result = std::max(result, one.finding.health);
  return result;
}

}  // namespace

Surroundings look_around(Software software) {
  Surroundings result;
  device::Nvml nvml;
  result.gpus = nvml.read();
  result.why_no_nvml = nvml.why_not();
  result.driver = nvml.driver_version().value_or("");
  result.driver_cuda = nvml.cuda_version().value_or("");
  result.wait_policy = chosen_wait_policy();
  if (const char* list = std::getenv("CUDA_VISIBLE_DEVICES")) result.cuda_visible_devices = list;
  result.software = std::move(software);
  result.software.architectures = BRIM_CUDA_ARCHITECTURES;
  if (result.software.why_no_cuda.empty()) {
    result.software.cudnn = cudnn_version();
    result.software.nccl = nccl_version();
  }
  std::error_code none;
  result.folder = std::filesystem::current_path(none);
  result.disk = space_in(result.folder);
  result.shared_memory = space_in("/dev/shm");
  return result;
}

std::vector<Result> examine(const Surroundings& surroundings) {
  std::vector<Result> results;
  for (const Check& check : all_checks()) {
    if (auto finding = check.run(surroundings)) {
      results.push_back({std::string(check.name), *std::move(finding)});
    }
  }
  return results;
}

int exit_status(const std::vector<Result>& results) {
  return static_cast<int>(worst(results) == Health::kFail ? Exit::kResource : Exit::kDone);
}

std::string describe(const std::vector<Result>& results) {
  std::string text;
  for (const auto& [name, finding] : results) {
    text += fmt::format("{}  {:<16}  {}\n", word(finding.health), name, finding.found);
    if (!finding.advice.empty()) text += fmt::format("{:<24}{}\n", "", finding.advice);
  }
  return text + fmt::format("{} pass, {} warn, {} fail\n", count(results, Health::kPass),
                            count(results, Health::kWarn), count(results, Health::kFail));
}

json to_json(const std::vector<Result>& results) {
  json checks = json::array();
  for (const auto& [name, finding] : results) {
    checks.push_back({{"name", name},
                      {"health", word(finding.health)},
                      {"found", finding.found},
                      {"advice", finding.advice.empty() ? json(nullptr) : json(finding.advice)}});
  }
  return {{"health", word(worst(results))}, {"checks", checks}};
}

}  // namespace brim::doctor::environment
