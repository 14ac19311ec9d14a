#include "framework/text/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <string_view>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/folders.h"

namespace brim::text {

TextFile::TextFile(const std::filesystem::path& path) : name_(path.string()), file_(nullptr) {
  // O_NONBLOCK: opening a pipe without a writer must not hang.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw Error(Exit::kData, "{}: cannot open: {}", name_, errno_text(errno));
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    throw Error(Exit::kData, "{}: expected a file of text, found {}", name_,
                file_kind(info.st_mode));
  }
  file_ = ::gzdopen(fd, "rb");
  if (file_ == nullptr) {
    ::close(fd);
    throw Error(Exit::kResource, "{}: cannot open: no memory", name_);
  }
}

TextFile::~TextFile() { ::gzclose(static_cast<gzFile>(file_)); }

bool TextFile::read(std::string& text, size_t most) {
  const auto file = static_cast<gzFile>(file_);
  const size_t before = text.size();
  text.resize(before + most);
  const int got = ::gzread(file, text.data() + before, static_cast<unsigned>(most));
  text.resize(before + static_cast<size_t>(got < 0 ? 0 : got));
  int code = Z_OK;
  const char* const problem = ::gzerror(file, &code);
  if (code == Z_ERRNO) throw Error(Exit::kData, "{}: cannot read: {}", name_, errno_text(errno));
  if (code != Z_OK) {
    throw Error(Exit::kData, "{}: expected whole gzip data: {}", name_,
                code == Z_BUF_ERROR ? "the file is cut" : problem);
  }
  return text.size() > before;
}

std::vector<std::string> text_files_below(const std::string& folder) {
  constexpr std::array<std::string_view, 2> kExtensions = {".txt", ".txt.gz"};
  return files_below(folder, kExtensions);
}

}  // namespace brim::text
