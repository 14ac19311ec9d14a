#include "framework/text/token_folder.h"

#include <unistd.h>

#include <system_error>

#include "framework/base/error.h"
#include "framework/base/temporaries.h"

namespace brim::text {
namespace fs = std::filesystem;

void TokenWriter::write(std::span<const int32_t> ids, int64_t documents, int64_t text_bytes) {
  if (is_uint16_) {
    narrow_.assign(ids.begin(), ids.end());
    file_.write(std::as_bytes(std::span(narrow_)));
  } else {
    file_.write(std::as_bytes(ids));
  }
  counts_.tokens += static_cast<int64_t>(ids.size());
  counts_.documents += documents;
  counts_.text_bytes += text_bytes;
}

TokenFolder::TokenFolder(fs::path path) : path_(std::move(path)) {
  if (!path_.has_filename()) path_ = path_.parent_path();  // "folder/"
  std::error_code code;
  const bool is_there = fs::exists(fs::symlink_status(path_, code));
  if (is_there && !(fs::is_directory(path_, code) && fs::is_empty(path_, code))) {
    throw Error(Exit::kRecipe, "{}: is already there; remove it or choose another output",
                path_.string());
  }
  if (is_there) make_way();
  remove_temporaries(path_);
  temporary_ = path_;
  temporary_ += fmt::format("{}{}", kTemporaryMark, ::getpid());
  make_folder(temporary_);
  lock_.emplace(temporary_ / kFolderLock,
                fmt::format("{}: another process writes this folder; wait for it or choose another "
                            "output",
                            path_.string()));
}

/// For the folder that takes the empty one's place, which may be a link's.
void TokenFolder::make_way() {
  std::error_code code;
  path_ = fs::canonical(path_, code);
  const bool is_own = !code && path_ == fs::current_path(code);
  if (!is_own && !code && fs::remove(path_, code)) return;
  throw Error(Exit::kRecipe, "{}: can't be replaced ({}); name a folder that isn't there yet",
              path_.string(), is_own ? "it is the current folder" : code.message());
}

TokenFolder::~TokenFolder() {
  std::error_code code;
  if (!temporary_.empty()) fs::remove_all(temporary_, code);
}

void TokenFolder::publish() {
  std::error_code code;
  fs::rename(temporary_, path_, code);
  if (code) {
    throw Error(Exit::kResource, "{}: cannot write: {}", path_.string(), code.message());
  }
  temporary_.clear();
  fs::remove(path_ / kFolderLock, code);  // not before: without it no one would remove it
  sync_folder(path_.parent_path());
}

}  // namespace brim::text
