// Any text is a profile or nothing; what is accepted can be judged, printed, drawn and written.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/doctor/profile_rules/profile_rules.h"
#include "framework/experiment/profile/profile_text.h"
#include "framework/experiment/report/profile_page.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace telemetry = brim::telemetry;
  std::optional<telemetry::StepProfile> profile;
  try {
    profile = telemetry::read_step_profile(
        brim::parse_json({reinterpret_cast<const char*>(data), size}, "input"));
  } catch (const brim::Error&) {
    return 0;
  }
  if (!profile) return 0;
  std::vector<std::string> sentences;
  for (const auto& named : brim::doctor::findings_of(*profile)) {
    sentences.push_back(named.sentence());
  }
  if (brim::experiment::describe(*profile, 3).empty()) std::abort();
  const std::string page = brim::experiment::make_profile_page(*profile, sentences, "now");
  if (page.find("<script") != std::string::npos) std::abort();
  if (!telemetry::read_step_profile(telemetry::to_json(*profile))) std::abort();
  return 0;
}
