// trainer doctor: is this machine, and what is installed on it, fit to train? With a run's folder:
// doctor_run.cpp.

#include <fmt/format.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/base/stop.h"
#include "framework/cli/commands.h"
#include "framework/cli/doctor_fix.h"
#include "framework/cli/doctor_run.h"
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
    fmt::print("{}", json_line(environment::to_json(results)));
  } else {
    fmt::print("{}", environment::describe(results));
  }
  return environment::exit_status(results);
}

int diagnose(const cxxopts::ParseResult& parsed, std::span<char* const> /*argv*/) {
  if (parsed.count("run") != 0) return doctor_run(parsed);
  for (const char* name : {"watch", "prove", "fix", "apply", "repeats", "steps"}) {
    if (parsed.count(name) != 0) throw UsageError("--{}: expected a run's folder too", name);
  }
  return environment_command(parsed.count("json") != 0);
}

}  // namespace

Command doctor_command() {
  return {.name = "doctor",
          .arguments = "[RUN]",
          .summary = "what slows a run down; is this machine fit?",
          .details =
              "With a run: what slows it down, and which line of its recipe to change. Without: "
              "checks drivers, libraries, GPUs, limits and the machine's settings, and trains "
              "ten steps of a tiny network on each device.",
          .add_options =
              [](cxxopts::Options& options) {
                options.add_options()("run", "the run's folder", cxxopts::value<std::string>(),
                                      "RUN")(
                    "watch", "diagnose again every two seconds while the run continues")(
                    "prove",
                    "take some steps of the run's recipe on preloaded samples, and say what data "
                    "costs the run; writes nothing");
                add_fix_options(options);
                add_trust_option(options);
                add_json_option(
                    options, "print JSON; with --watch an object a line, whenever it has changed");
              },
          .positional = {"run"},
          .examples = {{"trainer doctor", "is this machine fit to train?"},
                       {"trainer doctor runs/digits", "what slowed this run down"},
                       {"trainer doctor runs/digits --prove",
                        "the same, with preloaded samples beside "
                        "it"},
                       {"trainer doctor runs/digits --fix", "the proposals tried, one by one"}},
          .run = diagnose};
}

}  // namespace brim::cli
