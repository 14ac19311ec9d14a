// The printed recipe, the reference page and the JSON Schema.
#include <gmock/gmock.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "tests/recipe/sample.h"

namespace brim::recipe {
namespace {

using ::testing::HasSubstr;

std::string print_again(const std::string& text) {
  sample::SampleConfig config;
  read(parse(text, "printed"), config);
  return print(config);
}

TEST(PrintedRecipe, HoldsEveryKey) {
  sample::register_components();
  sample::SampleConfig config;
  read(parse("[run]\nname = \"a\"\n[data]\nkind = \"folder\"\npath = \"/p/../x\"\n"
             "[optimizer]\nname = \"adamw\"\nlearning_rate = 1\n",
             "r"),
       config);
  const std::string text = print(config);
  EXPECT_EQ(text,
            "verbose = false\n"
            "\n"
            "[run]\n"
            "name = \"a\"\n"
            "seed = 0\n"
            "tags = []\n"
            "devices = []\n"
            "\n"
            "[batch]\n"
            "micro = \"auto\"\n"
            "\n"
            "[precision]\n"
            "mode = \"auto\"\n"
            "\n"
            "[optimizer]\n"
            "name = \"adamw\"\n"
            "learning_rate = 1.0\n"
            "betas = [0.9, 0.999]\n"
            "\n"
            "[optimizer.limits]\n"
            "largest = 10.0\n"
            "\n"
            "[data]\n"
            "kind = \"folder\"\n"
            "path = \"/x\"\n"
            "cache = \"\"\n"
            "\n"
            "[data.train]\n"
            "limit = 0\n");
  EXPECT_EQ(print_again(text), text);
}

TEST(PrintedRecipe, ReadsBackExactly) {
  sample::register_components();
  sample::SampleConfig config;
  config.verbose = true;
  config.run.name = "tab\t, quote\", backslash\\, line\nend\r, bell\a, delete\x7f, zero" +
                    std::string(1, '\0') + ", µ";
  config.run.seed = std::numeric_limits<int64_t>::min();
  config.run.tags = {"", "a,b", "#"};
  config.run.devices = {0, 63};
  config.batch.micro = 7;
  config.precision.mode = sample::Mode::kFp32;
  config.data.select("folder");
  dynamic_cast<sample::FolderConfig*>(config.data.component())->path = "relative/µ\"\\";
  for (const double number :
       {0.1, 1.0 / 3.0, 5e-324, 1.7976931348623157e308, 123456789012345678.0, 1e22, 1e-7}) {
    config.optimizer.select("sgd");
    config.optimizer->learning_rate = number;
    const std::string text = print(config);
    sample::SampleConfig again;
    read(parse(text, "printed"), again);
    EXPECT_EQ(again.optimizer->learning_rate, number);
    EXPECT_EQ(again.run.name, config.run.name);
    EXPECT_EQ(again.run.seed, config.run.seed);
    EXPECT_EQ(again.run.tags, config.run.tags);
    EXPECT_EQ(again.batch.micro, config.batch.micro);
    EXPECT_EQ(again.precision.mode, config.precision.mode);
    EXPECT_EQ(dynamic_cast<const sample::FolderConfig&>(*again.data).path,
              std::filesystem::current_path() / "relative/µ\"\\");
    EXPECT_EQ(print(again), text);
  }
}

TEST(ReferencePage, HasATableForEachSectionAndPart) {
  sample::register_components();
  sample::SampleConfig config;
  const std::string page = reference_page(config);
  EXPECT_THAT(page, HasSubstr("\n## Top level\n\n| key | type | default | range | meaning |\n"
                              "|---|---|---|---|---|\n"
                              "| `verbose` | boolean | `false` |  | say more |\n"));
  EXPECT_THAT(page, HasSubstr("\n## [run]\n\nThe run itself.\n"));
  EXPECT_THAT(page, HasSubstr("\n| `name` | string | required |  | name of the run |\n"));
  EXPECT_THAT(page, HasSubstr("\n| `devices` | list of integers | `[]` | from 0 to 63 |"));
  EXPECT_THAT(page, HasSubstr("\n| `micro` | integer or `\"auto\"` | `\"auto\"` | at least 1 |"));
  EXPECT_THAT(page, HasSubstr("\n| `mode` | \"auto\", \"bf16\", \"fp32\" | `\"auto\"` |"));
  EXPECT_THAT(page, HasSubstr("\n| `name` | \"adamw\", \"sgd\" | `\"sgd\"` |  | the optimizer |"));
  EXPECT_THAT(page, HasSubstr("\n### [optimizer] with name = \"sgd\"\n\n"
                              "Stochastic gradient descent.\n"));
  EXPECT_THAT(page, HasSubstr("| at least 0 and below 1 | share of the last step"));
  EXPECT_THAT(page, HasSubstr("| look ahead \\| Nesterov's form |"));
  EXPECT_THAT(page, HasSubstr("\n### [optimizer.limits] with name = \"adamw\"\n"));
  EXPECT_THAT(page, HasSubstr("\n| `kind` | \"folder\", \"synthetic\" | required |"));
  EXPECT_THAT(page, HasSubstr("\n## [data.train]\n"));
  EXPECT_LT(page.find("## [run]"), page.find("## [batch]"));
}

TEST(JsonSchema, SaysWhatTheReaderChecks) {
  sample::register_components();
  sample::SampleConfig config;
  const auto schema = nlohmann::json::parse(json_schema(config));
  EXPECT_EQ(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
  EXPECT_EQ(schema["additionalProperties"], false);
  const auto& sections = schema["properties"];
  EXPECT_EQ(sections["extends"]["anyOf"][1]["type"], "string");
  EXPECT_EQ(sections["run"]["additionalProperties"], false);
  EXPECT_EQ(sections["run"]["description"], "the run itself");
  EXPECT_EQ(sections["run"]["properties"]["devices"]["items"],
            nlohmann::json::parse(R"({"type": "integer", "minimum": 0, "maximum": 63})"));
  EXPECT_EQ(sections["precision"]["properties"]["mode"]["enum"],
            nlohmann::json::parse(R"(["auto", "bf16", "fp32"])"));
  const auto& optimizer = sections["optimizer"];
  EXPECT_EQ(optimizer["properties"]["name"]["enum"], nlohmann::json::parse(R"(["adamw", "sgd"])"));
  EXPECT_EQ(optimizer["properties"]["name"]["default"], "sgd");
  EXPECT_TRUE(optimizer["properties"].contains("betas"));
  const auto& branch = optimizer["allOf"][1];
  EXPECT_EQ(branch["if"]["properties"]["name"]["const"], "sgd");
  EXPECT_EQ(branch["then"]["properties"]["betas"], false);
  EXPECT_EQ(branch["then"]["properties"]["momentum"]["exclusiveMaximum"], 1.0);
  const auto& needs = schema["then"];
  EXPECT_EQ(needs["required"], nlohmann::json::parse(R"(["run", "data"])"));
  EXPECT_EQ(needs["properties"]["run"]["required"], nlohmann::json::parse(R"(["name"])"));
}

}  // namespace
}  // namespace brim::recipe
