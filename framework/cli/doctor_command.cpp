// trainer doctor: is this machine, and what is installed on it, fit to train? With a run's folder:
// doctor_run.cpp.

#include <fmt/format.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/stop.h"
#include "framework/cli/commands.h"
#include "framework/cli/options.h"
#include "framework/device/cuda_loader.h"
#include "framework/doctor/environment/environment.h"
#include "framework/doctor/self_test.h"

namespace brim::cli {
namespace {

namespace environment = doctor::environment;

int environment_command(bool as_json) {
  const device::CudaLoad& cuda = device::cuda();
  environment::Software software;
  software.libtorch = TORCH_VERSION;
  software.why_no_cuda = cuda.why_not;
  if (cuda.backend != nullptr) software.cuda_runtime = cuda.backend->libraries().at("cuda");
  auto results = environment::examine(environment::look_around(std::move(software)));
  std::ranges::move(doctor::self_test(), std::back_inserter(results));
  if (stop_requested()) throw Error(Exit::kStopped, "stopped during the self-test");
  if (as_json) {
    fmt::print("{}\n", environment::to_json(results).dump(
                           -1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("{}", environment::describe(results));
  }
  return environment::exit_status(results);
}

}  // namespace

int doctor_command(int argc, char** argv) {
  // No option here takes a value, so that any other word is a run's folder.
  const std::span<char*> words(argv + 1, static_cast<size_t>(argc - 1));
  if (std::ranges::any_of(words, [](const char* word) { return word[0] != '-'; })) {
    return doctor_run(argc, argv);
  }
  cxxopts::Options options(
      "trainer doctor",
      "Checks drivers, libraries, GPUs, limits and the machine's settings, and trains ten steps of "
      "a tiny network on each device; with the folder of a run (trainer doctor RUN --help), what "
      "slows that run down.");
  options.add_options()("json", "print JSON")("h,help", "show this help");
  const auto parsed = parse_options(options, argc, argv);
  if (parsed.count("help") != 0) {
    fmt::print("{}\n", options.help());
    return 0;
  }
  return environment_command(parsed.count("json") != 0);
}

}  // namespace brim::cli
