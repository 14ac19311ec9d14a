// What the Python tests run:
//   telemetry_tool events DIR FIRST LAST     scalars and text for steps FIRST…LAST
//   telemetry_tool cut_events DIR STEP
//   telemetry_tool histogram DIR             one of six values, at step 7
//   telemetry_tool recipe DIR FILE           the recipe FILE in the events of a run that has ended
//   telemetry_tool metrics FILE STEPS        lines until the disk is full or all are written
//   telemetry_tool progress STEPS STEP_MS    a run's progress, as a person sees it
//   telemetry_tool prometheus TARGET         shows the lines of stdin, and says "taken" to each
#include <fmt/format.h>

#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/telemetry/metrics_file.h"
#include "framework/telemetry/progress.h"
#include "framework/telemetry/prometheus/prometheus.h"
#include "framework/telemetry/tensorboard/event_file.h"
#include "framework/telemetry/tensorboard/recipe_events.h"

namespace {

using namespace brim;

void events(const std::string& folder, int64_t first, int64_t last) {
  telemetry::EventFile file(folder);
  file.add_text("notes", first, "# Größe\n\n`lr = 0.1`", 1000.0 + static_cast<double>(first));
  for (int64_t step = first; step <= last; ++step) {
    const auto at = static_cast<double>(step);
    file.add_scalar("train/loss", step, 1.0 / at, 1000.0 + at);
    file.add_scalar("train/learning_rate", step, 1e-5 * at, 1000.0 + at);
  }
}

void recipe_events(const std::string& folder, const std::string& recipe) {
  telemetry::EventFile file(folder);
  telemetry::add_recipe(file, 0, read_file(recipe, Exit::kRecipe, 1 << 20));
  file.add_scalar("eval/top1", 10, 97.5);
  telemetry::add_recipe_end(file, 10);
}

void histogram(const std::string& folder) {
  telemetry::EventFile file(folder);
  file.add_histogram("gradients/fc.weight", 7,
                     {.minimum = -2.0,
                      .maximum = 3.0,
                      .count = 6,
                      .sum = 1.5,
                      .sum_of_squares = 20.25,
                      .limits = {-1.0, 0.0, 2.0, 4.0},
                      .counts = {1, 2, 2, 1}});
}

void metrics(const std::string& path, int64_t steps) {
  telemetry::MetricsFile file(path);
  for (int64_t step = 1; step <= steps; ++step) {
    file.append({{"step", step}, {"loss", 1.0 / static_cast<double>(step)}});
  }
  file.close();
}

void progress(int64_t steps, int64_t step_ms) {
  telemetry::Progress line;
  for (int64_t step = 1; step <= steps; ++step) {
    std::this_thread::sleep_for(std::chrono::milliseconds(step_ms));
    const double step_s = static_cast<double>(step_ms) * 1e-3;
    line.update({.epoch = 1,
                 .epochs = 1,
                 .step = step,
                 .steps = steps,
                 .step_s = step_s,
                 .samples_per_s = 32.0 / step_s,
                 .loss = 0.5,
                 .learning_rate = 0.1});
    if (step == steps / 2) line.note("evaluation: top-1 97.2 %");
  }
}

void prometheus(const std::string& target) {
  telemetry::Prometheus metrics(*telemetry::read_prometheus_target(target),
                                {{"run", "a \"quoted\" \\ name\nof two lines"}}, "runs/x");
  for (std::string line; std::getline(std::cin, line);) {
    metrics.take(nlohmann::json::parse(line));
    std::cout << "taken" << std::endl;
  }
}

int body(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 4 && args[0] == "events") {
    events(args[1], std::stoll(args[2]), std::stoll(args[3]));
  } else if (args.size() == 3 && args[0] == "cut_events") {
    telemetry::cut_back_events(args[1], std::stoll(args[2]));
  } else if (args.size() == 3 && args[0] == "metrics") {
    metrics(args[1], std::stoll(args[2]));
  } else if (args.size() == 3 && args[0] == "progress") {
    progress(std::stoll(args[1]), std::stoll(args[2]));
  } else if (args.size() == 3 && args[0] == "recipe") {
    recipe_events(args[1], args[2]);
  } else if (args.size() == 2 && args[0] == "histogram") {
    histogram(args[1]);
  } else if (args.size() == 2 && args[0] == "prometheus") {
    prometheus(args[1]);
  } else {
    throw Error(Exit::kRecipe, "usage: see the top of {}", __FILE__);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return brim::run_program(body, argc, argv); }
