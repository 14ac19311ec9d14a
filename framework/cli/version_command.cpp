// trainer version: what this build is made of.

#include <fmt/format.h>
#include <torch/headeronly/version.h>

#include <nlohmann/json.hpp>

#include "framework/cli/commands.h"
#include "framework/cli/options.h"
#include "framework/device/cuda_loader.h"
#include "framework/telemetry/run_record.h"

namespace brim::cli {

int version_command(int argc, char** argv) {
  cxxopts::Options options("trainer version", "Versions of Brim and of what it runs on.");
  options.add_options()("json", "print JSON")("h,help", "show this help");
  const auto parsed = parse_options(options, argc, argv);
  if (parsed.count("help") != 0) {
    fmt::print("{}\n", options.help());
    return 0;
  }
  const device::CudaLoad& cuda = device::cuda();
  const nlohmann::json versions = {
      {"brim", telemetry::brim_version()},
      {"commit", telemetry::brim_commit()},
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

}  // namespace brim::cli
