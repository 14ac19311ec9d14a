// Which of two forms is taken: measured once a shape, kept, shared by a file.
#include "framework/nn/measured_forms.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "framework/base/files.h"
#include "framework/nn/batch_norm.h"
#include "framework/nn/convolution.h"
#include "framework/nn/model.h"
#include "framework/nn/without_storage.h"
#include "tests/support/temporary_folder.h"

namespace brim::nn {
namespace {

using Tensors = std::vector<at::Tensor>;

/// An operation whose forms differ by what they compute: one pass, or 300.
class Doubling {
 public:
  Doubling(std::string name, int fused_passes, int plain_passes)
      : name_(std::move(name)), fused_passes_(fused_passes), plain_passes_(plain_passes) {}

  bool takes_fused(const at::Tensor& x, bool is_training = true, Fused when = Fused::kMeasured) {
    const auto form = [this](int passes, const Tensors& batch) {
      ++calls;
      at::Tensor y = batch[0];
      for (int i = 0; i < passes; ++i) y = y * 2;
      return Tensors{y};
    };
    return nn::takes_fused(
        when,
        {.name = name_,
         .batch = {x},
         .parameters = {},
         .is_training = is_training,
         .is_fused_otherwise = is_fused_otherwise},
        [&](const Tensors& batch, const Tensors&) { return form(fused_passes_, batch); },
        [&](const Tensors& batch, const Tensors&) { return form(plain_passes_, batch); });
  }

  int calls = 0;
  bool is_fused_otherwise = true;

 private:
  std::string name_;
  int fused_passes_, plain_passes_;
};

/// The name under which an operation over x is kept.
std::string name_of(const std::string& operation, const at::Tensor& x) {
  Doubling(operation, 1, 300).takes_fused(x);
  for (const auto& [name, times] : measured_forms()) {
    if (name.starts_with(operation + " ")) return name;
  }
  return {};
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  return text.replace(text.find(what), what.size(), by);
}

TEST(MeasuredForms, TheFasterOneIsTaken) {
  EXPECT_TRUE(Doubling("quick fused form", 1, 300).takes_fused(at::rand({64, 64})));
  EXPECT_FALSE(Doubling("slow fused form", 300, 1).takes_fused(at::rand({64, 64})));
}

TEST(MeasuredForms, OneDisturbedReadingDecidesNothingOfWeight) {
  // The form that is faster waits for others in all readings but its tenth.
  int plain_calls = 0;
  const at::Tensor x = at::ones({4, 4});
  const auto fused = [](const Tensors& batch, const Tensors&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return Tensors{batch[0] * 2};
  };
  const auto plain = [&](const Tensors& batch, const Tensors&) {
    if (++plain_calls != 10) std::this_thread::sleep_for(std::chrono::milliseconds(4));
    return Tensors{batch[0] * 2};
  };
  EXPECT_FALSE(takes_fused(
      Fused::kMeasured,
      {.name = "disturbed", .batch = {x}, .parameters = {}, .is_training = true, .rounds = 12},
      fused, plain));
}

TEST(MeasuredForms, ADisturbedPassDecidesNothingByItself) {
  // Each form is measured for the first time in its second pass.
  int calls = 0;
  const at::Tensor x = at::ones({4, 4});
  const auto takes = [](int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); };
  EXPECT_TRUE(takes_fused(
      Fused::kMeasured,
      {.name = "disturbed once", .batch = {x}, .parameters = {}, .is_training = true},
      [&](const Tensors& batch, const Tensors&) {
        takes(++calls <= 2 ? 20 : 2);
        return Tensors{batch[0] * 2};
      },
      [&](const Tensors& batch, const Tensors&) {
        takes(6);
        return Tensors{batch[0] * 2};
      }));
}

TEST(MeasuredForms, OneMeasurementAShapeAndFormat) {
  Doubling work("measured once", 300, 1);
  EXPECT_FALSE(work.takes_fused(at::rand({8, 64})));
  const int calls = work.calls;
  EXPECT_GT(calls, 0);
  EXPECT_FALSE(work.takes_fused(at::rand({8, 64})));
  EXPECT_EQ(work.calls, calls);
  work.takes_fused(at::rand({9, 64}));
  const int both_shapes = work.calls;
  EXPECT_GT(both_shapes, calls);
  work.takes_fused(at::rand({8, 64}, at::kDouble));
  EXPECT_GT(work.calls, both_shapes);
}

TEST(MeasuredForms, OfALargeBatchAPartIsMeasured) {
  Doubling work("large", 1, 300);
  work.takes_fused(at::rand({int64_t{5} << 20, 1}));
  EXPECT_THAT(measured_forms(),
              ::testing::Contains(::testing::Key(::testing::StartsWith("large Float[4194304,1]"))));
}

TEST(MeasuredForms, EvaluationTakesWhatTrainingDoes) {
  Doubling work("evaluated", 300, 1);
  const at::Tensor x = at::rand({8, 32});
  EXPECT_TRUE(work.takes_fused(x, /*is_training=*/false));
  work.is_fused_otherwise = false;
  EXPECT_FALSE(work.takes_fused(x, /*is_training=*/false));
  EXPECT_EQ(work.calls, 0);
  work.is_fused_otherwise = true;
  EXPECT_FALSE(work.takes_fused(x));
  EXPECT_FALSE(work.takes_fused(x, /*is_training=*/false));
}

TEST(MeasuredForms, OfABatchThatTakesLongAPartIsMeasuredInFewPasses) {
  const int64_t rows = 16 * at::get_num_threads();
  std::vector<int64_t> measured;
  const auto sleeping = [&](std::chrono::milliseconds a_row) {
    return [&measured, a_row](const Tensors& batch, const Tensors&) -> Tensors {
      measured.push_back(batch[0].size(0));
      std::this_thread::sleep_for(a_row * batch[0].size(0));
      return {batch[0] * 2};
    };
  };
  EXPECT_TRUE(takes_fused(
      Fused::kMeasured,
      {.name = "long", .batch = {at::rand({rows, 8})}, .parameters = {}, .is_training = true},
      sleeping(std::chrono::milliseconds(10)), sleeping(std::chrono::milliseconds(12))));
  EXPECT_THAT(measured, ::testing::Each(rows / 4));
  EXPECT_EQ(measured.size(), 6);  // one to learn how long it takes, two of each, a last try
}

// As in a step of a model of four such parameters, which a cache that keeps one may not keep.
TEST(MeasuredForms, PassesTakeCopiesOfParametersInTurn) {
  std::vector<const void*> seen;
  const auto form = [&](const Tensors& batch, const Tensors& parameters) -> Tensors {
    seen.push_back(parameters[0].const_data_ptr());
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return {batch[0].mm(parameters[0])};
  };
  const at::Tensor weight = at::rand({64, 64});
  const auto measure = [&](std::string_view name, bool is_of_model = true) {
    seen.clear();
    takes_fused(Fused::kMeasured,
                {.name = name,
                 .batch = {at::rand({8, 64})},
                 .parameters = {weight},
                 .is_training = true,
                 .is_of_model = is_of_model},
                form, form);
    return std::set<const void*>(seen.begin(), seen.end());
  };
  EXPECT_THAT(measure("of one"), ::testing::ElementsAre(weight.const_data_ptr()));
  expect_parameters(4 * static_cast<int64_t>(weight.nbytes()));
  // 12, with their gradients and momentum: on a busy machine there are fewer passes.
  EXPECT_THAT(measure("of four").size(), ::testing::AllOf(::testing::Gt(1), ::testing::Le(12)));
  EXPECT_NE(seen[0], seen[1]);
  EXPECT_THAT(measure("of none", /*is_of_model=*/false),
              ::testing::ElementsAre(weight.const_data_ptr()));
  expect_parameters(0);
  EXPECT_THAT(measured_forms(), ::testing::Contains(::testing::Key(
                                    ::testing::HasSubstr("Float[8,64] Float[64,64] copies 12"))));
}

TEST(MeasuredForms, OnlyMeasuredMeasures) {
  Doubling work("given", 300, 1);
  EXPECT_TRUE(work.takes_fused(at::rand({8, 16}), true, Fused::kUsual));
  work.is_fused_otherwise = false;
  EXPECT_FALSE(work.takes_fused(at::rand({8, 16}), true, Fused::kUsual));
  EXPECT_TRUE(work.takes_fused(at::rand({8, 16}), true, Fused::kAlways));
  EXPECT_FALSE(work.takes_fused(at::rand({8, 16}), true, Fused::kNever));
  EXPECT_EQ(work.calls, 0);
}

TEST(MeasuredForms, ExhaustedMemoryDecidesNothing) {
  int calls = 0;
  const auto exhausted = [&](const Tensors&, const Tensors&) -> Tensors {
    ++calls;
    TORCH_CHECK_WITH(OutOfMemoryError, false, "no more");
  };
  const auto takes = [&](bool otherwise) {
    return takes_fused(Fused::kMeasured,
                       {.name = otherwise ? "exhausted" : "exhausted too",
                        .batch = {at::rand({4, 4})},
                        .parameters = {},
                        .is_training = true,
                        .is_fused_otherwise = otherwise},
                       exhausted, exhausted);
  };
  EXPECT_TRUE(takes(true));
  EXPECT_FALSE(takes(false));
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(takes(true));
  EXPECT_EQ(calls, 2);  // not again in each step
}

TEST(MeasuredForms, WhatIsMeasuredStaysAsItWas) {
  BatchNorm2d norm(8);
  Conv2d convolution(torch::nn::Conv2dOptions(8, 64, 3).padding(1).bias(false));
  use_channels_last(*convolution);
  use_fused(*norm, Fused::kMeasured);
  use_fused(*convolution, Fused::kMeasured);
  const at::Tensor x = at::randn({2, 8, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor before = x.clone();
  const at::Tensor y = convolution->forward_after(norm, x);
  EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 1);
  EXPECT_TRUE(at::allclose(norm->running_mean, 0.1 * x.mean(at::IntArrayRef{0, 2, 3})));
  EXPECT_TRUE(at::equal(x, before));
  for (const at::Tensor& parameter : {norm->weight, norm->bias, convolution->weight}) {
    EXPECT_FALSE(parameter.grad().defined());
  }
  EXPECT_THAT(measured_forms(), ::testing::Contains(::testing::Key(
                                    ::testing::StartsWith("batch norm, ReLU Float[2,8,3,3]"))));
}

TEST(MeasuredForms, AFileSharesThem) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "forms" / "machine.tsv";
  const std::string name = name_of("shared", at::rand({8, 8}));
  ASSERT_FALSE(name.empty());
  share_measured_forms(file);
  // Another process has found that the form that is slow here is the faster one.
  std::ofstream(file) << "no line of ours\n\n"
                      << replaced(name, "8,8", "8,9") << "\t1e-6\t2e-6\t.\n"
                      << replaced(name, "8,8", "8,10") << "\t-1\t2e-6\t.\n"
                      << replaced(name, "8,8", "8,11") << "\t1e-6\tnan\t.\n"
                      << replaced(name, "8,8", "8,12") << "\t1e-6\t2e-6\t3\t.\n"
                      << replaced(name, "8,8", "8,13") << "\t1e-6\t2e-6";  // killed in mid-write
  Doubling work("shared", 300, 1);
  EXPECT_TRUE(work.takes_fused(at::rand({8, 9})));
  EXPECT_EQ(work.calls, 0);
  for (const int64_t width : {10, 11, 12, 13}) {
    const int calls = work.calls;
    EXPECT_FALSE(work.takes_fused(at::rand({8, width}))) << width;
    EXPECT_GT(work.calls, calls) << width;
  }
  share_measured_forms({});
  const std::string text = read_file(file, Exit::kBug, 1 << 20);
  EXPECT_THAT(text, ::testing::ContainsRegex(
                        "\nshared Float\\[8,13\\] threads [0-9]+\t[0-9.e-]+\t[0-9.e-]+\t\\.\n$"));
}

TEST(MeasuredForms, WithoutStorageOnesThatAreKnownAreGoneBy) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "machine.tsv";
  const std::string name = name_of("planned", at::rand({8, 8}));
  std::ofstream(file) << "\n" << replaced(name, "8,8", "8,9") << "\t1e-6\t2e-6\t.\n";
  share_measured_forms(file);
  remember_forms({{replaced(name, "8,8", "8,10"), {1e-6, 2e-6}}});
  const WithoutStorage without_storage;
  Doubling work("planned", 300, 1);
  work.is_fused_otherwise = false;
  for (const bool is_training : {true, false}) {
    EXPECT_TRUE(work.takes_fused(at::rand({8, 9}), is_training));
    EXPECT_TRUE(work.takes_fused(at::rand({8, 10}), is_training));
    EXPECT_FALSE(work.takes_fused(at::rand({8, 11}), is_training));
  }
  EXPECT_EQ(work.calls, 0);
  share_measured_forms({});
}

TEST(MeasuredForms, AFileThatCanNotBeWrittenIsDoneWithout) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "in the way";
  share_measured_forms(folder.path() / "file" / "machine.tsv");
  EXPECT_FALSE(Doubling("without a folder", 3000, 1).takes_fused(at::rand({8, 8})));
  std::filesystem::create_directory(folder.path() / "machine.tsv");
  share_measured_forms(folder.path() / "machine.tsv");
  EXPECT_FALSE(Doubling("a folder in the way", 3000, 1).takes_fused(at::rand({8, 8})));
  ASSERT_EQ(::mkfifo((folder.path() / "pipe.tsv").c_str(), 0600), 0);
  share_measured_forms(folder.path() / "pipe.tsv");
  EXPECT_FALSE(Doubling("a pipe in the way", 3000, 1).takes_fused(at::rand({8, 8})));
  share_measured_forms({});
}

TEST(MeasuredForms, OnesThatAreGivenAreGoneBy) {
  const std::string name = name_of("given back", at::rand({8, 8}));
  remember_forms({{replaced(name, "8,8", "8,9"), {1e-3, 1e-6}}});
  Doubling work("given back", 1, 300);
  EXPECT_FALSE(work.takes_fused(at::rand({8, 9})));
  EXPECT_EQ(work.calls, 0);
}

}  // namespace
}  // namespace brim::nn
