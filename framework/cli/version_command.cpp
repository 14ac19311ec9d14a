// trainer version: what this build is made of.

#include <fmt/format.h>
#include <torch/headeronly/version.h>

#include <nlohmann/json.hpp>

#include "framework/base/version.h"
#include "framework/cli/commands.h"
#include "framework/cli/options.h"
#include "framework/device/cuda_loader.h"

namespace brim::cli {

namespace {

int print_version(const cxxopts::ParseResult& parsed, std::span<char* const> /*argv*/) {
  const device::CudaLoad& cuda = device::cuda();
  const nlohmann::json versions = {
      {"brim", brim_version()},
      {"commit", brim_commit()},
      {"libtorch", TORCH_VERSION},
      {"cuda", cuda.backend != nullptr ? "loaded" : "not loaded: " + cuda.why_not}};
  if (parsed.count("json") != 0) {
    fmt::print("{}\n", versions.dump());
    return 0;
  }
  for (const auto& [name, value] : versions.items()) {
    fmt::print("{:<9} {}\n", name, value.get<std::string>());
  }
  return 0;
}

}  // namespace

Command version_command() {
  return {.name = "version",
          .arguments = "",
          .summary = "versions of Brim and its libraries",
          .details = "Prints the versions of Brim and of what it runs on; as trainer --version.",
          .add_options = [](cxxopts::Options& options) { add_json_option(options); },
          .positional = {},
          .examples = {{"trainer --version", "the same"}},
          .run = print_version};
}

}  // namespace brim::cli
