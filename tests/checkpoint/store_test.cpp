// A run's checkpoints as the trainer sees them: saved behind the step, loaded whole or refused.
#include "framework/checkpoint/store.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <limits>

#include "tests/checkpoint/support.h"

namespace brim::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

Snapshot snapshot_of(int64_t step, int64_t elements = 1000) {
  Snapshot snapshot;
  snapshot.step = step;
  snapshot.tensors["model"]["weight"] = at::full({elements}, static_cast<double>(step));
  snapshot.tensors["optimizer"]["weight.momentum"] = at::full({2, 3}, -1.0);
  snapshot.state = {{"epoch", step / 10}, {"scale", 0.1}};
  return snapshot;
}

float weight_of(const Snapshot& snapshot) {
  return snapshot.tensors.at("model").at("weight")[0].item<float>();
}

TEST(Store, GivesBackWhatWasSaved) {
  const TestFolder run;
  Store store(run / "checkpoints", 3);
  EXPECT_EQ(store.latest(), std::nullopt);
  EXPECT_EQ(store.best(), std::nullopt);
  store.save(snapshot_of(1000), true);
  store.wait();
  ASSERT_EQ(store.latest(), run / "checkpoints" / "step-00001000");
  EXPECT_EQ(store.best(), store.latest());
  const Snapshot loaded = store.load(*store.latest());
  EXPECT_EQ(loaded.step, 1000);
  EXPECT_EQ(loaded.state, snapshot_of(1000).state);
  ASSERT_EQ(loaded.tensors.size(), 2U);
  EXPECT_TRUE(loaded.tensors.at("model").at("weight").equal(at::full({1000}, 1000.0)));
  EXPECT_TRUE(loaded.tensors.at("optimizer").at("weight.momentum").equal(at::full({2, 3}, -1.0)));
}

TEST(Store, CopiesBeforeItReturns) {
  const TestFolder run;
  Store store(run.path(), 1);
  const Snapshot live = snapshot_of(7, 4'000'000);
  store.save(live, false);
  live.tensors.at("model").at("weight").fill_(-5);
  store.wait();
  EXPECT_EQ(weight_of(store.load(*store.latest())), 7);
}

TEST(Store, CopiesMemoryThatATensorOnlyLooksInto) {
  const TestFolder run;
  Store store(run.path(), 1);
  std::vector<float> values(4'000'000, 7.0F);
  Snapshot snapshot;
  snapshot.step = 1;
  snapshot.tensors["model"]["weight"] =
      at::from_blob(values.data(), static_cast<int64_t>(values.size()), at::kFloat);
  store.save(std::move(snapshot), false);
  std::ranges::fill(values, -5.0F);
  store.wait();
  EXPECT_EQ(weight_of(store.load(*store.latest())), 7);
}

TEST(Store, TensorsOutliveTheSnapshotThatTheyCameWith) {
  const TestFolder run;
  Store store(run.path(), 1);
  store.save(snapshot_of(7, 1000), false);
  store.wait();
  const at::Tensor weight = store.load(*store.latest()).tensors.at("model").at("weight");
  EXPECT_EQ(weight.sum().item<float>(), 7000);
}

TEST(Store, StreamsAFileRowByRow) {
  const TestFolder run;
  Store store(run.path(), 1);
  const at::Tensor rows = at::arange(12, at::kFloat).reshape({4, 3});
  for (const int64_t step : {1, 2}) {
    const auto file = store.stream("optimizer", {{"momentum", rows}, {"step", at::full({}, 7.0)}});
    file->write("momentum", 24, bytes_of(rows.slice(0, 2)));
    file->write("momentum", 0, bytes_of(rows.slice(0, 0, 2)));
    file->write("step", 0, bytes_of(at::full({}, 7.0)));
    Snapshot snapshot = snapshot_of(step);
    snapshot.tensors.erase("optimizer");
    snapshot.streamed["optimizer"] = file;
    store.save(std::move(snapshot), false);
  }
  store.wait();
  const Snapshot loaded = store.load(*store.latest());
  EXPECT_TRUE(loaded.tensors.at("optimizer").at("momentum").equal(rows));
  EXPECT_EQ(loaded.tensors.at("optimizer").at("step").item<float>(), 7);
  EXPECT_FALSE(fs::exists(spool_path(run.path(), "optimizer.safetensors")));
}

TEST(Store, RefusesAStreamedFileWithHoles) {
  const TestFolder run;
  Store store(run.path(), 1);
  Snapshot snapshot = snapshot_of(1);
  snapshot.streamed["more"] = store.stream("more", {{"a", at::full({2}, 1.0)}});
  snapshot.streamed["more"]->write("a", 0, bytes_of(at::full({1}, 1.0)));
  store.save(std::move(snapshot), false);
  const auto [status, message] = error_of([&] { store.wait(); });
  EXPECT_EQ(status, Exit::kBug);
  EXPECT_THAT(message, HasSubstr("4 bytes of values are missing"));
  EXPECT_EQ(store.latest(), std::nullopt);
}

TEST(Store, RemovesWhatAKilledWriterHasStreamed) {
  const TestFolder run;
  std::ofstream(spool_path(run.path(), "optimizer.safetensors.tmp.12345")) << "half";
  std::ofstream(spool_path(run.path(), "optimizer.safetensors")) << "whole";
  const Store store(run.path(), 1);
  for (const auto& entry : fs::directory_iterator(run.path())) {
    EXPECT_EQ(entry.path().filename(), "lock");
  }
}

TEST(Store, FinishesWritingBeforeItGoes) {
  const TestFolder run;
  { Store(run.path(), 1).save(snapshot_of(3, 1'000'000), false); }
  EXPECT_EQ(load_checkpoint(*latest_checkpoint(run.path())).step, 3);
}

TEST(Store, RefusesNegativeNumbers) {
  const TestFolder run;
  const auto expect_bug = [](const auto& action, const char* said) {
    const auto [status, message] = error_of(action);
    EXPECT_EQ(status, Exit::kBug);
    EXPECT_THAT(message, HasSubstr(said));
  };
  expect_bug([&] { Store(run.path(), -1); }, "keep is -1");
  Store store(run.path(), 1);
  store.save(snapshot_of(4), false);
  expect_bug([&] { store.save(snapshot_of(-1), false); }, "step is -1");
  store.wait();
  EXPECT_EQ(load_checkpoint(*store.latest()).step, 4);
}

TEST(Store, RefusesStateThatJsonCannotHold) {
  const TestFolder run;
  Store store(run.path(), 1);
  Snapshot snapshot = snapshot_of(1);
  snapshot.state["loss"] = std::numeric_limits<double>::quiet_NaN();
  const auto [status, message] = error_of([&] { store.save(snapshot, false); });
  EXPECT_EQ(status, Exit::kBug);
  EXPECT_THAT(message, HasSubstr("not finite"));
}

TEST(Store, NamesEveryDamagedFile) {
  const TestFolder run;
  Store store(run.path(), 1);
  store.save(snapshot_of(5), false);
  store.wait();
  const fs::path checkpoint = run / "step-00000005";
  flip_bit(checkpoint / "model.safetensors", 2000);
  fs::resize_file(checkpoint / "optimizer.safetensors", 50);
  fs::remove(checkpoint / "state.json");
  const auto [status, message] = error_of([&] { store.load(checkpoint); });
  EXPECT_EQ(status, Exit::kCheckpoint);
  EXPECT_THAT(message, HasSubstr((checkpoint / "model.safetensors").string() + ": damaged"));
  EXPECT_THAT(message, HasSubstr((checkpoint / "optimizer.safetensors").string() + ": truncated"));
  EXPECT_THAT(message, HasSubstr((checkpoint / "state.json").string() + ": cannot open"));
  EXPECT_THAT(message, HasSubstr("use another checkpoint"));
}

/// From now on no file of this process may pass this size, as on a disk that is full.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    signal_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, signal_);
  }

 private:
  rlimit before_{};
  void (*signal_)(int) = nullptr;
};

TEST(Store, KeepsTheLastGoodCheckpointWhenTheDiskIsFull) {
  const TestFolder run;
  Store store(run.path(), 1);
  store.save(snapshot_of(1), false);
  store.wait();
  {
    const FileSizeLimit limit(1 << 20);
    store.save(snapshot_of(2, 1'000'000), false);
    const auto [status, message] = error_of([&] { store.wait(); });
    EXPECT_EQ(status, Exit::kResource);
    EXPECT_THAT(message, HasSubstr("model.safetensors"));
    EXPECT_THAT(message, HasSubstr("the checkpoint of step 2 was not saved"));
  }
  EXPECT_EQ(store.latest(), run / "step-00000001");
  EXPECT_EQ(store.load(*store.latest()).step, 1);
  EXPECT_FALSE(fs::exists(run / "step-00000002.tmp"));
  store.save(snapshot_of(2, 1'000'000), false);  // the failure was reported once; there is room now
  store.wait();
  EXPECT_EQ(store.load(*store.latest()).step, 2);
}

TEST(Store, ThrowsTheFailureOfTheWriteBefore) {
  const TestFolder run;
  Store store(run.path(), 1);
  const FileSizeLimit limit(1 << 20);
  store.save(snapshot_of(2, 1'000'000), false);
  EXPECT_EQ(error_of([&] { store.save(snapshot_of(3), false); }).first, Exit::kResource);
}

}  // namespace
}  // namespace brim::checkpoint
