// What a run's folder of checkpoints holds after each thing that can happen to it.
#include "framework/checkpoint/folder.h"

#include "framework/checkpoint/manifest.h"
#include "tests/checkpoint/support.h"

namespace brim::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

/// One file, "content", with this text.
void save(FolderWriter& writer, int64_t step, const std::string& text = "x", bool is_best = false) {
  writer.write(step, is_best, [&](const fs::path& folder) {
    write_text(folder / "content", text);
    return std::vector<std::string>{"content"};
  });
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& item : fs::directory_iterator(folder)) {
    names.push_back(item.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

std::string latest_name(const fs::path& folder) {
  const auto latest = latest_checkpoint(folder);
  return latest ? latest->filename().string() : "none";
}

class Folder : public testing::Test {
 protected:
  TestFolder root_;
  fs::path folder_ = root_ / "checkpoints";
};

TEST_F(Folder, KeepsTheLastOnesAndTheBest) {
  FolderWriter writer(folder_, 2);
  save(writer, 1);
  save(writer, 2, "x", true);
  save(writer, 3);
  save(writer, 4);
  save(writer, 5);
  EXPECT_THAT(names_in(folder_), ElementsAre("best", "latest", "lock", "step-00000002",
                                             "step-00000004", "step-00000005"));
  EXPECT_EQ(latest_name(folder_), "step-00000005");
  EXPECT_EQ(best_checkpoint(folder_), folder_ / "step-00000002");
  save(writer, 6, "x", true);
  EXPECT_THAT(names_in(folder_),
              ElementsAre("best", "latest", "lock", "step-00000005", "step-00000006"));
}

TEST_F(Folder, KeepsAllIfAskedTo) {
  FolderWriter writer(folder_, 0);
  for (int64_t step = 1; step <= 5; ++step) save(writer, step);
  EXPECT_EQ(list_checkpoints(folder_).size(), 5U);
}

TEST_F(Folder, ReplacesTheCheckpointOfTheSameStep) {
  FolderWriter writer(folder_, 2);
  save(writer, 7, "first");
  save(writer, 7, "second");
  EXPECT_EQ(read_text(folder_ / "step-00000007" / "content"), "second");
  EXPECT_THAT(names_in(folder_), ElementsAre("latest", "lock", "step-00000007"));
}

TEST_F(Folder, CountsTheLastWrittenAsNewestAfterGoingBack) {
  {
    FolderWriter writer(folder_, 2);
    save(writer, 1000);
    save(writer, 2000);
  }
  FolderWriter writer(folder_, 2);  // resumed from 1000 with other settings
  save(writer, 1500);
  EXPECT_EQ(latest_name(folder_), "step-00001500");
  save(writer, 1600);
  EXPECT_THAT(names_in(folder_), ElementsAre("latest", "lock", "step-00001500", "step-00001600"));
}

TEST_F(Folder, FallsBackToTheNewestWholeCheckpoint) {
  const auto damages = std::to_array<std::function<void()>>({
      [&] { fs::remove(folder_ / "latest"); },
      [&] { write_text(folder_ / "latest", ""); },
      [&] { write_text(folder_ / "latest", "../../etc"); },
      [&] { write_text(folder_ / "latest", "step-00009999\n"); },
      [&] { flip_bit(folder_ / "step-00000003" / "content", 0); },
      [&] { fs::resize_file(folder_ / "step-00000003" / "content", 0); },
      [&] { fs::remove(folder_ / "step-00000003" / "content"); },
      [&] { fs::remove(folder_ / "step-00000003" / "manifest.json"); },
      [&] { fs::resize_file(folder_ / "step-00000003" / "manifest.json", 40); },
      [&] { fs::remove_all(folder_ / "step-00000003"); },
  });
  for (size_t i = 0; i < damages.size(); ++i) {
    SCOPED_TRACE(i);
    fs::remove_all(folder_);
    {
      FolderWriter writer(folder_, 0);
      for (const int64_t step : {1, 2, 3}) save(writer, step);
    }
    damages[i]();
    testing::internal::CaptureStderr();
    EXPECT_EQ(latest_name(folder_), i < 4 ? "step-00000003" : "step-00000002");
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("the newest that is whole"));
    FolderWriter writer(folder_, 0);
    save(writer, 4);
    EXPECT_EQ(latest_name(folder_), "step-00000004");
  }
}

TEST_F(Folder, NamesEveryDamagedOneThatItPassesOver) {
  FolderWriter writer(folder_, 0);
  for (const int64_t step : {1, 2, 3}) save(writer, step);
  for (const auto* damaged : {"step-00000002", "step-00000003"}) {
    flip_bit(folder_ / damaged / "content", 0);
  }
  testing::internal::CaptureStderr();
  EXPECT_EQ(latest_name(folder_), "step-00000001");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("step-00000003/content: damaged"),
                    HasSubstr("step-00000002/content: damaged")));
}

TEST_F(Folder, DoesNotStartOverIfAllIsDamaged) {
  EXPECT_EQ(latest_name(folder_), "none");
  { FolderWriter writer(folder_, 0); }
  EXPECT_EQ(latest_name(folder_), "none");
  {
    FolderWriter writer(folder_, 0);
    save(writer, 1);
  }
  flip_bit(folder_ / "step-00000001" / "content", 0);
  const auto [status, message] = error_of([&] { latest_checkpoint(folder_); });
  EXPECT_EQ(status, Exit::kCheckpoint);
  EXPECT_THAT(message, HasSubstr("found only damaged ones"));
}

TEST_F(Folder, FindsTheBestWhoseNameIsLost) {
  for (const char* text : {"", "rubbish", "step-", static_cast<const char*>(nullptr)}) {
    fs::remove_all(folder_);
    {
      FolderWriter writer(folder_, 1);
      save(writer, 1, "x", true);
      save(writer, 2, "x", true);
      save(writer, 3);
    }
    fs::remove(folder_ / "best");
    if (text != nullptr) write_text(folder_ / "best", text);
    testing::internal::CaptureStderr();
    EXPECT_EQ(best_checkpoint(folder_), folder_ / "step-00000002");
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                HasSubstr("taking step-00000002, which was the best when it was saved"));
    FolderWriter writer(folder_, 1);
    save(writer, 4);
    EXPECT_THAT(names_in(folder_),
                ElementsAre("best", "latest", "lock", "step-00000002", "step-00000004"));
    testing::internal::CaptureStderr();
    EXPECT_EQ(best_checkpoint(folder_), folder_ / "step-00000002");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "its name is written again";
  }
}

TEST_F(Folder, RemovesNothingWhileItDoesNotKnowTheBest) {
  FolderWriter writer(folder_, 1);
  save(writer, 1);
  write_text(folder_ / "best", "rubbish");
  testing::internal::CaptureStderr();
  save(writer, 2);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("older ones are not removed"));
  EXPECT_THAT(names_in(folder_),
              ElementsAre("best", "latest", "lock", "step-00000001", "step-00000002"));
  save(writer, 3, "x", true);
  EXPECT_THAT(names_in(folder_), ElementsAre("best", "latest", "lock", "step-00000003"));
}

TEST_F(Folder, CountsOnPastCheckpointsThatCannotBeRead) {
  {
    FolderWriter writer(folder_, 0);
    for (int64_t step = 1; step <= 3; ++step) save(writer, step);
  }
  const fs::path manifest = folder_ / "step-00000003" / "manifest.json";
  fs::rename(manifest, root_ / "aside");
  {
    FolderWriter writer(folder_, 0);
    save(writer, 4);
  }
  fs::rename(root_ / "aside", manifest);
  fs::remove(folder_ / "latest");
  EXPECT_EQ(latest_name(folder_), "step-00000004");
}

TEST_F(Folder, SaysIfTheBestIsGone) {
  FolderWriter writer(folder_, 1);
  EXPECT_EQ(best_checkpoint(folder_), std::nullopt);
  save(writer, 1, "x", true);
  fs::remove_all(folder_ / "step-00000001");
  EXPECT_EQ(error_of([&] { best_checkpoint(folder_); }).first, Exit::kCheckpoint);
}

// The states that a kill can leave, made by hand; kill_test.cpp meets them by chance.
TEST_F(Folder, CleansUpAfterAKilledWriter) {
  {
    FolderWriter writer(folder_, 0);
    save(writer, 1, "one");
    save(writer, 2, "two");
  }
  // Killed while writing step 3, and while `latest` was written.
  fs::create_directory(folder_ / "step-00000003.tmp");
  write_text(folder_ / "step-00000003.tmp" / "content", "half");
  write_text(folder_ / "latest.tmp.4711", "step");
  // Killed between the two renames that replace step 2.
  fs::rename(folder_ / "step-00000002", folder_ / "step-00000002.old");
  testing::internal::CaptureStderr();
  EXPECT_EQ(latest_name(folder_), "step-00000002.old");
  testing::internal::GetCapturedStderr();
  { FolderWriter writer(folder_, 0); }
  EXPECT_THAT(names_in(folder_), ElementsAre("latest", "lock", "step-00000001", "step-00000002"));
  EXPECT_EQ(read_text(folder_ / "step-00000002" / "content"), "two");

  // Killed after them: the new one is in place, the old one not yet gone.
  fs::copy(folder_ / "step-00000001", folder_ / "step-00000002.old");
  { FolderWriter writer(folder_, 0); }
  EXPECT_THAT(names_in(folder_), ElementsAre("latest", "lock", "step-00000001", "step-00000002"));
  EXPECT_EQ(read_text(folder_ / "step-00000002" / "content"), "two");
}

TEST_F(Folder, LeavesOtherFilesAlone) {
  fs::create_directories(folder_ / "step-mine");
  fs::create_directories(folder_ / "mine.tmp");
  FolderWriter writer(folder_, 1);
  save(writer, 1);
  save(writer, 2);
  EXPECT_THAT(names_in(folder_),
              ElementsAre("latest", "lock", "mine.tmp", "step-00000002", "step-mine"));
}

TEST_F(Folder, HasOneWriterAtATime) {
  std::optional<FolderWriter> writer(std::in_place, folder_, 1);
  const auto [status, message] = error_of([&] { FolderWriter(folder_, 1); });
  EXPECT_EQ(status, Exit::kResource);
  EXPECT_THAT(message, HasSubstr("another process is saving checkpoints here"));
  writer.reset();
  FolderWriter next(folder_, 1);
}

TEST_F(Folder, StaysAsItWasIfWritingFails) {
  FolderWriter writer(folder_, 1);
  save(writer, 1, "one");
  for (const int64_t step : {1, 2}) {
    const auto [status, message] = error_of([&] {
      writer.write(step, true, [&](const fs::path& folder) -> std::vector<std::string> {
        write_text(folder / "content", "half");
        throw Error(Exit::kResource, "disk full");
      });
    });
    EXPECT_EQ(status, Exit::kResource);
    EXPECT_THAT(message, HasSubstr("disk full; the checkpoint of step"));
  }
  EXPECT_THAT(names_in(folder_), ElementsAre("latest", "lock", "step-00000001"));
  EXPECT_EQ(read_text(folder_ / "step-00000001" / "content"), "one");
}

}  // namespace
}  // namespace brim::checkpoint
