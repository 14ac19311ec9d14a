#include "framework/train/tuning/tuning_cache.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "framework/base/files.h"
#include "framework/base/temporaries.h"
#include "framework/recipe/read.h"
#include "framework/train/components.h"

namespace brim::train {
namespace {

constexpr int64_t kLargestFile = 1 << 20;
constexpr const char* kTunedSuffix = ".json";

/// The sections of a job that decide how much memory a sample takes, and how fast a step is.
struct MemorySections final : recipe::Config {
  explicit MemorySections(JobConfig& job) : job(job) {}
  void fields(recipe::Fields& f) override {
    f.section("model", job.model, "");
    f.section("precision", job.precision, "");
    f.section("optimizer", job.optimizer, "");
    f.section("train", job.train, "");
    f.section("eval", job.eval, "");
    f.section("distributed", job.distributed, "");
  }
  JobConfig& job;
};

}  // namespace

std::string tuning_key(JobConfig& job, const std::string& input, c10::Device device, int64_t global,
                       int64_t world, const device::Memory& memory) {
  MemorySections sections(job);
  const double limit = static_cast<double>(memory.limit_bytes());
  return fmt::format("{}\ninput {}\nglobal {}, objective {}, {} ranks\nlimit {}\n{}\n",
                     recipe::print(sections), input, global, static_cast<int>(job.batch.objective),
                     world, std::floor(std::log(limit) / std::log(1.05)),
                     device_and_versions(device));
}

std::filesystem::path TuningCache::file(const std::string& key) const {
  return folder_ / (digest(std::as_bytes(std::span(key))) + kTunedSuffix);
}

std::optional<int64_t> TuningCache::find(const std::string& key) const {
  std::error_code ignored;
  if (folder_.empty() || !std::filesystem::exists(file(key), ignored)) return std::nullopt;
  try {
    const auto saved = nlohmann::json::parse(read_file(file(key), Exit::kResource, kLargestFile));
    const auto micro = saved.at("micro").get<int64_t>();
    if (saved.at("key") != key || micro < 1) return std::nullopt;
    return micro;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

void TuningCache::remember(const std::string& key, int64_t micro) const {
  if (folder_.empty()) return;
  try {
    make_folder(folder_);
    remove_stale_files(folder_, [](std::string_view name) {
      return target_of_temporary(name).ends_with(kTunedSuffix);
    });
    write_file(file(key), nlohmann::json({{"key", key}, {"micro", micro}}).dump());
  } catch (const Error&) {
    return;
  }
}

}  // namespace brim::train
