#include "framework/base/machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <system_error>

namespace brim {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  const size_t begin = line.find_first_not_of(" \t\r");
  if (begin == std::string::npos) return "";
  return line.substr(begin, line.find_last_not_of(" \t\r") - begin + 1);
}

/// The number in a one-line file such as memory.max; nullopt for "max", nonsense or no file.
/// Version 1 writes "no limit" as a number close to 2^63.
std::optional<int64_t> bytes_in(const fs::path& path) {
  const std::string text = first_line(path).value_or("");
  int64_t value = -1;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  constexpr int64_t kNoLimit = int64_t{1} << 60;
  if (parsed.ec != std::errc() || value < 0 || value >= kNoLimit) return std::nullopt;
  return value;
}

/// The number that follows `name` in a file of lines "name number".
std::optional<int64_t> named_number(const fs::path& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    int64_t value = 0;
    if (words >> word && word == name && words >> value) return value;
  }
  return std::nullopt;
}

/// The bytes in a line "name:   12 kB".
std::optional<int64_t> named_kib(const fs::path& path, std::string_view name) {
  const auto kib = named_number(path, std::string(name) + ":");
  return kib ? std::optional(*kib * 1024) : std::nullopt;
}

/// Microseconds of processor time in a period: "max 100000" or "150000 100000" in version 2.
std::optional<double> quota_of(const fs::path& group, bool is_v1) {
  double quota = 0;
  double period = 0;
  if (is_v1) {
    std::ifstream(group / "cpu.cfs_quota_us") >> quota;
    std::ifstream(group / "cpu.cfs_period_us") >> period;
  } else {
    std::ifstream(group / "cpu.max") >> quota >> period;
  }
  return quota > 0 && period > 0 ? std::optional(quota / period) : std::nullopt;
}

std::optional<int64_t> limit_of(const fs::path& group, bool is_v1) {
  return bytes_in(group / (is_v1 ? "memory.limit_in_bytes" : "memory.max"));
}

/// What a group holds that the kernel cannot simply drop.
int64_t held_by(const fs::path& group, bool is_v1) {
  const auto all = bytes_in(group / (is_v1 ? "memory.usage_in_bytes" : "memory.current"));
  const auto droppable =
      named_number(group / "memory.stat", is_v1 ? "total_inactive_file" : "inactive_file");
  return std::max<int64_t>(0, all.value_or(0) - droppable.value_or(0));
}

/// Of a thread's folder in /proc; 0 where the kernel does not tell.
int nice_of(const fs::path& task) {
  constexpr int kPosition = 17;  // behind the name, which is in brackets and may hold some too
  const std::string line = first_line(task / "stat").value_or("");
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  std::string field;
  for (int i = 0; i < kPosition; ++i) fields >> field;
  return std::atoi(field.c_str());
}

}  // namespace

std::optional<std::string> Machine::line(std::string_view relative) const {
  return first_line(path(relative));
}

/// The groups that bound this process, from the lines HIERARCHY:CONTROLLERS:PATH of
/// /proc/self/cgroup, each with those above it. In a container the path may be the host's, of which
/// only the mount's top is there.
std::vector<Machine::Group> Machine::groups(std::string_view controller) const {
  std::vector<Group> result;
  const auto add = [&](const fs::path& mount, const std::string& group, bool is_v1) {
    fs::path folder = mount;
    result.push_back({folder, is_v1});
    for (const fs::path& part : fs::path(group).relative_path()) {
      folder /= part;
      result.push_back({folder, is_v1});
    }
  };
  std::ifstream file(path("proc/self/cgroup"));
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    const fs::path mounts = path("sys/fs/cgroup");
    if (controllers.empty()) {
      add(mounts, group, false);
    } else if (("," + controllers + ",").find("," + std::string(controller) + ",") !=
               std::string::npos) {
      add(mounts / controllers, group, true);
      if (controllers != controller) add(mounts / controller, group, true);
    }
  }
  return result;
}

int Machine::allowed_cores() const {
  // A machine may have more cores than cpu_set_t has bits; the kernel then refuses with EINVAL.
  for (int bits = CPU_SETSIZE; bits <= (1 << 20); bits *= 4) {
    cpu_set_t* set = CPU_ALLOC(bits);
    const size_t bytes = CPU_ALLOC_SIZE(bits);
    const bool is_known = ::sched_getaffinity(0, bytes, set) == 0;
    const int count = is_known ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (is_known) return count;
  }
  return static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
}

std::optional<double> Machine::core_quota() const {
  std::optional<double> smallest;
  for (const auto& [folder, is_v1] : groups("cpu")) {
    const std::optional<double> quota = quota_of(folder, is_v1);
    if (quota) smallest = std::min(*quota, smallest.value_or(*quota));
  }
  return smallest;
}

int Machine::usable_cores() const {
  const int allowed = allowed_cores();
  const double quota = core_quota().value_or(allowed);
  return std::max(1, static_cast<int>(std::min<double>(allowed, std::floor(quota))));
}

int64_t Machine::memory_bytes() const {
  return meminfo("MemTotal").value_or(int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE));
}

std::optional<int64_t> Machine::memory_limit_bytes() const {
  std::optional<int64_t> smallest;
  for (const auto& [folder, is_v1] : groups("memory")) {
    const std::optional<int64_t> limit = limit_of(folder, is_v1);
    if (limit) smallest = std::min(*limit, smallest.value_or(*limit));
  }
  return smallest;
}

int64_t Machine::free_memory_bytes() const {
  int64_t free = meminfo("MemAvailable").value_or(memory_bytes());
  for (const auto& [folder, is_v1] : groups("memory")) {
    const std::optional<int64_t> limit = limit_of(folder, is_v1);
    if (limit) free = std::min(free, std::max<int64_t>(0, *limit - held_by(folder, is_v1)));
  }
  return free;
}

std::optional<int64_t> Machine::meminfo(std::string_view name) const {
  return named_kib(path("proc/meminfo"), name);
}

std::optional<int64_t> Machine::status(std::string_view name) const {
  return named_kib(path("proc/self/status"), name);
}

int usable_cores() { return Machine().usable_cores(); }

double Machine::run_delay_s() const {
  std::map<int, double> delay_ns;  // by nice value
  std::error_code ignored;
  for (fs::directory_iterator it(path("proc/self/task"), ignored), end; it != end;
       it.increment(ignored)) {
    std::ifstream file(it->path() / "schedstat");  // time on a core, run delay, time slices
    double run_ns = 0, thread_delay_ns = 0;
    if (file >> run_ns >> thread_delay_ns) delay_ns[nice_of(it->path())] += thread_delay_ns;
  }
  return delay_ns.empty() ? 0 : delay_ns.begin()->second * 1e-9;
}

std::optional<std::string> chosen_wait_policy() {
  for (const std::string name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}) {
    const char* value = std::getenv(name.c_str());
    if (value != nullptr && *value != '\0') return name + "=" + value;
  }
  return std::nullopt;
}

}  // namespace brim
