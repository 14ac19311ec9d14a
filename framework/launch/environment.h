// What a worker finds in its environment: torchrun's variables and one of ours.
#pragma once

#include <string>
#include <vector>

#include "framework/launch/binding.h"
#include "framework/launch/options.h"

namespace brim::launch {

/// What the workers of one attempt share, and what one of them has to itself.
struct WorkerPlace {
  std::string run_id;
  int restarts = 0;  // before this attempt
  int master_port = 0;
  int local_rank = 0;
  int store_fd = -1;  // the listening socket of rank 0's store, in BRIM_STORE_FD; -1: none
  std::string error_file;
  Cores cores;
};

int global_rank(const LaunchOptions& options, int local_rank);

/// NAME=VALUE for all: this process's environment with the worker's variables added.
/// OMP_NUM_THREADS is kept where it is set, else the cores that fall to one rank.
std::vector<std::string> worker_environment(const LaunchOptions& options, const WorkerPlace& place);

}  // namespace brim::launch
