#include "framework/base/wrapper.h"

#include <system_error>

namespace brim {
namespace fs = std::filesystem;

fs::path wrapper_of(const fs::path& program) {
  const fs::path folder = program.parent_path();
  if (folder.filename() != "libexec") return program;
  const fs::path wrapper = folder.parent_path() / "bin" / program.filename();
  std::error_code ignored;
  return fs::exists(wrapper, ignored) ? wrapper : program;
}

}  // namespace brim
