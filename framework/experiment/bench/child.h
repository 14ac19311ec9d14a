// One run of this program as a fresh child process.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "framework/base/error.h"
#include "framework/experiment/child_process.h"

namespace brim::experiment {

/// Runs this program with `arguments`; what it writes goes to the file `log`. Calls `meanwhile`
/// twice a second. A stop asked of this process is passed on, once. It dies with this process.
/// Throws Error(kResource) where it can't be started.
ChildEnd run_child(const std::vector<std::string>& arguments, const std::filesystem::path& log,
                   const std::function<void()>& meanwhile);

/// The error that a child ended with, for this program to end with too: "`where`: " before each of
/// its error lines. `end.status` is not 0.
Error error_of(const ChildEnd& end, const std::string& where);

}  // namespace brim::experiment
