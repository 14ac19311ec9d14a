// [data] as a recipe writes it.
#include "framework/data/config.h"

#include <gmock/gmock.h>

#include "framework/base/error.h"
#include "framework/data/sources/idx_source.h"
#include "framework/data/sources/image_folder.h"
#include "framework/data/sources/synthetic.h"
#include "framework/recipe/document.h"
#include "framework/recipe/read.h"

namespace brim::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Root : recipe::Config {
  DataConfig data;
  void fields(recipe::Fields& f) override { f.section("data", data, "samples"); }
};

void read(Root& root, const std::string& text) {
  static const bool registered = (register_sources(), register_samplers(), true);
  ASSERT_TRUE(registered);
  recipe::read(recipe::parse(text, "test.toml"), root);
}

std::string error_of(const std::string& text) {
  Root root;
  try {
    read(root, text);
    root.data.check();
    root.data.normalization(3);
    root.data.open_train();
    root.data.open_eval();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Exit::kRecipe);
    return error.what();
  }
  return "no error";
}

TEST(DataConfigTest, ReadsEachKindAndPrintsItBack) {
  for (const std::string text :
       {"[data]\nkind = \"synthetic\"\nsamples = 12\n[data.augment]\nflip = true\ncrop = \"pad\"",
        "[data]\nkind = \"idx\"\nworkers = 3\n[data.train]\nimages = \"i\"\nlabels = \"l\"",
        "[data]\nkind = \"image_folder\"\nimage_size = 96\nmean = [0.1, 0.2, 0.3]\n"
        "std = [1.0, 1.0, 1.0]\n[data.train]\npath = \"t\"\n[data.eval]\npath = \"e\"",
        "[data]\nkind = \"cifar\"\npath = \"c\"\nlabels = \"coarse\"",
        "[data]\nkind = \"tokens\"\ntype = \"uint32\"\npacking = \"documents\"\n"
        "end_of_document = 3\n[data.train]\npath = \"t\""}) {
    Root root;
    read(root, text);
    const std::string printed = recipe::print(root);
    Root again;
    read(again, printed);
    EXPECT_EQ(recipe::print(again), printed);
    EXPECT_EQ(again.data.source.selected(), root.data.source.selected());
  }
  Root root;
  read(root,
       "[data]\nkind = \"synthetic\"\nsamples = 12\nheight = 5\n[data.augment]\ncrop = \"pad\"");
  EXPECT_EQ(root.data.augment.crop, Crop::kPad);
  const auto train = root.data.open_train();
  EXPECT_EQ(train->size(), 12);
  EXPECT_EQ(train->images()->shape(), (ImageShape{5, 32, 3}));
  EXPECT_EQ(root.data.open_eval()->size(), 1000);
}

TEST(DataConfigTest, LeavingOutEvaluationDataMeansNone) {
  Root root;
  read(root, "[data]\nkind = \"idx\"\n[data.train]\nimages = \"i\"\nlabels = \"l\"");
  EXPECT_EQ(root.data.open_eval(), nullptr);
  Root again;
  read(again, recipe::print(root));
  EXPECT_EQ(again.data.open_eval(), nullptr);
}

TEST(DataConfigTest, SaysWhatIsWrong) {
  EXPECT_THAT(error_of("[data]\nsamples = 3"), HasSubstr("kind"));
  EXPECT_THAT(error_of("[data]\nkind = \"idx\"\n[data.train]\nimages = \"i\""),
              HasSubstr("'labels'"));
  EXPECT_THAT(error_of("[data]\nkind = \"synthetic\"\npath = \"x\""),
              HasSubstr("unknown key 'path'"));
  EXPECT_THAT(error_of("[data]\nkind = \"synthetic\"\n[data.augment]\nscale_min = 0.5\n"
                       "scale_max = 0.2\ncrop = \"random_resized\""),
              HasSubstr("scale_min"));
  EXPECT_THAT(error_of("[data]\nkind = \"synthetic\"\nmean = [0.5]\nstd = [0.5]"),
              HasSubstr("the images have 3 channels"));
  EXPECT_THAT(error_of("[data]\nkind = \"synthetic\"\nmean = [0.5]"),
              HasSubstr("together, of one value a channel each; found 1 and 0 values"));
  EXPECT_THAT(
      error_of("[data]\nkind = \"synthetic\"\nmean = [123.7, 116.3, 103.5]\nstd = [0.5, 0.5, 0.5]"),
      HasSubstr("from 0 to 1"));
  EXPECT_THAT(
      error_of("[data]\nkind = \"synthetic\"\nmean = [0.5, 0.5, 0.5]\nstd = [58.0, 57.0, 57.0]"),
      HasSubstr("at most 1"));
  EXPECT_THAT(error_of("[data]\nkind = \"synthetic\"\nstd = [0.5, 0.0, 0.5]"), HasSubstr("std"));
  EXPECT_EQ(error_of("[data]\nkind = \"synthetic\""), "no error");
}

TEST(DataConfigTest, TheSamplerIsAPartOfItsOwn) {
  const auto text_of = [](const std::string& keys) {
    Root root;
    read(root, "[data]\nkind = \"synthetic\"\n" + keys);
    Root again;
    read(again, recipe::print(root));
    EXPECT_EQ(recipe::print(again), recipe::print(root));
    const auto dataset = again.data.open_train();
    return again.data.order(*dataset, {.seed = 1, .global_batch = 64})->text();
  };
  EXPECT_EQ(text_of(""), "shuffled");
  const std::string name = "[data.sampler]\nname = ";
  EXPECT_EQ(text_of(name + "\"sequential\""), "sequential");
  EXPECT_EQ(text_of(name + "\"class_balanced\""), "class_balanced");
  EXPECT_EQ(text_of(name + "\"repeated\"\nrepeats = 4"), "4 times each, shuffled");
  EXPECT_THAT(error_of("[data]\nkind = \"synthetic\"\n" + name + "\"weighted\""),
              HasSubstr("missing key 'weights' in [data.sampler]"));
  EXPECT_THAT(error_of("[data]\nkind = \"synthetic\"\n" + name + "\"shufled\""),
              HasSubstr("did you mean"));
}

TEST(DataConfigTest, ColoursOfImagesWithoutColoursAreRefused) {
  const std::string five =
      "[data]\nkind = \"synthetic\"\nchannels = 5\nmean = [0.0, 0.0, 0.0]\nstd = [1.0, 1.0, 1.0]\n";
  EXPECT_THAT(error_of(five + "[data.augment]\nauto = \"rand_augment\""),
              HasSubstr("expected images of 1 or 3 channels for 'auto', found 5"));
  EXPECT_THAT(error_of(five + "[data.augment]\ncontrast = 0.1"), HasSubstr("found 5 channels"));
  EXPECT_EQ(error_of(five), "no error");
  EXPECT_THAT(error_of("[data]\nkind = \"synthetic\"\n[data.augment]\nhue = 0.6"),
              HasSubstr("hue"));
  EXPECT_THAT(error_of("[data]\nkind = \"synthetic\"\n[data.augment]\nrand_magnitude = 31"),
              HasSubstr("rand_magnitude"));
}

TEST(DataConfigTest, KeysWithoutEffectAreSaidAloud) {
  Root root;
  read(root, "[data]\nkind = \"synthetic\"\n[data.augment]\npad = 2\nratio_max = 1.5");
  ::testing::internal::CaptureStderr();
  root.data.check();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("data.augment.pad has no effect"));
  EXPECT_THAT(said, HasSubstr("ratio_max have no effect"));
}

TEST(DataConfigTest, ChangesOfColourWithoutEffectAreSaidAloud) {
  const auto said = [](const std::string& keys) {
    Root root;
    read(root, "[data]\nkind = \"synthetic\"\nchannels = 1\n[data.augment]\n" + keys);
    ::testing::internal::CaptureStderr();
    root.data.check();
    root.data.open_train();
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said("rand_ops = 3"), HasSubstr("rand_ops and rand_magnitude have no effect"));
  EXPECT_THAT(said("auto = \"trivial_augment\"\nhue = 0.1"), HasSubstr("hue have no effect: auto"));
  EXPECT_THAT(said("saturation = 0.1"), HasSubstr("have no effect: the images have 1 channel"));
  EXPECT_EQ(said("auto = \"rand_augment\"\nrand_ops = 3"), "");
  EXPECT_EQ(said("brightness = 0.1\ncontrast = 2.0"), "");
}

TEST(DataConfigTest, DefaultsFollowTheMachineAndTheChannels) {
  Root root;
  read(root, "[data]\nkind = \"synthetic\"");
  EXPECT_GE(root.data.train_options().workers, 1);
  EXPECT_TRUE(root.data.train_options().adapt_workers);
  EXPECT_THAT(root.data.normalization(3).mean, ElementsAre(0.485, 0.456, 0.406));
  EXPECT_THAT(root.data.normalization(1).std, ElementsAre(0.5));
  root.data.workers = 0;
  EXPECT_EQ(root.data.train_options().workers, 0);
  EXPECT_FALSE(root.data.train_options().adapt_workers);
}

TEST(DataConfigTest, SkippingReplacesInTrainingAndDropsInEvaluation) {
  Root root;
  read(root, "[data]\nkind = \"synthetic\"");
  EXPECT_EQ(root.data.train_options().on_error, OnError::kFail);
  EXPECT_EQ(root.data.eval_options().on_error, OnError::kFail);
  read(root, "[data]\nkind = \"synthetic\"\non_error = \"skip\"\nmax_skipped = 7");
  EXPECT_EQ(root.data.train_options().on_error, OnError::kReplace);
  EXPECT_EQ(root.data.eval_options().on_error, OnError::kDrop);
  EXPECT_EQ(root.data.eval_options().max_skipped, 7);
}

TEST(SyntheticTest, ImagesOfAClassShareAPatternUnderTheirOwnNoise) {
  SyntheticConfig config;
  const auto dataset = config.open_train({});
  std::vector<uint8_t> a(3072), b(3072), c(3072);
  EXPECT_EQ(dataset->read(4, nullptr, a), 4);
  EXPECT_EQ(dataset->read(14, nullptr, b), 4);
  EXPECT_EQ(dataset->read(5, nullptr, c), 5);
  const auto distance = [](const auto& x, const auto& y) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
    return sum;
  };
  EXPECT_GT(distance(a, b), 0);
  EXPECT_GT(distance(a, c), 1.5 * distance(a, b));
  // Evaluation images continue the sequence: none is a training image.
  std::vector<uint8_t> first(3072);
  config.samples = 14;
  EXPECT_EQ(config.open_eval()->read(0, nullptr, first), 4);
  EXPECT_EQ(first, b);
}

}  // namespace
}  // namespace brim::data
