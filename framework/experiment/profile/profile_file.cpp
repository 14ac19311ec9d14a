#include "framework/experiment/profile/profile_file.h"

#include <nlohmann/json.hpp>
#include <system_error>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/log.h"

namespace brim::experiment {

std::optional<telemetry::StepProfile> find_profile(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / telemetry::kProfileFile;
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return std::nullopt;
  try {
    const std::string text = read_file(file, Exit::kResource, JsonLimits().bytes);
    auto profile = telemetry::read_step_profile(parse_json(text, file.string()));
    if (profile) return profile;
    log::warning("{}: expected what trainer profile writes, found something else", file.string());
  } catch (const Error& problem) {
    log::warning("{}", problem.what());
  }
  return std::nullopt;
}

}  // namespace brim::experiment
