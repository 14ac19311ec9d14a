// The name of this machine.
#pragma once

#include <string>

namespace brim {

/// As the kernel has it; "localhost" where it has none that can be read.
std::string host_name();

}  // namespace brim
