#include "framework/doctor/verdict.h"

#include <nlohmann/json.hpp>

#include "framework/base/files.h"
#include "framework/doctor/diagnosis.h"
#include "framework/doctor/facts.h"
#include "framework/experiment/run_data.h"

namespace brim::doctor {

std::vector<std::string> conclude(const std::filesystem::path& run) {
  const experiment::RunData data = experiment::read_run(run);
  const Diagnosis diagnosis = diagnose(facts_of(data));
  if (!data.record.empty()) {  // a damaged record is left as it is
    nlohmann::json record = data.record;
    record["verdict"] = to_json(diagnosis)["findings"];
    write_file(run / "run.json",
               record.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  }
  return diagnosis.verdict(kVerdictLines);
}

}  // namespace brim::doctor
