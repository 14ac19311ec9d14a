#include "framework/base/version.h"

namespace brim {

std::string brim_version() { return BRIM_VERSION; }
std::string brim_commit() { return BRIM_COMMIT; }

}  // namespace brim
