#include "framework/doctor/verdict.h"

#include <nlohmann/json.hpp>

#include "framework/doctor/diagnosis.h"
#include "framework/doctor/facts.h"
#include "framework/experiment/run_data.h"
#include "framework/telemetry/run_record.h"

namespace brim::doctor {

std::vector<std::string> conclude(const std::filesystem::path& run) {
  const experiment::RunData data = experiment::read_run(run);
  const Diagnosis diagnosis = diagnose(facts_of(data));
  telemetry::add_to_record(run / "run.json", "verdict", to_json(diagnosis)["findings"]);
  return diagnosis.verdict(kVerdictLines);
}

}  // namespace brim::doctor
