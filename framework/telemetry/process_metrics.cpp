#include "framework/telemetry/process_metrics.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "framework/base/machine.h"
#include "framework/base/units.h"

namespace brim::telemetry {
namespace {

constexpr double kEveryS = 1.0;

/// Page faults of this process that went to a disk, from its beginning; -1: not known. Field 12 of
/// /proc/self/stat; the second, a name in parentheses, may hold blanks.
double major_faults(const std::filesystem::path& root) {
  std::ifstream file(root / "proc/self/stat");
  std::string line;
  std::getline(file, line);
  const size_t end = line.rfind(')');
  if (end == std::string::npos) return -1;
  std::istringstream fields(line.substr(end + 1));
  std::string field;
  for (int number = 3; number <= 12; ++number) fields >> field;
  std::istringstream count(field);
  double faults = -1;
  return count >> faults ? faults : -1;
}

/// "some avg10=1.53 avg60=…".
bool read_stall(const std::filesystem::path& root, nlohmann::json& metric) {
  std::ifstream file(root / "proc/pressure/io");
  std::string word;
  double percent = 0;
  file >> word;
  file.ignore(1);
  if (word != "some" || !std::getline(file, word, '=') || word != "avg10" || !(file >> percent)) {
    return false;
  }
  metric = percent;
  return true;
}

}  // namespace

ProcessMetrics::ProcessMetrics(std::filesystem::path root)
    : root_(std::move(root)), taken_s_(now_s()), major_faults_(major_faults(root_)) {}

void ProcessMetrics::add_to(nlohmann::json& line, double now_s) {
  const double passed_s = now_s - taken_s_;
  if (passed_s < kEveryS) return;
  taken_s_ = now_s;
  const Machine machine(root_);
  if (const auto bytes = machine.status("VmRSS")) line["process"]["resident_bytes"] = *bytes;
  if (const auto bytes = machine.status("VmSwap")) line["process"]["swapped_bytes"] = *bytes;
  const double faults = major_faults(root_);
  if (faults >= 0 && major_faults_ >= 0) {
    line["process"]["major_faults_per_s"] = (faults - major_faults_) / passed_s;
  }
  major_faults_ = faults;
  double load = 0;
  if (std::ifstream(root_ / "proc/loadavg") >> load) line["machine"]["load"] = load;
  nlohmann::json metric;
  if (read_stall(root_, metric)) line["machine"]["io_stalled_percent"] = metric;
}

}  // namespace brim::telemetry
