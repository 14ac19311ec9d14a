// What a launch is told, and trainrun's command line: torchrun's spelling, with - or _ inside.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace brim::launch {

/// Which cores a rank may run on: all, an equal slice, or an equal slice of one NUMA node.
enum class Bind { kNone, kCores, kNuma };

/// Which output streams a setting is about: 0 none, 1 stdout, 2 stderr, 3 both (torchrun's count).
struct StreamChoice {
  int every_rank = 0;
  std::map<int, int> by_local_rank;  // where not empty, ranks left out have none

  bool has_stdout(int local_rank) const { return (of(local_rank) & 1) != 0; }
  bool has_stderr(int local_rank) const { return (of(local_rank) & 2) != 0; }
  bool is_empty() const { return every_rank == 0 && by_local_rank.empty(); }

 private:
  int of(int local_rank) const;
};

struct LaunchOptions {
  std::vector<std::string> command;  // the program's path, then its arguments
  int ranks_per_node = 1;            // the same on every node
  int nodes = 1;
  int node_rank = 0;
  std::string master_addr = "127.0.0.1";
  int master_port = 0;  // 0: a free one (only with one node)
  int max_restarts = 0;
  int former_starts = 0;             // of the same run, by this process
  std::string run_id;                // empty: made from the time and the process id
  std::filesystem::path log_folder;  // empty: a temporary folder where logs are asked for
  StreamChoice redirects;            // to a log file only
  StreamChoice tee;                  // to a log file and on
  std::vector<int> shown_ranks;      // local ranks whose output is passed on; empty: all
  Bind bind = Bind::kNone;
  double stop_timeout_s = 300;  // for a checkpoint after SIGTERM
};

/// Checks what options say about each other. Throws Error(kRecipe).
void validate(const LaunchOptions& options);

/// trainrun's command line; PET_NNODES and the like are defaults, as for torchrun. The text to
/// print instead where --help or --version asks for it. Throws Error(kRecipe) for anything that
/// can't be meant, the program's name included.
std::variant<LaunchOptions, std::string> parse_options(int argc, char** argv);

}  // namespace brim::launch
