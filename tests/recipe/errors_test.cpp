// What a user reads when a recipe is wrong: the exact lines, all of them at once.
#include <gmock/gmock.h>

#include "framework/base/error.h"
#include "tests/recipe/sample.h"

namespace brim::recipe {
namespace {

constexpr const char* kGood = "[run]\nname = \"a\"\n[data]\nkind = \"synthetic\"\n";

/// The text of the Error that reading `text` as recipe "r.toml" ends with; "" where it is fine.
std::string errors(const std::string& text) {
  sample::register_components();
  sample::SampleConfig config;
  try {
    read(parse(text, "r.toml"), config);
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Exit::kRecipe);
    return error.what();
  }
  return "";
}

/// The same with the required keys in the four lines before.
std::string errors_after_good(const std::string& text) { return errors(kGood + text); }

TEST(RecipeErrors, GoodRecipeHasNone) { EXPECT_EQ(errors(kGood), ""); }

TEST(RecipeErrors, UnknownKeyWithNearestName) {
  EXPECT_EQ(errors_after_good("[optimizer]\nlearning_rte = 0.1\n"),
            "r.toml:6:1: unknown key 'learning_rte' in [optimizer]; did you mean "
            "'learning_rate'?");
}

TEST(RecipeErrors, UnknownKeyWithNothingNear) {
  EXPECT_EQ(errors_after_good("[batch]\n  zzzzzzzz = 1\n"),
            "r.toml:6:3: unknown key 'zzzzzzzz' in [batch]; known there: micro");
}

TEST(RecipeErrors, UnknownSection) {
  EXPECT_EQ(errors_after_good("[optimzer]\nname = \"sgd\"\n"),
            "r.toml:5:2: unknown section 'optimzer' at the top level; did you mean 'optimizer'?");
  EXPECT_EQ(errors_after_good("[data.trian]\nlimit = 1\n"),
            "r.toml:5:7: unknown section 'trian' in [data]; did you mean 'train'?");
}

TEST(RecipeErrors, WrongTypes) {
  EXPECT_EQ(errors_after_good("[optimizer]\nlearning_rate = \"x\"\nnesterov = 1\n"
                              "[batch]\nmicro = 1.5\n[precision]\nmode = 3\n"),
            "r.toml:6:17: 'learning_rate' in [optimizer]: expected a number, found the string "
            "\"x\"\n"
            "r.toml:7:12: 'nesterov' in [optimizer]: expected true or false, found the integer 1\n"
            "r.toml:9:9: 'micro' in [batch]: expected an integer or \"auto\", found the number "
            "1.5\n"
            "r.toml:11:8: 'mode' in [precision]: expected one of \"auto\", \"bf16\", \"fp32\", "
            "found the integer 3");
}

TEST(RecipeErrors, WrongTypesOfTextsListsAndSections) {
  EXPECT_EQ(errors("verbose = {}\noptimizer = [1]\n[run]\nname = 3\nseed = 1.0\n"
                   "tags = \"x\"\ndevices = [0, 64, \"a\"]\n[data]\nkind = \"folder\"\npath = 1\n"),
            "r.toml:1:11: 'verbose' at the top level: expected true or false, found a table\n"
            "r.toml:2:13: 'optimizer' at the top level: expected a section [optimizer], found an "
            "array\n"
            "r.toml:4:8: 'name' in [run]: expected a string, found the integer 3\n"
            "r.toml:5:8: 'seed' in [run]: expected an integer, found the number 1.0\n"
            "r.toml:6:8: 'tags' in [run]: expected a list of strings, found the string \"x\"\n"
            "r.toml:7:15: 'devices' in [run]: expected an integer from 0 to 63, found the integer "
            "64\n"
            "r.toml:7:19: 'devices' in [run]: expected an integer, found the string \"a\"\n"
            "r.toml:10:8: 'path' in [data]: expected a path, as a string, found the integer 1");
}

TEST(RecipeErrors, IntegerIsANumberToo) {
  sample::register_components();
  sample::SampleConfig config;
  read(parse(std::string(kGood) + "[optimizer]\nlearning_rate = 1\n", "r.toml"), config);
  EXPECT_EQ(config.optimizer->learning_rate, 1.0);
}

TEST(RecipeErrors, OutOfRange) {
  EXPECT_EQ(errors_after_good("[optimizer]\nlearning_rate = 0\nmomentum = 1.0\n"
                              "[batch]\nmicro = 0\n"),
            "r.toml:6:17: 'learning_rate' in [optimizer]: expected a number above 0, found the "
            "integer 0\n"
            "r.toml:7:12: 'momentum' in [optimizer]: expected a number at least 0 and below 1, "
            "found the number 1.0\n"
            "r.toml:9:9: 'micro' in [batch]: expected an integer at least 1, found the integer 0");
}

TEST(RecipeErrors, NotANumberAndInfinity) {
  EXPECT_EQ(errors_after_good("[optimizer]\nlearning_rate = nan\nmomentum = -inf\n"),
            "r.toml:6:17: 'learning_rate' in [optimizer]: expected a finite number above 0, found "
            "the number nan\n"
            "r.toml:7:12: 'momentum' in [optimizer]: expected a finite number at least 0 and below "
            "1, found the number -inf");
}

TEST(RecipeErrors, UnknownWord) {
  EXPECT_EQ(errors_after_good("[precision]\nmode = \"bf61\"\n"),
            "r.toml:6:8: 'mode' in [precision]: expected one of \"auto\", \"bf16\", \"fp32\", "
            "found the string \"bf61\"; did you mean \"bf16\"?");
}

TEST(RecipeErrors, UnknownPartDoesNotBlameItsKeys) {
  EXPECT_EQ(errors_after_good("[optimizer]\nname = \"sdg\"\nmomentum = 0.5\n"),
            "r.toml:6:8: 'name' in [optimizer]: expected one of \"adamw\", \"sgd\", found the "
            "string \"sdg\"; did you mean \"sgd\"?");
}

TEST(RecipeErrors, KeyOfAnotherPart) {
  EXPECT_EQ(errors_after_good("[optimizer]\nname = \"adamw\"\nmomentum = 0.5\n"),
            "r.toml:7:1: unknown key 'momentum' in [optimizer]; it belongs to name = \"sgd\", here "
            "it is \"adamw\" (r.toml:6:8)");
  EXPECT_EQ(errors_after_good("[optimizer]\nbetas = [0.9, 0.99]\n[optimizer.limits]\n"),
            "r.toml:6:1: unknown key 'betas' in [optimizer]; it belongs to name = \"adamw\", here "
            "it is \"sgd\" (the default)\n"
            "r.toml:7:12: unknown section 'limits' in [optimizer]; it belongs to name = \"adamw\", "
            "here it is \"sgd\" (the default)");
}

TEST(RecipeErrors, MissingRequiredKeys) {
  EXPECT_EQ(errors("[run]\nseed = 1\n[data]\nkind = \"folder\"\n"),
            "r.toml:1:1: missing key 'name' in [run] (name of the run)\n"
            "r.toml:3:1: missing key 'path' in [data] (folder with one folder a class)");
  EXPECT_EQ(errors("verbose = true\n"),
            "r.toml: missing key 'name' in [run] (name of the run)\n"
            "r.toml: missing key 'kind' in [data] (where samples come from)");
  EXPECT_EQ(errors("data = 3\nrun = 4\n"),
            "r.toml:1:8: 'data' at the top level: expected a section [data], found the integer 3\n"
            "r.toml:2:7: 'run' at the top level: expected a section [run], found the integer 4");
  EXPECT_EQ(errors("[run]\nname = \"\"\n[data]\nkind = \"folder\"\npath = \"\"\n"),
            "r.toml:2:8: 'name' in [run]: expected a text, found the string \"\"\n"
            "r.toml:5:8: 'path' in [data]: expected a text, found the string \"\"");
}

TEST(RecipeErrors, DuplicateKeysAndSections) {
  EXPECT_EQ(errors("[run]\nname = \"a\"\n  name = \"b\"\n"), "r.toml:3:3: duplicate key 'name'");
  EXPECT_EQ(errors("[run]\nname = \"a\"\n[run]\nseed = 1\n"),
            "r.toml:3:1: duplicate section 'run'");
}

TEST(RecipeErrors, Syntax) {
  EXPECT_EQ(errors("[run]\nname = \n"),
            "r.toml:2:8: syntax error while parsing key-value pair: expected value, saw '\\n'");
  EXPECT_EQ(errors("[\nname = 1\n"),
            "r.toml:1:2: syntax error while parsing key: expected bare key starting character or "
            "string delimiter, saw '\\n'");
  EXPECT_EQ(errors("[run\nname = 1\n"),
            "r.toml:1:5: syntax error while parsing table header: expected ']', saw '\\n'");
}

TEST(RecipeErrors, NotUtf8) {
  EXPECT_EQ(errors("[run]\nname = \"\xff\xfe\"\n"),
            "r.toml:2:8: expected UTF-8 text, found other bytes");
}

TEST(RecipeErrors, LettersOfOtherScripts) {
  EXPECT_EQ(errors("[run]\nname = \"\uFE7F\"\n[data]\nkind = \"synthetic\" # \uFE7F\n"), "");
  EXPECT_EQ(errors("\uFE7Fverbose = true\n"),
            "r.toml:1:1: syntax error while parsing root table: expected keys, tables, whitespace "
            "or comments, saw '\uFE7F'");
}

TEST(RecipeErrors, Dates) {
  EXPECT_EQ(errors("[run]\nname = 2024-05-01\n"),
            "r.toml:2:8: no key takes a date or time; write text in quotes");
}

TEST(RecipeErrors, Empty) {
  EXPECT_EQ(errors(""), "r.toml: the file is empty: expected at least one key");
  EXPECT_EQ(errors("# only a comment\n"), "r.toml: the file is empty: expected at least one key");
}

std::string repeat(const std::string& text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

TEST(RecipeErrors, NestedTooDeep) {
  constexpr int kDeep = 10000;
  const std::string message = "nested too deep: a recipe needs no more than a few levels";
  EXPECT_EQ(errors("a = " + repeat("[", kDeep)), "r.toml:1:37: " + message);
  EXPECT_EQ(errors("a = " + repeat("[", kDeep) + repeat("]", kDeep)), "r.toml:1:37: " + message);
  EXPECT_EQ(errors("\na = " + repeat("{a=", kDeep) + "1" + repeat("}", kDeep)),
            "r.toml:2:101: " + message);
  EXPECT_EQ(errors("a" + repeat(".a", kDeep) + " = 1"), "r.toml:1:66: " + message);
  EXPECT_EQ(errors("[a" + repeat(".a", kDeep) + "]"), "r.toml:1:67: " + message);
  EXPECT_EQ(errors("a" + repeat(".'a'", kDeep) + " = 1"), "r.toml:1:130: " + message);
  EXPECT_EQ(errors("a" + repeat(" . a", kDeep) + " = 1"), "r.toml:1:131: " + message);
}

TEST(RecipeErrors, DotsAndBracketsInTextAreNoNesting) {
  const std::string dots = repeat(".[{", 100);
  const std::string text = "[run]\nname = \"" + dots + "\\\"" + dots + "\" # " + dots +
                           "\ntags = ['" + dots + "', \"\"\"\n" + dots + "\"\"" + dots +
                           "\"\"\"\"\", '''" + dots + "\n''''']\n" +
                           "[optimizer]\nname = \"adamw\"\nbetas = [" + repeat("0.5, ", 100) +
                           "]\n[data]\nkind = \"synthetic\"\n";
  EXPECT_EQ(errors(text), "");
}

}  // namespace
}  // namespace brim::recipe
