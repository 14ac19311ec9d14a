#include "framework/sweep/config.h"

#include <array>
#include <string_view>
#include <utility>

#include "framework/recipe/read.h"

namespace brim::sweep {
namespace {

/// The section as a document of its own.
struct Root final : recipe::Config {
  SweepConfig sweep;
  void fields(recipe::Fields& f) override { f.section("sweep", sweep, "what the trials vary"); }
};

}  // namespace

void SweepConfig::fields(recipe::Fields& f) {
  using recipe::at_least;
  using recipe::between;
  f.value("vary", vary,
          "keys and their values: \"model.name=resnet18,resnet34\", "
          "\"optimizer.learning_rate=1e-3..1e-1:log\"");
  static constexpr std::array<std::string_view, 4> kWords = {"grid", "random", "sobol", "auto"};
  size_t word = search ? static_cast<size_t>(*search) : kWords.size() - 1;
  f.choice("search", word, kWords,
           "how settings are chosen; auto: a grid where every key has a list and trials is auto, "
           "else random");
  search = word + 1 == kWords.size() ? std::nullopt : std::optional(static_cast<Search>(word));
  f.auto_or("trials", trials, "how many trials; auto: all combinations of a grid, else 32",
            between(1, 10000));
  f.value("seed", seed, "of the search", at_least(0));
  f.value("asha", asha, "stop trials early that are not among the best, by ASHA");
  f.auto_or("min_epochs", min_epochs,
            "epochs that every trial gets with asha; auto: to its first evaluation", at_least(1));
  f.value("reduction", reduction, "with asha, one of so many trials continues after each rung",
          between(2, 100));
  f.value("per_device", per_device, "trials at the same time on one device", between(1, 256));
  f.auto_or("devices_per_trial", devices_per_trial,
            "devices of one trial, which then trains data-parallel", between(1, 256));
  f.value("keep_free", keep_free, "idle GPUs to leave to others", at_least(0));
}

SweepConfig take_sweep(recipe::Value& document) {
  Root root;
  auto* table = std::get_if<recipe::Table>(&document.data);
  if (table == nullptr) return root.sweep;
  auto section = table->entries.extract("sweep");
  if (section.empty()) return root.sweep;
  recipe::Value own = document;
  recipe::Table only;
  only.entries.insert(std::move(section));
  own.data = std::move(only);
  recipe::read(own, root);
  return root.sweep;
}

}  // namespace brim::sweep
