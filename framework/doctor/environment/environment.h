// The environment check as a whole: looks around, runs every check, tells the result.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "framework/doctor/environment/checks.h"

namespace brim::doctor::environment {

/// This machine as it is now. Of `software` the caller knows LibTorch and CUDA; the rest is looked
/// for here.
Surroundings look_around(Software software);

struct Result {
  std::string name;
  CheckResult finding;
};

/// Of the checks that have something to judge.
std::vector<Result> examine(const Surroundings& surroundings);

/// 0, or Exit::kResource where a check fails.
int exit_status(const std::vector<Result>& results);

std::string describe(const std::vector<Result>& results);
nlohmann::json to_json(const std::vector<Result>& results);

}  // namespace brim::doctor::environment
