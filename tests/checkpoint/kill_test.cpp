// kill -9 while checkpoints are being saved: whatever the moment, what `latest` gives is whole.
#include <ATen/ops/full.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <random>
#include <thread>

#include "framework/checkpoint/store.h"
#include "tests/checkpoint/support.h"

extern char** environ;

namespace brim::checkpoint {
namespace {

namespace fs = std::filesystem;

/// checkpoint_writer, up to the moment at which it starts to save.
class Writer {
 public:
  explicit Writer(const fs::path& folder) {
    int ends[2];
    if (::pipe(ends) != 0) throw Error(Exit::kResource, "no pipe");
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    ::posix_spawn_file_actions_addclose(&actions, ends[0]);
    const std::string program =
        fs::read_symlink("/proc/self/exe").parent_path() / "checkpoint_writer";
    std::string name = "checkpoint_writer";
    std::string argument = folder.string();
    char* arguments[] = {name.data(), argument.data(), nullptr};
    const int code =
        ::posix_spawn(&process_, program.c_str(), &actions, nullptr, arguments, environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    if (code != 0) throw Error(Exit::kResource, "{}: {}", program, errno_text(code));
    char byte = 0;
    is_saving_ = ::read(ends[0], &byte, 1) == 1;
    ::close(ends[0]);
  }

  bool is_saving() const { return is_saving_; }

  /// True if it was alive until now.
  bool kill() const {
    int status = 0;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  }

 private:
  pid_t process_ = 0;
  bool is_saving_ = false;
};

void expect_whole(const fs::path& checkpoint) {
  const Snapshot snapshot = load_checkpoint(checkpoint);
  const auto value = static_cast<double>(snapshot.step);
  EXPECT_EQ(snapshot.state.at("step"), snapshot.step);
  EXPECT_TRUE(snapshot.tensors.at("model").at("weight").equal(at::full({50'000}, value)));
  EXPECT_TRUE(snapshot.tensors.at("optimizer").at("momentum").equal(at::full({50'000}, -value)));
}

TEST(Kill, AtAnyMomentLeavesAWholeCheckpoint) {
  const TestFolder run;
  const fs::path folder = run / "checkpoints";
  std::mt19937 random(20);
  int last_us = 60'000;  // more where the disk is so busy that no checkpoint was whole by then
  int64_t step_before = 0;
  for (int round = 0; round < 25; ++round) {
    const Writer writer(folder);
    ASSERT_TRUE(writer.is_saving());
    std::this_thread::sleep_for(
        std::chrono::microseconds(std::uniform_int_distribution<int>(0, last_us)(random)));
    ASSERT_TRUE(writer.kill());

    // A reader looks first, at what the killed process left; then the next writer cleans up.
    const auto seen = latest_checkpoint(folder);
    if (seen) expect_whole(*seen);
    const Store store(folder, 2);
    const auto latest = store.latest();
    if (!latest) {
      EXPECT_EQ(step_before, 0) << "a checkpoint was lost";
      last_us *= 2;
      continue;
    }
    expect_whole(*latest);
    EXPECT_GE(load_checkpoint(*latest).step, step_before);
    step_before = load_checkpoint(*latest).step;
    if (const auto best = store.best()) expect_whole(*best);
    for (const auto& item : fs::directory_iterator(folder)) {
      EXPECT_THAT(item.path().filename().string(),
                  testing::MatchesRegex("step-[0-9]+|latest|best|lock"));
    }
  }
  ASSERT_GT(step_before, 0);

  // What kills left behind is removed with the next checkpoint that is saved.
  Store store(folder, 2);
  Snapshot snapshot = load_checkpoint(*store.latest());
  snapshot.step += 1;
  store.save(snapshot, /*is_best=*/false);
  store.wait();
  EXPECT_LE(list_checkpoints(folder).size(), 3U);  // 2 kept and the best
}

}  // namespace
}  // namespace brim::checkpoint
