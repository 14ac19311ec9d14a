// What killed processes left is removed; what belongs to a live process, to another user or to
// nothing of ours stays.
#include "framework/base/temporaries.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "framework/base/files.h"
#include "tests/support/error_of.h"
#include "tests/support/killed_process.h"
#include "tests/support/temporary_folder.h"

namespace brim {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class Temporaries : public ::testing::Test {
 protected:
  const testing::TemporaryFolder folder;
};

void make_old(const fs::path& path) {
  const timespec times[2] = {{0, 0}, {0, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

TEST_F(Temporaries, AreNamedAsWhatTheyBecome) {
  EXPECT_EQ(target_of_temporary("a.tmp.17"), "a");
  EXPECT_EQ(target_of_temporary("a.tmp.b.tmp.17.2"), "a.tmp.b");
  for (const char* other : {"a", "a.tmp.", "a.tmp.x", "a.tmp.17x", "a.tmp.17.bak", "a.tmp..1"}) {
    EXPECT_EQ(target_of_temporary(other), "") << other;
  }
}

TEST_F(Temporaries, AFileGoesOnceItsProcessIsGone) {
  const fs::path path = folder / "a";
  KilledProcess writer([&](auto ready) {
    AtomicFile file(path);
    file.write("half");
    ready();
  });
  const std::string left = fmt::format("a.tmp.{}", writer.pid());
  make_old(folder / left);
  remove_temporaries(path);
  remove_stale_files(folder.path(), [](std::string_view) { return true; });
  EXPECT_THAT(folder.names(), ElementsAre(left));
  writer.kill();
  EXPECT_THAT(folder.names(), ElementsAre(left));
  remove_temporaries(path);
  EXPECT_THAT(folder.names(), IsEmpty());
}

TEST_F(Temporaries, AProcessNumberThatIsInUseAgainProtectsNothing) {
  write_file(folder / fmt::format("a.tmp.{}", ::getpid()), "left in another container");
  write_file(folder / "a.tmp.1", "");
  AtomicFile file(folder / "a");
  file.write("whole");
  EXPECT_THAT(folder.names(), UnorderedElementsAre(fmt::format("a.tmp.{}", ::getpid()), "a.tmp.1"));
  remove_temporaries(folder / "a");
  EXPECT_THAT(folder.names(), ElementsAre(fmt::format("a.tmp.{}", ::getpid())));
  file.commit();
  EXPECT_EQ(read_file(folder / "a", Exit::kData, 100), "whole");
  EXPECT_THAT(folder.names(), ElementsAre("a"));
}

TEST_F(Temporaries, TwoWritersOfOneNameDoNotShareAFile) {
  AtomicFile one(folder / "a");
  AtomicFile other(folder / "a");  // as one of the same number on another machine
  one.write("one");
  other.write("other");
  one.commit();
  EXPECT_EQ(read_file(folder / "a", Exit::kData, 100), "one");
  other.commit();
  EXPECT_EQ(read_file(folder / "a", Exit::kData, 100), "other");
  EXPECT_THAT(folder.names(), ElementsAre("a"));
}

TEST_F(Temporaries, OtherNamesStay) {
  const std::vector<std::string> others = {"a", "b.tmp.17", "a.tmp.x", "aa.tmp.17", "a.tmp.17.bak"};
  for (const std::string& name : others) write_file(folder / name, "");
  fs::create_symlink(folder / "b.tmp.17", folder / "a.tmp.18");
  fs::create_directory(folder / "a.tmp.19");  // not ours: without a lock
  remove_temporaries(folder / "a");
  EXPECT_EQ(folder.names().size(), others.size() + 2);
}

TEST_F(Temporaries, AFolderIsLeftToTheProcessThatHoldsItsLock) {
  const fs::path left = folder / "a.tmp.17";
  fs::create_directories(left / "deep");
  KilledProcess owner([&](auto ready) {
    const FileLock lock(left / kFolderLock, "taken");
    ready();
  });
  remove_temporaries(folder / "a");
  EXPECT_TRUE(fs::exists(left / "deep"));
  owner.kill();
  remove_temporaries(folder / "a");
  EXPECT_THAT(folder.names(), IsEmpty());
}

TEST_F(Temporaries, SweepsLeaveWhatIsNewAndWhatIsOfAnotherKind) {
  ::setenv("TMPDIR", folder.path().c_str(), 1);
  const auto is_meant = [](std::string_view name) { return name.starts_with("x-"); };
  for (const char* name : {"x-1", "y-1"}) write_file(folder / name, "");
  for (const char* name : {"x-2", "y-2"}) {
    fs::create_directory(folder / name);
    write_file(folder / name / kFolderLock, "");
  }
  fs::create_directory(folder / "x-3");
  const auto sweep = [&] {
    remove_stale_files(folder.path(), is_meant);
    EXPECT_TRUE(fs::exists(TemporaryFolder("x-").path() / kFolderLock));
  };
  sweep();
  EXPECT_EQ(folder.names().size(), 5);
  for (const std::string& name : folder.names()) make_old(folder / name);
  sweep();
  EXPECT_THAT(folder.names(), UnorderedElementsAre("y-1", "y-2", "x-3"));
  ::unsetenv("TMPDIR");
}

TEST_F(Temporaries, GoToTmpWhereTheirPlaceIsNoFolder) {
  ::setenv("TMPDIR", (folder / "gone").c_str(), 1);
  EXPECT_EQ(TemporaryFolder("x-").path().parent_path(), "/tmp");
  ::setenv("TMPDIR", "/proc", 1);
  const std::string said = error_of(Exit::kResource, [] { make_temporary_folder("x-"); });
  EXPECT_THAT(said, HasSubstr("/proc: cannot make a temporary folder"));
  ::unsetenv("TMPDIR");
}

TEST_F(Temporaries, WhatBelongsToAnotherUserStays) {
  if (::geteuid() != 0) return;  // only root can make such a file
  write_file(folder / "a.tmp.17", "");
  ASSERT_EQ(::chown((folder / "a.tmp.17").c_str(), 65534, 65534), 0);
  remove_temporaries(folder / "a");
  EXPECT_THAT(folder.names(), ElementsAre("a.tmp.17"));
}

}  // namespace
}  // namespace brim
