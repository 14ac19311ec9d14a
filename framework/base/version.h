// Which Brim this is.
#pragma once

#include <string>

namespace brim {

/// Brim's version ("0.2.0") and the commit it was built from ("unknown" outside a checkout).
std::string brim_version();
std::string brim_commit();

}  // namespace brim
