// How the program is started again later, by a batch script or a person.
#pragma once

#include <filesystem>

namespace brim {

/// bin/NAME for a package's libexec/NAME, which finds LibTorch only by that wrapper's variables;
/// any other program as it is.
std::filesystem::path wrapper_of(const std::filesystem::path& program);

}  // namespace brim
