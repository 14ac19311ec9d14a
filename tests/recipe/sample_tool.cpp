// The sample recipe as a program, for tests from outside:
//   recipe_sample schema           prints the JSON Schema
//   recipe_sample check FILE...    reads the first as recipe, the others as --config
#include <fmt/format.h>

#include <cstdio>
#include <string_view>

#include "framework/base/error.h"
#include "tests/recipe/sample.h"

namespace {

int body(int argc, char** argv) {
  using namespace brim::recipe;  // a test tool of a few lines
  sample::register_components();
  sample::SampleConfig config;
  if (argc == 2 && std::string_view(argv[1]) == "schema") {
    fmt::print("{}", json_schema(config));
    return 0;
  }
  if (argc < 3) throw brim::Error(brim::Exit::kRecipe, "usage: recipe_sample schema|check FILE...");
  LayerOptions options;
  for (int i = 3; i < argc; ++i) options.configs.push_back(argv[i]);
  read(load(argv[2], options), config);
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return brim::run_program(body, argc, argv); }
