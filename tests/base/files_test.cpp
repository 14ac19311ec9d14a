// Files that are whole or not there, and readers that trust no file.
#include "framework/base/files.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace brim {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Files : public ::testing::Test {
 protected:
  const testing::TemporaryFolder folder;
};

std::string content(const fs::path& path) { return read_file(path, Exit::kData, 1000); }

TEST_F(Files, AtomicFileAppearsOnCommitOnly) {
  const fs::path path = folder / "a";
  AtomicFile file(path);
  file.write("one ");
  file.write("two");
  EXPECT_FALSE(fs::exists(path));
  file.commit();
  EXPECT_EQ(content(path), "one two");
  EXPECT_THAT(folder.names(), ::testing::ElementsAre("a"));
}

TEST_F(Files, AbandonedAtomicFileLeavesTheOldOneAndNothingElse) {
  const fs::path path = folder / "a";
  write_file(path, "old");
  {
    AtomicFile file(path);
    file.write("new");
  }
  EXPECT_EQ(content(path), "old");
  EXPECT_THAT(folder.names(), ::testing::ElementsAre("a"));
}

TEST_F(Files, WriteFileReplaces) {
  write_file(folder / "a", "old and longer");
  write_file(folder / "a", "new");
  EXPECT_EQ(content(folder / "a"), "new");
}

TEST_F(Files, MissingFolderIsNamed) {
  const fs::path path = folder / "missing" / "a";
  EXPECT_THAT(error_of(Exit::kResource, [&] { AtomicFile file(path); }),
              path.string() + ": cannot create: No such file or directory");
}

TEST_F(Files, CommitOverAFolderFailsAndLeavesNoTemporary) {
  AtomicFile file(folder / "a");
  file.write("x");
  fs::create_directories(folder / "a" / "full");  // since it was begun
  EXPECT_THAT(error_of(Exit::kResource, [&] { file.commit(); }),
              StartsWith((folder / "a").string() + ": cannot write: "));
  EXPECT_THAT(folder.names(), ::testing::ElementsAre("a"));
}

TEST_F(Files, OnlyAFileIsReplaced) {
  fs::create_directories(folder / "folder");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  fs::create_symlink("nowhere", folder / "link");
  fs::create_symlink("loop", folder / "loop");
  fs::create_symlink("/dev/null", folder / "device");
  const auto names = folder.names();
  for (const auto& [name, found] : std::map<std::string, std::string>{{"folder", "a folder"},
                                                                      {"pipe", "a pipe"},
                                                                      {"link", "a link to nothing"},
                                                                      {"loop", "a link to nothing"},
                                                                      {"device", "a device"}}) {
    const fs::path path = folder / name;
    EXPECT_THAT(error_of(Exit::kResource, [&] { write_file(path, "x"); }),
                StartsWith(path.string() + ": expected a regular file or nothing there, found " +
                           found + ";"));
  }
  EXPECT_EQ(folder.names(), names);
  fs::create_symlink("file", folder / "to_file");
  write_file(folder / "file", "x");
  write_file(folder / "to_file", "y");
  EXPECT_EQ(read_file(folder / "to_file", Exit::kData, 10), "y");
}

/// Writes under a limit on file size, which stands in for a full disk; exits with the error's kind.
[[noreturn]] void write_beyond_limit(const fs::path& path) {
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{.rlim_cur = 4096, .rlim_max = 4096};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  try {
    write_file(path, std::string(10000, 'x'));
  } catch (const Error& error) {
    print_error(error);
    std::exit(static_cast<int>(error.status()));
  }
  std::exit(0);
}

TEST_F(Files, FailedWriteIsAResourceErrorAndLeavesTheOldFile) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  // The child runs the whole test again, in a folder of its own.
  EXPECT_EXIT(write_beyond_limit(folder / "a"), ::testing::ExitedWithCode(5),
              "error.resource.: .*/a: cannot write: File too large");
  EXPECT_THAT(folder.names(), ::testing::IsEmpty());
}

TEST_F(Files, ReadFileRefusesWhatIsNoFileOrTooLarge) {
  write_file(folder / "a", "12345");
  EXPECT_EQ(read_file(folder / "a", Exit::kData, 5), "12345");
  EXPECT_EQ(error_of(Exit::kData, [&] { read_file(folder / "a", Exit::kData, 4); }),
            (folder / "a").string() + ": expected at most 4 bytes, found 5");
  EXPECT_EQ(error_of(Exit::kRecipe, [&] { read_file(folder / "b", Exit::kRecipe, 4); }),
            (folder / "b").string() + ": cannot open: No such file or directory");
  EXPECT_EQ(error_of(Exit::kData, [&] { read_file(folder.path(), Exit::kData, 4); }),
            folder.path().string() + ": expected a regular file, found a folder");
  EXPECT_THAT(error_of(Exit::kData, [&] { read_file("/dev/zero", Exit::kData, 4); }),
              HasSubstr("expected a regular file, found a device"));
}

TEST_F(Files, APipeIsRefusedWithoutWaitingForAWriter) {
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(error_of(Exit::kData, [&] { read_file(folder / "pipe", Exit::kData, 4); }),
              HasSubstr("expected a regular file, found a pipe"));
}

TEST_F(Files, MapAndDigestSeeTheSameBytes) {
  write_file(folder / "a", "abc");
  write_file(folder / "empty", "");
  const MappedFile map(folder / "a", Exit::kData);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size()),
            "abc");
  EXPECT_EQ(digest_file(folder / "a"), digest(map.bytes()));
  EXPECT_EQ(digest_file(folder / "a"), "06b05ab6733a618578af5f94892f3950");  // xxhsum -H128
  EXPECT_TRUE(MappedFile(folder / "empty", Exit::kData).bytes().empty());
  EXPECT_EQ(digest_file(folder / "empty"), "99aa06d3014798d86001c324468d497f");
  EXPECT_NE(digest(map.bytes().first(2)), digest(map.bytes()));
}

TEST_F(Files, MakeFolderMakesParentsAndNamesWhatStandsInTheWay) {
  make_folder(folder / "x" / "y");
  make_folder(folder / "x" / "y");
  EXPECT_TRUE(fs::is_directory(folder / "x" / "y"));
  write_file(folder / "file", "");
  EXPECT_THAT(error_of(Exit::kResource, [&] { make_folder(folder / "file" / "z"); }),
              StartsWith((folder / "file" / "z").string() + ": cannot make the folder: "));
}

}  // namespace
}  // namespace brim
