#include "framework/base/try_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>

#include "framework/base/error.h"

namespace brim {

std::unique_ptr<Descriptor> try_lock(const std::filesystem::path& path, LockKind kind) {
  auto file =
      std::make_unique<Descriptor>(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (file->get() < 0) {
    throw Error(Exit::kResource, "{}: cannot create: {}", path.string(), errno_text(errno));
  }
  const int operation = kind == LockKind::kShared ? LOCK_SH : LOCK_EX;
  const bool is_taken = ::flock(file->get(), operation | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  return is_taken ? nullptr : std::move(file);
}

}  // namespace brim
