// Any bytes as a recipe: parsed, read, printed and read again. Only brim::Error may come out, and
// what is printed must read back to the same text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "framework/base/error.h"
#include "tests/recipe/sample.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace brim::recipe;  // one function
  sample::register_components();
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::string printed;
  try {
    sample::SampleConfig config;
    read(parse(text, "fuzz.toml"), config);
    printed = print(config);
  } catch (const brim::Error&) {
    return 0;
  }
  sample::SampleConfig again;
  read(parse(printed, "printed.toml"), again);
  if (print(again) != printed) std::abort();
  return 0;
}
