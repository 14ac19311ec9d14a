#include "framework/base/temporaries.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <string>
#include <system_error>

#include "framework/base/descriptor.h"
#include "framework/base/error.h"

namespace brim {
namespace fs = std::filesystem;
namespace {

/// Whether the name still leads to the open file.
bool is_named(const fs::path& path, int fd) {
  struct stat open {};
  struct stat named {};
  return ::fstat(fd, &open) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

/// A file or folder, as `kind` says, that was not changed within the last minute.
bool is_old(const fs::path& path, mode_t kind) {
  constexpr time_t kLately_s = 60;
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && (info.st_mode & S_IFMT) == kind &&
         info.st_mtime + kLately_s < std::time(nullptr);
}

/// Calls body(name) for all in the folder; a folder that can't be read is as good as an empty one.
template <class Body>
void for_each_name(const fs::path& folder, Body body) {
  std::error_code code;
  fs::directory_iterator item(folder.empty() ? fs::path(".") : folder, code);
  for (; !code && item != fs::directory_iterator(); item.increment(code)) {
    body(item->path().filename().native());
  }
}

fs::path place_of_temporaries() {
  std::error_code code;
  const fs::path place = fs::temp_directory_path(code);
  return code ? fs::path("/tmp") : place;
}

}  // namespace

std::string_view target_of_temporary(std::string_view name) {
  const size_t mark = name.rfind(kTemporaryMark);
  if (mark == std::string_view::npos) return {};
  const std::string_view process = name.substr(mark + kTemporaryMark.size());
  const bool is_number = !process.empty() && process.front() != '.' &&
                         process.find_first_not_of("0123456789.") == std::string_view::npos;
  return is_number ? name.substr(0, mark) : std::string_view();
}

bool remove_if_stale(const fs::path& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || info.st_uid != ::geteuid()) return false;
  const bool is_folder = S_ISDIR(info.st_mode);
  if (!is_folder && !S_ISREG(info.st_mode)) return false;
  const fs::path locked = is_folder ? path / kFolderLock : path;
  // For writing, which locks over NFS need. O_NONBLOCK: it may have become a pipe.
  const Descriptor file(::open(locked.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file.get() < 0 || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return false;
  if (!is_named(locked, file.get())) return false;  // renamed or removed before it was locked
  std::error_code code;
  if (!is_folder) return fs::remove(path, code);
  fs::remove_all(path, code);
  return !code;
}

void remove_temporaries(const fs::path& path) {
  const std::string name = path.filename();
  for_each_name(path.parent_path(), [&](const std::string& found) {
    if (target_of_temporary(found) == name) remove_if_stale(path.parent_path() / found);
  });
}

void remove_stale_files(const fs::path& folder,
                        const std::function<bool(std::string_view)>& is_meant) {
  for_each_name(folder, [&](const std::string& name) {
    if (is_meant(name) && is_old(folder / name, S_IFREG)) remove_if_stale(folder / name);
  });
}

fs::path make_temporary_folder(std::string_view prefix) {
  const fs::path place = place_of_temporaries();
  std::string name = place / fmt::format("{}XXXXXX", prefix);
  if (::mkdtemp(name.data()) == nullptr) {
    throw Error(Exit::kResource, "{}: cannot make a temporary folder: {}", place.string(),
                errno_text(errno));
  }
  return name;
}

TemporaryFolder::TemporaryFolder(std::string_view prefix) {
  const fs::path place = place_of_temporaries();
  for_each_name(place, [&](const std::string& name) {
    if (name.starts_with(prefix) && is_old(place / name, S_IFDIR)) remove_if_stale(place / name);
  });
  path_ = make_temporary_folder(prefix);
  try {
    lock_.emplace(path_ / kFolderLock, "another process has this folder");
  } catch (...) {  // without a lock no later process would take it for one of ours
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    throw;
  }
}

TemporaryFolder::~TemporaryFolder() {
  lock_.reset();  // over NFS an open file stays in its folder, which then stays too
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace brim
