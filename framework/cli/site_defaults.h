// [defaults] of the machine's rules: what a recipe may leave out there, and where runs go.
#pragma once

#include <filesystem>

#include "framework/recipe/document.h"

namespace brim::cli {

/// The lowest layer of every recipe on this machine; null where there is none. Throws
/// Error(kRecipe) for a file of rules that is wrong, or keys that a machine does not give.
const recipe::Value* site_defaults();

/// The folder of runs that name none; "runs" where the rules don't say.
std::filesystem::path site_runs();

}  // namespace brim::cli
