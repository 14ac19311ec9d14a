// The loader as the training loop sees it: the same bytes whatever the threads, errors where they
// belong, and an end at any moment.
#include "framework/data/loading/loader.h"

#include <gmock/gmock.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "framework/base/units.h"
#include "framework/data/samplers/shuffled.h"
#include "framework/data/sources/synthetic.h"
#include "tests/support/error_of.h"

namespace brim::data {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kAny = -1;

/// Sample i is four pixels of value i; `fail` lists samples that throw.
class CountingDataset : public Dataset {
 public:
  explicit CountingDataset(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  int64_t sample_bytes() const override { return 4; }
  std::string name(int64_t index) const override { return "sample " + std::to_string(index); }
  int64_t read(int64_t index, RandomStream*, std::span<uint8_t> pixels) const override {
    reads.fetch_add(1);
    if (fail.contains(index)) throw Error(Exit::kData, name(index) + ": truncated");
    if (index == bad_alloc) throw std::bad_alloc();
    if (index == logic_error) throw std::logic_error("oops");
    std::ranges::fill(pixels, static_cast<uint8_t>(index));
    return index;
  }

  std::set<int64_t> fail;
  int64_t bad_alloc = kAny;
  int64_t logic_error = kAny;
  mutable std::atomic<int64_t> reads = 0;

 private:
  int64_t size_;
};

struct Copy {
  int64_t epoch, step, first_position, count;
  bool ends_step, ends_epoch;
  std::vector<uint8_t> pixels;
  std::vector<int64_t> labels;
  bool operator==(const Copy&) const = default;
};

std::vector<Copy> read_all(const Dataset& dataset, const LoaderOptions& options, int64_t epoch = 0,
                           int64_t step = 0) {
  Loader loader(dataset, options, epoch, step);
  std::vector<Copy> result;
  while (const Batch* batch = loader.next()) {
    result.push_back({batch->epoch,
                      batch->step,
                      batch->first_position,
                      batch->count,
                      batch->ends_step,
                      batch->ends_epoch,
                      {batch->pixels.begin(), batch->pixels.end()},
                      {batch->labels.begin(), batch->labels.end()}});
  }
  EXPECT_EQ(loader.next(), nullptr);  // the end stays the end
  return result;
}

LoaderOptions training(const Dataset& dataset) {
  return {.global_batch = 12,
          .micro_batch = 5,
          .seed = 3,
          .order = shuffled_order(dataset, 3, {}),
          .augment = true,
          .epochs = 3};
}

TEST(LoaderTest, BatchesAreTheSameForAnyNumberOfWorkersAndAnyPrefetch) {
  SyntheticConfig config;
  config.samples = 50;
  config.height = 9;
  config.width = 7;
  AugmentConfig augment{.flip = true, .crop = Crop::kRandomResized};
  const auto dataset = config.open_train(augment);
  const auto expected = read_all(*dataset, training(*dataset));
  ASSERT_EQ(expected.size(), 3 * (4 * 3 + 1));
  for (const int64_t workers : {1, 2, 7}) {
    for (const int64_t prefetch : {0, 1, 5}) {
      LoaderOptions options = training(*dataset);
      options.workers = workers;
      options.prefetch = prefetch;
      EXPECT_EQ(read_all(*dataset, options), expected) << workers << " workers";
    }
  }
}

/// Sample i is four pixels, of a value that its augmentation draws. Two of three are read together
/// where the device decodes.
class TogetherDataset : public Dataset {
 public:
  int64_t size() const override { return 50; }
  int64_t sample_bytes() const override { return 4; }
  std::string name(int64_t index) const override { return "sample " + std::to_string(index); }
  int64_t label(int64_t index) const override { return index; }
  int64_t read(int64_t index, RandomStream* random, std::span<uint8_t> pixels) const override {
    alone.fetch_add(1);
    if (index == broken) throw Error(Exit::kData, name(index) + ": truncated");
    std::ranges::fill(pixels, static_cast<uint8_t>(random->below(256)));
    return index;
  }
  int64_t samples_together() const override { return 4; }
  void read_together(std::span<SampleRequest> requests,
                     const device::DrawJpegs& draw) const override {
    EXPECT_LE(std::ssize(requests), samples_together());
    draw({});
    for (SampleRequest& request : requests) {
      const auto value = static_cast<uint8_t>(request.random->below(256));
      if (request.sample % 3 == 0 || request.sample == broken) continue;
      std::ranges::fill(request.bytes, value);
      request.is_read = true;
      together.fetch_add(1);
    }
  }

  int64_t broken = kAny;
  mutable std::atomic<int64_t> alone = 0, together = 0;
};

TEST(LoaderTest, SamplesThatAreReadTogetherAreThoseReadAlone) {
  const TogetherDataset dataset;
  LoaderOptions options = training(dataset);
  const auto expected = read_all(dataset, options);
  EXPECT_EQ(dataset.together, 0);
  options.draw_jpegs = [](std::span<device::DrawnJpeg>) {};
  for (const int64_t workers : {0, 1, 2}) {
    dataset.alone = dataset.together = 0;
    options.workers = workers;
    EXPECT_EQ(read_all(dataset, options), expected) << workers << " workers";
    EXPECT_EQ(dataset.alone, 3 * 17);
    EXPECT_EQ(dataset.together, 3 * 33);
  }
}

TEST(LoaderTest, ASampleThatTheDeviceLeavesAloneIsReplacedLikeOthers) {
  TogetherDataset dataset;
  dataset.broken = 7;
  LoaderOptions options = training(dataset);
  options.on_error = OnError::kReplace;
  const auto expected = read_all(dataset, options);
  options.draw_jpegs = [](std::span<device::DrawnJpeg>) {};
  EXPECT_EQ(read_all(dataset, options), expected);
  options.on_error = OnError::kFail;
  EXPECT_THAT(brim::error_of(Exit::kData, [&] { read_all(dataset, options); }),
              StartsWith("sample 7: truncated. Set data.on_error"));
}

TEST(LoaderTest, ADeviceThatFailsEndsTheRun) {
  const TogetherDataset dataset;
  LoaderOptions options = training(dataset);
  options.draw_jpegs = [](std::span<device::DrawnJpeg>) {
    throw Error(Exit::kResource, std::string("not enough memory on cuda:0"));
  };
  for (const int64_t workers : {0, 2}) {
    options.workers = workers;
    EXPECT_EQ(brim::error_of(Exit::kResource, [&] { read_all(dataset, options); }),
              "not enough memory on cuda:0");
  }
}

TEST(LoaderTest, AugmentationDependsOnEpochAndSampleAndOnlyOnThem) {
  SyntheticConfig config;
  config.samples = 6;
  const auto dataset = config.open_train({.flip = false, .crop = Crop::kPad, .pad = 4});
  LoaderOptions options = {.global_batch = 6, .micro_batch = 6, .augment = true, .epochs = 2};
  const auto together = read_all(*dataset, options);
  ASSERT_EQ(together.size(), 2);
  EXPECT_NE(together[0].pixels, together[1].pixels);

  options.micro_batch = 1;
  std::vector<uint8_t> joined;
  for (const Copy& batch : read_all(*dataset, options)) {
    if (batch.epoch == 0) joined.insert(joined.end(), batch.pixels.begin(), batch.pixels.end());
  }
  EXPECT_EQ(joined, together[0].pixels);

  options.augment = false;
  EXPECT_NE(read_all(*dataset, options)[0].pixels,
            std::vector(joined.begin(), joined.begin() + 3072));
}

TEST(LoaderTest, RanksTogetherSeeWhatOneRankSees) {
  const CountingDataset dataset(50);
  LoaderOptions options = training(dataset);
  std::vector<std::vector<int64_t>> alone(3 * 5);
  for (const Copy& batch : read_all(dataset, options)) {
    auto& step = alone[static_cast<size_t>(batch.epoch * 5 + batch.step)];
    step.insert(step.end(), batch.labels.begin(), batch.labels.end());
  }
  options.world = 5;  // the last step has two samples: some ranks get none
  for (const auto& [workers, prefetch] : {std::pair{0, 0}, {1, 0}, {2, 0}, {2, 2}}) {
    options.workers = workers;
    options.prefetch = prefetch;
    std::vector<std::vector<int64_t>> together(3 * 5);
    for (options.rank = 0; options.rank < options.world; ++options.rank) {
      for (const Copy& batch : read_all(dataset, options)) {
        auto& step = together[static_cast<size_t>(batch.epoch * 5 + batch.step)];
        step.insert(step.end(), batch.labels.begin(), batch.labels.end());
      }
    }
    EXPECT_EQ(together, alone);
  }
}

TEST(LoaderTest, StartingInTheMiddleSeesWhatItWouldHaveSeen) {
  const CountingDataset dataset(50);
  LoaderOptions options = training(dataset);
  const auto whole = read_all(dataset, options);
  options.workers = 2;
  options.epochs = 2;  // from the second on
  const auto rest = read_all(dataset, options, 1, 3);
  std::vector<Copy> expected;
  for (const Copy& batch : whole) {
    if (batch.epoch * 5 + batch.step >= 5 + 3) expected.push_back(batch);
  }
  EXPECT_EQ(rest, expected);
}

TEST(LoaderTest, EndlessWithoutALimit) {
  const CountingDataset dataset(3);
  Loader loader(dataset, {.global_batch = 2, .micro_batch = 2, .workers = 2});
  for (int64_t i = 0; i < 100; ++i) {
    const Batch* batch = loader.next();
    ASSERT_NE(batch, nullptr);
    EXPECT_EQ(batch->epoch, i / 2);
  }
}

TEST(LoaderTest, AnErrorArrivesAtItsBatchAndStays) {
  for (const int64_t workers : {0, 1, 2, 7}) {
    CountingDataset dataset(40);
    dataset.fail = {22, 21, 35};
    Loader loader(dataset,
                  {.global_batch = 4, .micro_batch = 4, .workers = workers, .prefetch = 3});
    for (int64_t i = 0; i < 5; ++i) {  // samples 0 … 19
      const Batch* batch = loader.next();
      ASSERT_NE(batch, nullptr);
      EXPECT_EQ(batch->labels[0], 4 * i);
    }
    for (int i = 0; i < 2; ++i) {
      try {
        loader.next();
        FAIL() << "expected an error";
      } catch (const Error& error) {
        EXPECT_EQ(error.status(), Exit::kData);
        EXPECT_THAT(error.what(), StartsWith("sample 21: truncated. Set data.on_error = \"skip\""))
            << "the first in order, not in time";
      }
    }
  }
}

TEST(LoaderTest, OtherExceptionsAreNamedToo) {
  for (const int64_t workers : {0, 2}) {
    CountingDataset dataset(4);
    dataset.bad_alloc = 2;
    try {
      Loader(dataset, {.global_batch = 4, .micro_batch = 4, .workers = workers}).next();
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Exit::kResource);
      EXPECT_THAT(error.what(), HasSubstr("sample 2: not enough memory"));
    }
    dataset.bad_alloc = kAny;
    dataset.logic_error = 3;
    try {
      Loader(dataset, {.global_batch = 4, .micro_batch = 4, .workers = workers}).next();
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Exit::kBug);
      EXPECT_STREQ(error.what(), "sample 3: oops");
    }
  }
}

/// Counts, and breaks in one way at sample 3.
class BrokenDataset : public CountingDataset {
 public:
  explicit BrokenDataset(std::function<void()> break_in_read)
      : CountingDataset(4), break_in_read_(std::move(break_in_read)) {}
  int64_t read(int64_t index, RandomStream* random, std::span<uint8_t> pixels) const override {
    if (index == 3) break_in_read_();
    return CountingDataset::read(index, random, pixels);
  }
  std::string name(int64_t index) const override {
    if (has_no_names) throw std::runtime_error("no names");
    return CountingDataset::name(index);
  }
  bool has_no_names = false;

 private:
  std::function<void()> break_in_read_;
};

class BrokenOrder : public Order {
 public:
  SampleRef at(int64_t, int64_t position) const override {
    if (position == 2) throw Error(Exit::kData, std::string("the order's list ends here"));
    return {position, position};
  }
  std::string text() const override { return "broken"; }
};

TEST(LoaderTest, WhateverOwnCodeThrowsComesOutOfNext) {
  for (const int64_t workers : {0, 2}) {
    const auto said = [&](const Dataset& dataset, const std::shared_ptr<const Order>& order,
                          Exit status) {
      Loader loader(dataset,
                    {.global_batch = 4, .micro_batch = 2, .workers = workers, .order = order});
      EXPECT_NE(loader.next(), nullptr);
      return error_of(status, [&] { loader.next(); });
    };
    BrokenDataset dataset([] { throw 42; });
    EXPECT_EQ(said(dataset, sequential_order(), Exit::kBug),
              "sample 3: an exception that is no std::exception, of type int");
    dataset.has_no_names = true;
    EXPECT_THAT(said(dataset, sequential_order(), Exit::kBug),
                StartsWith("sample 3: an exception"));
    EXPECT_EQ(said(CountingDataset(4), std::make_shared<BrokenOrder>(), Exit::kData),
              "the order's list ends here");
    const BrokenDataset as_libtorch(
        [] { throw std::runtime_error("odd\nException raised from f\nframe #0"); });
    EXPECT_EQ(said(as_libtorch, sequential_order(), Exit::kBug), "sample 3: odd");
  }
}

TEST(LoaderTest, RefusesSamplesOfNoPossibleSize) {
  struct Sized : CountingDataset {
    explicit Sized(int64_t bytes) : CountingDataset(4), bytes_(bytes) {}
    int64_t sample_bytes() const override { return bytes_; }
    int64_t bytes_;
  };
  const auto said = [](int64_t bytes, Exit status) {
    return error_of(status, [&] { Loader(Sized(bytes), {.global_batch = 2, .micro_batch = 2}); });
  };
  EXPECT_EQ(said(-1, Exit::kBug), "the dataset's sample_bytes() is -1: expected 0 or more");
  for (const int64_t bytes : {int64_t{1} << 60, int64_t{1} << 62}) {
    EXPECT_THAT(said(bytes, Exit::kResource),
                StartsWith(fmt::format("not enough memory for batches ahead: 1 of 2 samples of {}",
                                       bytes)));
  }
}

TEST(LoaderTest, ABadSampleIsReplacedBySomeOtherOnWhateverRank) {
  CountingDataset dataset(50);
  dataset.fail = {3, 22, 35};
  LoaderOptions options = training(dataset);
  options.on_error = OnError::kReplace;
  ::testing::internal::CaptureStderr();
  const auto expected = read_all(dataset, options);
  const std::string said = ::testing::internal::GetCapturedStderr();
  for (const char* name : {"sample 3", "sample 22", "sample 35"}) {
    const std::string line = std::string("skipped: ") + name + ": truncated";
    EXPECT_NE(said.find(line), std::string::npos);
    EXPECT_EQ(said.find(line), said.rfind(line)) << "said once in three epochs";
  }
  int64_t samples = 0;
  for (const Copy& batch : expected) {
    samples += batch.count;
    for (const int64_t label : batch.labels) EXPECT_FALSE(dataset.fail.contains(label));
  }
  EXPECT_EQ(samples, 150);  // as many as ever

  std::vector<std::vector<int64_t>> alone(3 * 5);
  std::vector<std::vector<int64_t>> together(3 * 5);
  const auto gather = [](const std::vector<Copy>& batches, std::vector<std::vector<int64_t>>& to) {
    for (const Copy& batch : batches) {
      auto& step = to[static_cast<size_t>(batch.epoch * 5 + batch.step)];
      step.insert(step.end(), batch.labels.begin(), batch.labels.end());
    }
  };
  gather(expected, alone);
  options.world = 3;
  options.workers = 2;
  for (options.rank = 0; options.rank < options.world; ++options.rank) {
    gather(read_all(dataset, options), together);
  }
  EXPECT_EQ(together, alone);
}

TEST(LoaderTest, ABadSampleIsDroppedFromEvaluation) {
  for (const int64_t workers : {0, 2}) {
    CountingDataset dataset(6);
    dataset.fail = {4};
    Loader loader(dataset, {.global_batch = 6,
                            .micro_batch = 6,
                            .workers = workers,
                            .epochs = 1,
                            .on_error = OnError::kDrop});
    const Batch* batch = loader.next();
    EXPECT_THAT(std::vector(batch->labels.begin(), batch->labels.end()),
                ::testing::ElementsAre(0, 1, 2, 3, kNoLabel, 5));
    EXPECT_EQ(batch->pixels[4 * 4], 0);
    EXPECT_EQ(loader.skipped(), 1);
  }
}

TEST(LoaderTest, LogsWhatItReplacesAndByWhich) {
  CountingDataset dataset(20);
  dataset.fail = {3, 11};
  const auto log = std::make_shared<ReplacementLog>();
  std::map<std::pair<int64_t, int64_t>, int64_t> read;  // by epoch and position
  for (int again = 0; again < 2; ++again) {             // as a step that is taken again
    Loader loader(dataset, {.global_batch = 5,
                            .micro_batch = 5,
                            .workers = 2,
                            .epochs = 2,
                            .on_error = OnError::kReplace,
                            .replacements = log});
    while (const Batch* batch = loader.next()) {
      for (int64_t i = 0; i < batch->count; ++i) {
        read[{batch->epoch, batch->first_position + i}] = batch->labels[static_cast<size_t>(i)];
      }
    }
  }
  const std::vector<Replacement> first = log->take_before(1, 4);
  ASSERT_EQ(first.size(), 3);
  std::vector<Replacement> all = first;
  for (const Replacement& one : log->take_before(2, 0)) all.push_back(one);
  ASSERT_EQ(all.size(), 4);
  for (const Replacement& one : all) {
    EXPECT_EQ(one.sample, one.position);  // the order is sequential
    EXPECT_EQ(one.name, dataset.name(one.sample));
    EXPECT_EQ(one.by, read.at({one.epoch, one.position}));  // a label is its sample here
    EXPECT_NE(one.by, one.sample);
  }
  EXPECT_TRUE(log->take_before(9, 0).empty());
}

TEST(LoaderTest, LoadersOfARunCountBadSamplesTogether) {
  CountingDataset dataset(20);
  dataset.fail = {3, 11};
  const LoaderOptions options = {.global_batch = 10,
                                 .micro_batch = 10,
                                 .on_error = OnError::kReplace,
                                 .max_skipped = 1,
                                 .replacements = std::make_shared<ReplacementLog>()};
  EXPECT_NE(Loader(dataset, options).next(), nullptr);
  EXPECT_NE(Loader(dataset, options).next(), nullptr);  // sample 3 again
  Loader later(dataset, options, /*start_epoch=*/0, /*start_step=*/1);
  EXPECT_THAT([&] { later.next(); },
              ::testing::ThrowsMessage<Error>(HasSubstr("with it 2 samples could not be read")));
}

// Else it would be a matter of the threads' pace whether a run ends.
TEST(LoaderTest, BadSamplesCountWhenTheirBatchsTurnHasCome) {
  CountingDataset dataset(40);
  dataset.fail = {3, 12, 13, 14};
  Loader loader(dataset, {.global_batch = 10,
                          .micro_batch = 10,
                          .workers = 2,
                          .prefetch = 3,
                          .on_error = OnError::kReplace,
                          .max_skipped = 2});
  // All are read ahead, and others for four of them.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (dataset.reads < 44 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  for (int repeat = 0; repeat < 2; ++repeat) {
    EXPECT_EQ(loader.skipped(), repeat);
    if (repeat == 0) {
      EXPECT_NE(loader.next(), nullptr);
    }
  }
  for (int repeat = 0; repeat < 2; ++repeat) {
    EXPECT_THAT([&] { loader.next(); },
                ::testing::ThrowsMessage<Error>(HasSubstr(
                    "with it 3 samples could not be read, and data.max_skipped allows 2")));
  }
}

TEST(LoaderTest, TooManyBadSamplesAreAnErrorAfterAll) {
  for (const int64_t workers : {0, 2}) {
    CountingDataset dataset(40);
    dataset.fail = {3, 4, 9};
    Loader loader(dataset, {.global_batch = 40,
                            .micro_batch = 40,
                            .workers = workers,
                            .on_error = OnError::kReplace,
                            .max_skipped = 2});
    try {
      loader.next();
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Exit::kData);
      EXPECT_THAT(error.what(), HasSubstr("truncated; with it 3 samples could not be read, and "
                                          "data.max_skipped allows 2"));
    }
  }
}

TEST(LoaderTest, WhereEverySampleIsBadReplacingEnds) {
  CountingDataset dataset(2);
  dataset.fail = {0, 1};
  Loader loader(dataset, {.global_batch = 2, .micro_batch = 2, .on_error = OnError::kReplace});
  EXPECT_THROW(loader.next(), Error);
}

TEST(LoaderTest, OnlyBadDataIsSkipped) {
  CountingDataset dataset(4);
  dataset.logic_error = 1;
  Loader loader(dataset, {.global_batch = 4, .micro_batch = 4, .on_error = OnError::kReplace});
  EXPECT_THROW(loader.next(), Error);
}

TEST(LoaderTest, MemoryForPixelsMayComeFromElsewhere) {
  const CountingDataset dataset(4);
  std::vector<size_t> asked;
  Loader loader(dataset, {.global_batch = 4, .micro_batch = 4, .workers = 1, .prefetch = 2}, 0, 0,
                [&](size_t bytes) {
                  asked.push_back(bytes);
                  return std::shared_ptr<uint8_t[]>(new uint8_t[bytes]);
                });
  ASSERT_NE(loader.next(), nullptr);
  EXPECT_THAT(asked, ::testing::ElementsAre(16, 16, 16));
}

TEST(LoaderTest, SaysHowLongItsThreadsWorkedWhileNobodyWaited) {
  const CountingDataset dataset(1000);
  Loader ahead(dataset, {.global_batch = 4, .micro_batch = 4, .workers = 2, .prefetch = 2});
  while (dataset.reads < 3 * 4) std::this_thread::yield();
  const OverlappedWork work = ahead.take_overlapped();
  EXPECT_GT(work.decode_s, 0);
  EXPECT_GT(work.decode_cpu_s, 0);
  EXPECT_EQ(work.copy_s, 0);
  Loader at_once(dataset, {.global_batch = 4, .micro_batch = 4});
  for (int i = 0; i < 3; ++i) ASSERT_NE(at_once.next(), nullptr);
  EXPECT_EQ(at_once.take_overlapped().decode_s, 0);
  EXPECT_EQ(at_once.take_overlapped().decode_cpu_s, 0);
}

/// Whoever reads first waits for another reader, and both for a moment more.
class BarrierDataset : public CountingDataset {
 public:
  BarrierDataset() : CountingDataset(2) {}
  int64_t read(int64_t index, RandomStream* random, std::span<uint8_t> bytes) const override {
    if (std::this_thread::get_id() == caller_) in_next_s = now_s();
    barrier_.arrive_and_wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return CountingDataset::read(index, random, bytes);
  }
  mutable double in_next_s = 0;

 private:
  const std::thread::id caller_ = std::this_thread::get_id();
  mutable std::barrier<> barrier_{2};
};

TEST(LoaderTest, WorkThatSomebodyWaitsForIsNotHidden) {
  const BarrierDataset dataset;
  const double start_s = now_s();
  Loader loader(dataset, {.global_batch = 2, .micro_batch = 2, .workers = 1, .epochs = 1});
  ASSERT_NE(loader.next(), nullptr);
  const double returned_s = now_s();
  const double overlapped_s = loader.take_overlapped().decode_s;
  EXPECT_LE(overlapped_s, dataset.in_next_s - start_s + now_s() - returned_s);
}

/// Reads by waiting for something, such as a disk.
class SleepingDataset : public CountingDataset {
 public:
  using CountingDataset::CountingDataset;
  int64_t read(int64_t index, RandomStream* random, std::span<uint8_t> bytes) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return CountingDataset::read(index, random, bytes);
  }
};

TEST(LoaderTest, ASleepingThreadTakesNoCore) {
  const SleepingDataset dataset(1000);
  Loader ahead(dataset, {.global_batch = 4, .micro_batch = 4, .workers = 2, .prefetch = 2});
  while (dataset.reads < 3 * 4) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const OverlappedWork work = ahead.take_overlapped();
  EXPECT_GT(work.decode_s, 0.2);                                            // twelve samples
  EXPECT_NEAR(work.decode_wall_s, work.decode_s / 2, 0.2 * work.decode_s);  // by two at once
  EXPECT_LT(work.decode_cpu_s, 0.5 * work.decode_s);
}

TEST(LoaderTest, StopsWhileWorkersWaitForRoom) {
  const CountingDataset dataset(1000);
  {
    Loader loader(dataset, {.global_batch = 4, .micro_batch = 4, .workers = 3, .prefetch = 2});
    while (dataset.reads < 3 * 4) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // now they wait
  }
  EXPECT_EQ(dataset.reads, 3 * 4);  // never more than the ring holds
}

TEST(LoaderTest, StopsAtAnyMoment) {
  const CountingDataset dataset(1000);
  for (int64_t batches = 0; batches < 40; ++batches) {
    Loader loader(dataset,
                  {.global_batch = 8, .micro_batch = 3, .workers = batches % 4, .prefetch = 3});
    for (int64_t i = 0; i < batches; ++i) ASSERT_NE(loader.next(), nullptr);
  }
}

TEST(LoaderTest, ABatchStaysAsItIsWhileItIsInUse) {
  const CountingDataset dataset(1000);
  Loader loader(dataset, {.global_batch = 2, .micro_batch = 2, .workers = 3, .prefetch = 0});
  for (int64_t i = 0; i < 50; ++i) {
    const Batch* batch = loader.next();
    std::this_thread::yield();
    EXPECT_EQ(batch->labels[0], 2 * i);
    EXPECT_EQ(batch->pixels[7], static_cast<uint8_t>(2 * i + 1));
  }
}

}  // namespace
}  // namespace brim::data
