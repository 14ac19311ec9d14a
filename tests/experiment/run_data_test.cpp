#include "framework/experiment/run_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "framework/base/error.h"
#include "tests/support/temporary_folder.h"

namespace brim::experiment {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::put_content;
using testing::TemporaryFolder;

std::string line(int64_t step, double loss) {
  return fmt::format(R"({{"step":{},"loss":{},"phases_s":{{"forward":0.5}}}})"
                     "\n",
                     step, loss);
}

void append(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::app) << text;
}

void make_run(const TemporaryFolder& folder, const std::string& metrics) {
  put_content(folder / "run.json", R"({"device":"cpu"})");
  put_content(folder / "recipe.toml", "[run]\nname = \"x\"\n");
  put_content(folder / "metrics.jsonl", metrics);
}

Exit status_of(const std::filesystem::path& folder) {
  try {
    read_run(folder);
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(folder.string()));
    return error.status();
  }
  return Exit::kDone;
}

TEST(RunData, MetricsOfAllLinesAreRead) {
  const TemporaryFolder folder;
  make_run(folder, line(10, 2.0) + line(20, 1.0) + R"({"step":20,"eval_top1":98})" + "\n");
  const RunData run = read_run(folder.path());
  EXPECT_EQ(run.lines, 3);
  EXPECT_EQ(run.metric("loss")->mean(), 1.5);
  EXPECT_EQ(run.metric("phases_s/forward")->count(), 2);
  EXPECT_EQ(run.metric("eval_top1")->last(), 98);
  EXPECT_EQ(run.metric("step"), nullptr);
  EXPECT_EQ(run.metric("gone"), nullptr);
  EXPECT_EQ(run.last_step(), 20);
  EXPECT_EQ(run.record["device"], "cpu");
  EXPECT_EQ(run.name, folder.path().filename());
  EXPECT_THAT(run.remarks(), IsEmpty());
}

TEST(RunData, DamageIsLeftOutAndSaid) {
  const TemporaryFolder folder;
  make_run(folder, line(1, 1) + "{\"step\":\n\x01\xff\n" + line(2, 2) +
                       "{\"step\":-4,\"loss\":9}\n" + "{\"note\":1}\n" + R"({"step":3,"loss":)");
  put_content(folder / "run.json", "{");
  const RunData run = read_run(folder.path());
  EXPECT_EQ(run.lines, 2);
  EXPECT_EQ(run.metric("loss")->high(), 2);
  EXPECT_TRUE(run.record.is_object());
  EXPECT_THAT(run.remarks(),
              Contains(HasSubstr("3 lines of metrics.jsonl were left out as damaged")));
  EXPECT_THAT(run.remarks(), Contains(HasSubstr("is torn after 17 bytes")));
  EXPECT_THAT(run.remarks(), Contains(HasSubstr("run.json is damaged")));
}

TEST(RunData, TimesThatNoRunCanHaveAreDamage) {
  const TemporaryFolder folder;
  std::string lines = line(1, 1);
  for (const char* times :
       {R"("step_s":1e308)", R"("step_s":-1)", R"("phases_s":{"forward":1e308})",
        R"("phases_s":{"copy":-1e308})", R"("overlapped_s":{"decode":1e13})"}) {
    lines += std::string(R"({"step":2,"loss":9,)") + times + "}\n";
  }
  lines += "{\"step\":3,\"loss\":2,\"phases_s\":{\"forward\":-0.01,\"copy\":null}}\n";
  make_run(folder, lines);
  const RunData run = read_run(folder.path());
  EXPECT_EQ(run.damaged_lines, 5);
  EXPECT_EQ(run.lines, 2);
  EXPECT_EQ(run.metric("loss")->high(), 2);
}

TEST(RunData, TheBestEvaluationIsTheOneThatCheckpointsAreChosenBy) {
  constexpr const char* kEvaluations =
      "{\"step\":1,\"eval_loss\":2,\"eval_top1\":30}\n"
      "{\"step\":2,\"eval_loss\":3,\"eval_top1\":50}\n"
      "{\"step\":3,\"eval_loss\":4,\"eval_top1\":40}\n";
  const TemporaryFolder images, texts, losses, none;
  make_run(images, kEvaluations);
  make_run(texts, std::string("{\"step\":1,\"tokens_per_s\":640}\n") + kEvaluations);
  make_run(losses, "{\"step\":1,\"eval_loss\":2}\n");
  make_run(none, line(1, 1));
  const auto of_images = read_run(images.path()).best_evaluation();
  EXPECT_EQ(of_images->metric, "top1");
  EXPECT_EQ(of_images->value, 50);
  EXPECT_EQ(of_images->last, 40);
  const auto of_texts = read_run(texts.path()).best_evaluation();
  EXPECT_EQ(of_texts->metric, "loss");
  EXPECT_EQ(of_texts->value, 2);
  EXPECT_EQ(of_texts->last, 4);
  EXPECT_EQ(read_run(losses.path()).best_evaluation()->metric, "loss");
  EXPECT_FALSE(read_run(none.path()).best_evaluation());
}

TEST(RunData, ARunThatHasJustStartedIsARun) {
  const TemporaryFolder folder;
  put_content(folder / "run.json", "{}");
  const RunData run = read_run(folder.path());
  EXPECT_THAT(run.remarks(), Contains(HasSubstr("holds no step yet")));
}

TEST(RunData, WhatIsNoRunIsRefused) {
  const TemporaryFolder folder;
  EXPECT_EQ(status_of(folder.path()), Exit::kData);
  EXPECT_EQ(status_of(folder / "gone"), Exit::kData);
  put_content(folder / "file", "");
  EXPECT_EQ(status_of(folder / "file"), Exit::kData);
}

TEST(RunData, WhatCannotBeReadIsAMatterOfResources) {
  const TemporaryFolder folder;
  make_run(folder, "");
  std::filesystem::remove(folder / "metrics.jsonl");
  std::filesystem::create_directory(folder / "metrics.jsonl");  // root may read any file
  EXPECT_EQ(status_of(folder.path()), Exit::kResource);
}

std::string aged(int64_t step, double process_s, double run_s = -1) {
  return fmt::format(R"({{"step":{},"loss":1,"process_age_s":{}{}}})"
                     "\n",
                     step, process_s, run_s < 0 ? "" : fmt::format(R"(,"run_age_s":{})", run_s));
}

TEST(RunData, TheAgeOfARunIsThatOfItsProcessesTogether) {
  const TemporaryFolder folder;
  // Steps 30 and 40 of the first process were lost, until it was 9 s old.
  make_run(folder, aged(10, 3, 3) + aged(20, 5, 5) + R"({"step":20,"eval_top1":98})" + "\n" +
                       aged(30, 6, 15) + aged(40, 8, 17) + aged(50, 2, 19));
  const RunData run = read_run(folder.path());
  EXPECT_EQ(run.age_s.last(), 19);
  EXPECT_EQ(run.age_s.count(), 5);
  ASSERT_EQ(run.restarts.size(), 2U);
  EXPECT_EQ(run.restarts[0].step, 20);
  EXPECT_EQ(run.restarts[0].age_s, 9);
  EXPECT_EQ(run.restarts[1].step, 40);
  EXPECT_EQ(run.restarts[1].age_s, 17);
}

TEST(RunData, InOlderFilesAYoungerProcessHasTakenOver) {
  const TemporaryFolder folder;
  make_run(folder, aged(10, 3) + aged(20, 5) + aged(30, 2) + aged(40, 4));
  const RunData run = read_run(folder.path());
  EXPECT_EQ(run.age_s.last(), 9);
  ASSERT_EQ(run.restarts.size(), 1U);
  EXPECT_EQ(run.restarts[0].step, 20);
  EXPECT_EQ(run.restarts[0].age_s, 5);
}

TEST(RunData, AgesThatMakeNoSenseNeverFall) {
  const TemporaryFolder folder;
  make_run(folder, aged(10, 3, 8) + aged(20, 5, 2) + aged(30, -7, 4) + aged(40, 1e300, 1e308) +
                       R"({"step":50,"process_age_s":null,"run_age_s":3})" + "\n" + line(60, 1));
  const RunData run = read_run(folder.path());
  double before = 0;
  for (const Bucket& bucket : run.age_s.buckets()) {
    EXPECT_GE(bucket.low, before);
    before = bucket.high;
  }
  EXPECT_EQ(run.age_s.count(), 4);
}

TEST(RunData, MemoryIsBoundedWhateverTheFileHolds) {
  const TemporaryFolder folder;
  make_run(folder, "");
  std::ofstream file(folder / "metrics.jsonl");
  for (int i = 0; i < 1000; ++i) file << "{\"step\":1,\"metric" << i << "\":1}\n";
  file << "{\"step\":1,\"" << std::string(1000, 'x') << "\":1}\n";
  file << "{\"step\":1,\"a\":\"" << std::string(10 << 20, 'x') << "\"}\n" << line(2, 5);
  file.close();
  const RunData run = read_run(folder.path());
  EXPECT_EQ(run.metrics.size(), 256U);
  EXPECT_EQ(run.damaged_lines, 1);
  EXPECT_THAT(run.remarks(), Contains(HasSubstr("only the first 256 metrics")));
}

TEST(RunReader, FollowsARunThatIsStillWriting) {
  const TemporaryFolder folder;
  make_run(folder, line(1, 1));
  RunReader reader(folder.path());
  EXPECT_TRUE(reader.update());
  EXPECT_FALSE(reader.update());
  append(folder / "metrics.jsonl", R"({"step":2,)");
  EXPECT_TRUE(reader.update());
  EXPECT_EQ(reader.data().lines, 1);
  EXPECT_EQ(reader.data().torn_bytes, 10);
  append(folder / "metrics.jsonl", "\"loss\":7}\n" + line(3, 8));
  EXPECT_TRUE(reader.update());
  EXPECT_EQ(reader.data().lines, 3);
  EXPECT_EQ(reader.data().metric("loss")->high(), 8);
  EXPECT_THAT(reader.data().remarks(), IsEmpty());
}

TEST(RunReader, BeginsAgainWhereARunWasCutBack) {
  const TemporaryFolder folder;
  make_run(folder, line(1, 1) + line(2, 2) + line(3, 3));
  RunReader reader(folder.path());
  reader.update();
  put_content(folder / "metrics.new", line(1, 1) + line(2, 4) + line(3, 5) + line(4, 6));
  std::filesystem::rename(folder / "metrics.new", folder / "metrics.jsonl");
  EXPECT_TRUE(reader.update());
  EXPECT_EQ(reader.data().lines, 4);
  EXPECT_EQ(reader.data().metric("loss")->mean(), 4.0);
}

}  // namespace
}  // namespace brim::experiment
