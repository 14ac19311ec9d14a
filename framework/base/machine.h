// What this process may use of the machine: cores and memory, as the scheduler's mask, /proc and
// the cgroups (v1 and v2) bound them. Everything is read when it is asked for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace brim {

class Machine {
 public:
  /// `root` is where the machine's /proc, /sys and /dev are found: "/" except in tests.
  explicit Machine(std::filesystem::path root = "/") : root_(std::move(root)) {}

  /// A file's place under the root: path("proc/meminfo").
  std::filesystem::path path(std::string_view relative) const { return root_ / relative; }
  /// The first line of a small file without blanks at its ends; nullopt where it can't be read.
  std::optional<std::string> line(std::string_view relative) const;

  /// Cores of this process's affinity mask.
  int allowed_cores() const;
  /// Cores' worth of processor time that the cgroups leave, the smallest on the way up; nullopt
  /// without a quota.
  std::optional<double> core_quota() const;
  /// allowed_cores(), no more than the quota; at least 1.
  int usable_cores() const;

  int64_t memory_bytes() const;
  /// The smallest memory limit of the process's cgroup and those above it.
  std::optional<int64_t> memory_limit_bytes() const;
  /// What can be taken without swapping: the kernel's estimate (MemAvailable), no more than what is
  /// left under the limit of any cgroup on the way up, pages of files that can be dropped not
  /// counted as used.
  int64_t free_memory_bytes() const;

  /// The bytes of a line of /proc/meminfo as in "SwapTotal"; nullopt where there is none.
  std::optional<int64_t> meminfo(std::string_view name) const;
  /// The bytes of a line of /proc/self/status as in "VmRSS"; nullopt where there is none.
  std::optional<int64_t> status(std::string_view name) const;

  /// Seconds that the threads which this process has now were ready to run without a core, each
  /// since it began (the run delay of /proc/self/task/*/schedstat), without those of a higher nice
  /// value than others, which wait by design; 0 where the kernel does not tell.
  double run_delay_s() const;

 private:
  struct Group {
    std::filesystem::path folder;
    bool is_v1;
  };
  std::vector<Group> groups(std::string_view controller) const;

  std::filesystem::path root_;
};

/// Machine().usable_cores().
int usable_cores();

/// "NAME=value" where the user has set by the environment how OpenMP threads wait
/// (OMP_WAIT_POLICY, GOMP_SPINCOUNT).
std::optional<std::string> chosen_wait_policy();

}  // namespace brim
