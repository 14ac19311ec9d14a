// safetensors from the command line, for test_safetensors.py.
//   safetensors_tool copy IN OUT [IN OUT]…   loads tensors and saves them again
//   safetensors_tool check FILE…             a line each: "ok", or our complaint
//   safetensors_tool malformed FOLDER        writes malformed_files(); a line each:
//                                            NAME, "refused" or "accepted" by Python
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "framework/checkpoint/tensors.h"
#include "tests/checkpoint/malformed.h"

namespace {

using namespace brim;
using namespace brim::checkpoint;

void copy(const std::vector<std::string>& paths) {
  for (size_t i = 0; i + 1 < paths.size(); i += 2) {
    save_tensors(paths[i + 1], load_tensors(paths[i]), SafetensorsFile(paths[i]).metadata());
  }
}

void check(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    try {
      const SafetensorsFile file(path);
      std::puts("ok");
    } catch (const Error& error) {
      std::puts(error.what());
    }
  }
}

void write_malformed(const std::filesystem::path& folder) {
  for (const MalformedFile& file : malformed_files()) {
    write_file(folder / file.name, file.image);
    fmt::print("{} {}\n", file.name, file.python_refuses ? "refused" : "accepted");
  }
}

int run(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 2) throw Error(Exit::kRecipe, "usage: see safetensors_tool.cpp");
  const std::vector<std::string> paths(arguments.begin() + 1, arguments.end());
  if (arguments[0] == "copy") {
    copy(paths);
  } else if (arguments[0] == "check") {
    check(paths);
  } else if (arguments[0] == "malformed") {
    write_malformed(paths[0]);
  } else {
    throw Error(Exit::kRecipe, "unknown command '{}'", arguments[0]);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return run_program(run, argc, argv); }
