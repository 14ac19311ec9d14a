// Layers: extends < recipe < --config < --set, by real files.
#include <gmock/gmock.h>
#include <stdlib.h>

#include <fstream>

#include "framework/base/error.h"
#include "framework/recipe/lookup.h"
#include "tests/recipe/sample.h"

namespace brim::recipe {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// Each test runs in a folder of its own.
class RecipeLayers : public ::testing::Test {
 protected:
  RecipeLayers() : before_(fs::current_path()) {
    sample::register_components();
    std::string name = (fs::temp_directory_path() / "brim_recipe_XXXXXX").string();
    folder = ::mkdtemp(name.data());
    fs::current_path(folder);
  }
  ~RecipeLayers() override {
    fs::current_path(before_);
    fs::remove_all(folder);
  }

  static void write(const fs::path& path, const std::string& text) {
    if (path.has_parent_path()) fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }

  static void load_into(sample::SampleConfig& config, const std::string& name,
                        const LayerOptions& options = {}) {
    read(load(name, options), config);
  }

  static std::string errors(const std::string& name, const LayerOptions& options = {}) {
    sample::SampleConfig config;
    try {
      load_into(config, name, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Exit::kRecipe);
      return error.what();
    }
    return "";
  }

  fs::path folder;

 private:
  fs::path before_;
};

constexpr const char* kGoodLayers = "[run]\nname = \"a\"\n[data]\nkind = \"synthetic\"\n";

TEST_F(RecipeLayers, LaterLayersWinKeyByKey) {
  write("base/base.toml",
        "[run]\nname = \"base\"\nseed = 1\ntags = [\"b\", \"c\"]\n[data]\nkind = \"synthetic\"\n"
        "samples = 5\n[optimizer]\nmomentum = 0.1\n");
  write("recipe.toml",
        "extends = \"base/base.toml\"\n[run]\nname = \"recipe\"\ntags = [\"d\"]\n"
        "[optimizer]\nmomentum = 0.2\n");
  write("one.toml", "[optimizer]\nmomentum = 0.3\n[data]\nsamples = 6\n");
  write("two.toml", "[optimizer]\nmomentum = 0.4\n");
  sample::SampleConfig config;
  load_into(config, "recipe.toml",
            {.configs = {"one.toml", "two.toml"}, .sets = {"optimizer.nesterov=true"}});
  EXPECT_EQ(config.run.name, "recipe");
  EXPECT_EQ(config.run.seed, 1);
  EXPECT_THAT(config.run.tags, ::testing::ElementsAre("d"));
  const auto& sgd = dynamic_cast<const sample::SgdConfig&>(*config.optimizer);
  EXPECT_EQ(sgd.momentum, 0.4);
  EXPECT_TRUE(sgd.nesterov);
  EXPECT_EQ(dynamic_cast<const sample::SyntheticConfig&>(*config.data).samples, 6);

  load_into(
      config, "recipe.toml",
      {.configs = {"one.toml"}, .sets = {"optimizer.momentum=0.7", "optimizer.momentum=0.8"}});
  EXPECT_EQ(dynamic_cast<const sample::SgdConfig&>(*config.optimizer).momentum, 0.8);
}

TEST_F(RecipeLayers, ExtendsIsAChainRelativeToEachFile) {
  write("deep/a/a.toml", std::string(kGoodLayers) + "[batch]\nmicro = 1\n");
  write("deep/b.toml", "extends = \"a/a.toml\"\n[run]\nseed = 2\n");
  write("c.toml", "extends = \"deep/b.toml\"\n[run]\nname = \"c\"\n");
  sample::SampleConfig config;
  load_into(config, "c.toml");
  EXPECT_EQ(config.run.name, "c");
  EXPECT_EQ(config.run.seed, 2);
  EXPECT_EQ(config.batch.micro, 1);
}

TEST_F(RecipeLayers, ExtendsFindsWhatRecipeFinds) {
  write("recipes/base.toml", kGoodLayers);
  sample::SampleConfig config;
  for (const char* name : {"base", "base.toml", "recipes/base", "recipes/base.toml"}) {
    write("elsewhere/mine.toml", fmt::format("extends = \"{}\"\n[run]\nseed = 7\n", name));
    load_into(config, "elsewhere/mine.toml");
    EXPECT_EQ(config.run.name, "a");
    EXPECT_EQ(config.run.seed, 7);
  }
  // A file beside the one that names it comes first.
  write("elsewhere/base.toml", "[run]\nname = \"beside\"\n[data]\nkind = \"synthetic\"\n");
  write("elsewhere/mine.toml", "extends = \"base\"\n");
  load_into(config, "elsewhere/mine.toml");
  EXPECT_EQ(config.run.name, "beside");
}

TEST_F(RecipeLayers, LoopOfExtendsIsToldWithItsChain) {
  write("a.toml", "extends = \"x/b.toml\"\n");
  write("x/b.toml", "extends = \"../c.toml\"\n");
  write("c.toml", "verbose = true\nextends = \"a.toml\"\n");
  EXPECT_EQ(errors("a.toml"),
            "c.toml:2:11: 'extends': loop: a.toml -> x/b.toml -> c.toml -> a.toml");
  write("self.toml", "extends = \"self.toml\"\n");
  EXPECT_EQ(errors("self.toml"), "self.toml:1:11: 'extends': loop: self.toml -> self.toml");
  write("link.toml", "extends = \"other.toml\"\n");
  fs::create_symlink("link.toml", "other.toml");
  EXPECT_EQ(errors("link.toml"), "link.toml:1:11: 'extends': loop: link.toml -> other.toml");
}

TEST_F(RecipeLayers, WrongExtends) {
  write("a.toml", "extends = \"nowhere.toml\"\n");
  EXPECT_THAT(errors("a.toml"), HasSubstr("a.toml:1:11: 'extends': nowhere.toml: no such file, and "
                                          "none of that name in recipes/"));
  write("b.toml", "extends = 3\n");
  EXPECT_EQ(errors("b.toml"), "b.toml:1:11: 'extends': expected the path of a recipe, as a string");
  for (int i = 0; i < 40; ++i) {
    write(fmt::format("n{}.toml", i), fmt::format("extends = \"n{}.toml\"\n", i + 1));
  }
  EXPECT_EQ(errors("n0.toml"), "n31.toml:1:11: 'extends': more than 32 files");
}

TEST_F(RecipeLayers, PlacesSurviveLayering) {
  write("base.toml",
        "[run]\nname = \"a\"\nseed = 1.5\n[data]\nkind = \"synthetic\"\nsampels = 2\n");
  write("recipe.toml", "extends = \"base.toml\"\n[batch]\nmicro = 0\n");
  write("hardware.toml", "[precision]\nmode = \"int8\"\n");
  EXPECT_EQ(
      errors("recipe.toml", {.configs = {"hardware.toml"}, .sets = {"optimizer.momentum=2"}}),
      "--set optimizer.momentum=2: 'momentum' in [optimizer]: expected a number at least 0 and "
      "below 1, found the integer 2\n"
      "base.toml:3:8: 'seed' in [run]: expected an integer, found the number 1.5\n"
      "base.toml:6:1: unknown key 'sampels' in [data]; did you mean 'samples'?\n"
      "hardware.toml:2:8: 'mode' in [precision]: expected one of \"auto\", \"bf16\", \"fp32\", "
      "found the string \"int8\"\n"
      "recipe.toml:3:9: 'micro' in [batch]: expected an integer at least 1, found the integer 0");
}

TEST_F(RecipeLayers, PlaceOfAKey) {
  write("base.toml", "[run]\nname = \"a\"\n");
  write("recipe.toml", "extends = \"base.toml\"\n[batch]\nmicro = 1\n");
  const Value document = load("recipe.toml", {.sets = {"run.seed=1"}});
  EXPECT_EQ(place_of(document, "run.name").text(), "base.toml:2:8");
  EXPECT_EQ(place_of(document, "batch.micro").text(), "recipe.toml:3:9");
  EXPECT_EQ(place_of(document, "batch").text(), "recipe.toml:2:1");
  EXPECT_EQ(place_of(document, "run.seed").text(), "--set run.seed=1");
  EXPECT_EQ(place_of(document, "run.tags").text(), "recipe.toml");
  EXPECT_EQ(place_of(document, "run.name.x").text(), "recipe.toml");
}

TEST_F(RecipeLayers, ProblemsOfAllLayersAreReportedTogether) {
  write("recipe.toml", "[run]\nname == 1\n");
  write("one.toml", "a = [\n");
  EXPECT_EQ(errors("recipe.toml", {.configs = {"one.toml"}, .sets = {"run.seed"}}),
            "--set run.seed: expected section.key=value\n"
            "one.toml:1:7: syntax error while parsing array: encountered end-of-file\n"
            "recipe.toml:2:7: syntax error while parsing value: could not determine value "
            "type");
}

TEST_F(RecipeLayers, SetTakesTypedValues) {
  write("r.toml", kGoodLayers);
  sample::SampleConfig config;
  load_into(config, "r.toml",
            {.sets = {"verbose=true", "run.seed=0x10", "run.tags=[\"x\", 'y']", "batch.micro=auto",
                      "precision.mode=bf16", "optimizer={name=\"adamw\",betas=[0.5]}",
                      "optimizer.learning_rate=1e-3", "run.name=a b=c", "data.train.limit=3"}});
  EXPECT_TRUE(config.verbose);
  EXPECT_EQ(config.run.seed, 16);
  EXPECT_THAT(config.run.tags, ::testing::ElementsAre("x", "y"));
  EXPECT_EQ(config.batch.micro, std::nullopt);
  EXPECT_EQ(config.precision.mode, sample::Mode::kBf16);
  EXPECT_EQ(config.optimizer.selected(), "adamw");
  EXPECT_EQ(config.optimizer->learning_rate, 1e-3);
  EXPECT_EQ(config.run.name, "a b=c");
  EXPECT_EQ(config.train_data.limit, 3);
  load_into(config, "r.toml", {.sets = {"run.name=\"7\""}});
  EXPECT_EQ(config.run.name, "7");
  load_into(config, "r.toml", {.sets = {"run.name=2024-05-01"}});
  EXPECT_EQ(config.run.name, "2024-05-01");
}

TEST_F(RecipeLayers, WrongSets) {
  write("r.toml", kGoodLayers);
  const auto error = [](const std::string& set) { return errors("r.toml", {.sets = {set}}); };
  EXPECT_EQ(error("run.seed"), "--set run.seed: expected section.key=value");
  EXPECT_EQ(error("run.seed="),
            "--set run.seed=: expected a value after '=', found none; an empty string is '\"\"'");
  for (const std::string set :
       {"run.seed=99999999999999999999", "run.seed=-99999999999999999999"}) {
    EXPECT_EQ(error(set),
              "--set " + set + ": the integer is out of range: expected at most 64 bits");
  }
  EXPECT_EQ(error("run..seed=1"),
            "--set run..seed=1: 'run..seed' is no key: expected letters, digits, '_' and '-', with "
            "a dot between section and key");
  EXPECT_THAT(error("=1"), HasSubstr("--set =1: '' is no key"));
  EXPECT_THAT(error("a b=1"), HasSubstr("'a b' is no key"));
  EXPECT_EQ(error("run.seed=1\nx=2"), "--set: expected one line without control characters");
  EXPECT_EQ(error("run.name=\xff"), "--set run.name=\xff: expected UTF-8 text, found other bytes");
  EXPECT_EQ(error("run.tags=[1"),
            "--set run.tags=[1: syntax error while parsing array: encountered end-of-file");
  EXPECT_EQ(error("run.sed=1"),
            "--set run.sed=1: unknown key 'sed' in [run]; did you mean 'seed'?");
  EXPECT_EQ(error("optimizer.learning_rate=0.1x"),
            "--set optimizer.learning_rate=0.1x: 'learning_rate' in [optimizer]: expected a "
            "number, found the string \"0.1x\"");
}

TEST_F(RecipeLayers, RelativePathsBelongToTheFileThatWroteThem) {
  write("base/base.toml", "[data]\nkind = \"folder\"\npath = \"images\"\n");
  write("top/recipe.toml",
        "extends = \"../base/base.toml\"\n[run]\nname = \"a\"\n[data]\ncache = \"../cache/./x\"\n");
  sample::SampleConfig config;
  load_into(config, "top/recipe.toml");
  const auto* data = dynamic_cast<const sample::FolderConfig*>(config.data.operator->());
  EXPECT_EQ(data->path, fs::current_path() / "base/images");
  EXPECT_EQ(data->cache, fs::current_path() / "cache/x");

  load_into(config, "top/recipe.toml", {.sets = {"data.path=here", "data.cache=\"\""}});
  data = dynamic_cast<const sample::FolderConfig*>(config.data.operator->());
  EXPECT_EQ(data->path, fs::current_path() / "here");
  EXPECT_EQ(data->cache, "");
  load_into(config, "top/recipe.toml", {.sets = {"data.path=/a/b"}});
  EXPECT_EQ(dynamic_cast<const sample::FolderConfig&>(*config.data).path, "/a/b");
}

TEST_F(RecipeLayers, AnotherPartDropsWhatTheOldOneLeftAndSaysSo) {
  write("base.toml", std::string(kGoodLayers) +
                         "[optimizer]\nname = \"sgd\"\nmomentum = 0.5\nlearning_rate = 0.3\n");
  write("recipe.toml", "extends = \"base.toml\"\n[optimizer]\nname = \"adamw\"\n");
  sample::SampleConfig config;
  ::testing::internal::CaptureStderr();
  load_into(config, "recipe.toml");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "brim: base.toml:7:1: key 'momentum' in [optimizer] is dropped: it belongs to name = "
            "\"sgd\", and recipe.toml:3:8 chose \"adamw\"\n");
  EXPECT_EQ(config.optimizer.selected(), "adamw");
  EXPECT_EQ(config.optimizer->learning_rate, 0.3);  // both parts know this key
}

TEST_F(RecipeLayers, AnotherPartDropsSectionsOfTheOldOne) {
  write("base.toml", std::string(kGoodLayers) +
                         "[optimizer]\nname = \"adamw\"\n[optimizer.limits]\n"
                         "largest = 5\n");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(errors("base.toml", {.sets = {"optimizer.name=sgd"}}), "");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "brim: base.toml:7:12: section 'limits' in [optimizer] is dropped: it belongs to name "
            "= \"adamw\", and --set optimizer.name=sgd chose \"sgd\"\n");
}

TEST_F(RecipeLayers, KeysOfTheOldPartInTheSameOrALaterLayerAreErrors) {
  write("base.toml", std::string(kGoodLayers) + "[optimizer]\nname = \"sgd\"\n");
  EXPECT_EQ(errors("base.toml", {.sets = {"optimizer.momentum=0.5", "optimizer.name=adamw"}}),
            "--set optimizer.momentum=0.5: unknown key 'momentum' in [optimizer]; it belongs to "
            "name = \"sgd\", here it is \"adamw\" (--set optimizer.name=adamw)");
  write("top.toml", "extends = \"base.toml\"\n[optimizer]\nname = \"adamw\"\n");
  write("more.toml", "[optimizer]\nmomentum = 0.5\n");
  EXPECT_EQ(errors("top.toml", {.configs = {"more.toml"}}),
            "more.toml:2:1: unknown key 'momentum' in [optimizer]; it belongs to name = \"sgd\", "
            "here it is \"adamw\" (top.toml:3:8)");
  write("typo.toml", "extends = \"base.toml\"\n[optimizer]\nmomentun = 0.5\n");
  EXPECT_EQ(errors("typo.toml", {.sets = {"optimizer.name=adamw"}}),
            "typo.toml:3:1: unknown key 'momentun' in [optimizer]; known there: betas, "
            "learning_rate, limits, name");
}

TEST_F(RecipeLayers, NamesAreFoundUnderRecipes) {
  write("recipes/digits.toml", kGoodLayers);
  write("recipes/image/resnet.toml", kGoodLayers);
  EXPECT_EQ(find_file("digits", "recipes"), "recipes/digits.toml");
  EXPECT_EQ(find_file("digits.toml", "recipes"), "recipes/digits.toml");
  EXPECT_EQ(find_file("image/resnet", "recipes"), "recipes/image/resnet.toml");
  EXPECT_EQ(find_file("recipes/digits", "recipes"), "recipes/digits.toml");
  write("digits.toml", kGoodLayers);
  EXPECT_EQ(find_file("digits", "recipes"), "digits.toml");
  EXPECT_EQ(errors("image/resnet"), "");
}

TEST_F(RecipeLayers, ConfigsAreFoundUnderConfigs) {
  write("r.toml", kGoodLayers);
  write("configs/box.toml", "[run]\nseed = 9\n");
  sample::SampleConfig config;
  load_into(config, "r.toml", {.configs = {"box"}});
  EXPECT_EQ(config.run.seed, 9);
}

TEST_F(RecipeLayers, MissingNameListsWhatThereIs) {
  write("recipes/digits.toml", kGoodLayers);
  write("recipes/resnet.toml", kGoodLayers);
  const std::string error = errors("digts.toml");
  EXPECT_THAT(error, HasSubstr("digts.toml: no such file, and none of that name in recipes/; did "
                               "you mean 'digits'? recipes/ holds: "));
  EXPECT_THAT(error, HasSubstr("digits"));
  EXPECT_THAT(error, HasSubstr("resnet"));
  EXPECT_THAT(error, Not(HasSubstr("\n")));
}

TEST_F(RecipeLayers, AFolderIsNoRecipe) {
  fs::create_directories("folder");
  EXPECT_EQ(errors("folder"), "folder: expected a regular file, found a folder");
  EXPECT_THAT(errors("/dev/null"), HasSubstr("/dev/null: expected a regular file, found a device"));
}

TEST_F(RecipeLayers, HugeAndUnreadableFilesAreRefused) {
  write("huge.toml", kGoodLayers + std::string((1 << 20), '\n'));
  EXPECT_EQ(errors("huge.toml"), "huge.toml: expected at most 1048576 bytes, found 1048619");
  write("empty.toml", "");
  EXPECT_EQ(errors("empty.toml"), "empty.toml: the file is empty: expected at least one key");
}

}  // namespace
}  // namespace brim::recipe
