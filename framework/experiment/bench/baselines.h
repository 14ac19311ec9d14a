// Benches kept by name under benchmarks/baselines/ of the current folder, to compare later ones
// with.
#pragma once

#include <filesystem>
#include <string>

namespace brim::experiment {

/// benchmarks/baselines/NAME.json. Throws Error(kRecipe) where the name is no plain file name.
std::filesystem::path baseline_path(const std::string& name);

/// The same of a baseline that is there; Error(kRecipe) with the nearest name where it is not.
std::filesystem::path find_baseline(const std::string& name);

}  // namespace brim::experiment
