// The bytes are read back by TensorBoard itself in tensorboard_test.py; here is what needs no
// Python: names, errors, damaged files.
#include "framework/telemetry/tensorboard/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "framework/base/error.h"
#include "framework/telemetry/tensorboard/tf_record.h"
#include "tests/support/temporary_folder.h"

namespace brim::telemetry {
namespace {

using brim::testing::content;
using brim::testing::put_content;
using brim::testing::TemporaryFolder;

std::filesystem::path write_steps(const TemporaryFolder& folder, int steps) {
  EventFile file(folder.path());
  for (int step = 1; step <= steps; ++step) file.add_scalar("loss", step, 1.0 / step, 1e9 + step);
  return file.path();
}

TEST(EventFile, IsNamedSoThatTensorBoardFindsIt) {
  const TemporaryFolder folder;
  EXPECT_THAT(write_steps(folder, 0).filename().string(),
              ::testing::MatchesRegex("events\\.out\\.tfevents\\.[0-9]{10}\\..+\\." +
                                      std::to_string(::getpid()) + "\\.brim"));
}

TEST(EventFile, NeverWritesIntoAnotherRunsFile) {
  const TemporaryFolder folder;
  const auto first = write_steps(folder, 1);
  const std::string before = content(first);
  const auto second = write_steps(folder, 1);
  EXPECT_LT(first, second) << "TensorBoard reads files in the order of their names";
  EXPECT_EQ(content(first), before);
}

TEST(EventFile, AMissingFolderIsAResourceError) {
  try {
    EventFile file("/no/such/folder");
    FAIL() << "opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Exit::kResource);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("/no/such/folder/events.out.tfevents."));
  }
}

TEST(CutBackEvents, LeavesExactlyTheFileThatEndedAtThatStep) {
  const TemporaryFolder folder;
  const auto path = write_steps(folder, 5);
  const std::string five = content(path);
  const size_t one_event = frame_record(std::string()).size() + 30;
  for (int64_t step = 5; step >= 0; --step) {
    cut_back_events(folder.path(), step);
    const std::string now = content(path);
    EXPECT_EQ(now, five.substr(0, now.size()));
    EXPECT_NEAR(static_cast<double>(now.size()),
                static_cast<double>(five.size()) -
                    static_cast<double>((5 - step)) * static_cast<double>(one_event),
                30.0);
  }
}

TEST(CutBackEvents, DropsWhatFollowsATornOrDamagedRecord) {
  const TemporaryFolder folder;
  const auto path = write_steps(folder, 3);
  const std::string three = content(path);
  cut_back_events(folder.path(), 2);
  const std::string two = content(path);
  for (size_t cut = two.size(); cut < three.size(); ++cut) {
    put_content(path, three.substr(0, cut));
    cut_back_events(folder.path(), 100);
    ASSERT_EQ(content(path), two) << "cut at " << cut;
  }
  for (size_t at = two.size(); at < three.size(); ++at) {
    std::string damaged = three + three.substr(two.size());
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    put_content(path, damaged);
    cut_back_events(folder.path(), 100);
    ASSERT_EQ(content(path), two) << "damaged at " << at;
  }
}

// Frames that are whole, with payloads that are no protobuf message.
TEST(CutBackEvents, StopsAtARecordThatIsNoEvent) {
  const TemporaryFolder folder;
  const auto path = write_steps(folder, 1);
  const std::string one = content(path);
  for (const std::string& payload :
       {std::string("\x10"), std::string("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        std::string("\x0a\x05"), std::string("\x09\x01\x02"), std::string("\x0b"),
        std::string(11, '\xff')}) {
    put_content(path, one + frame_record(payload) + one);
    cut_back_events(folder.path(), 100);
    EXPECT_EQ(content(path), one) << ::testing::PrintToString(payload);
  }
}

TEST(CutBackEvents, TouchesOurFilesOnly) {
  const TemporaryFolder folder;
  const std::string theirs = "events.out.tfevents.1700000000.host.1.0";
  put_content(folder / theirs, "theirs");
  cut_back_events(folder.path(), 0);
  cut_back_events(folder / "missing", 0);
  EXPECT_EQ(content(folder / theirs), "theirs");
}

}  // namespace
}  // namespace brim::telemetry
