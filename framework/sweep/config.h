// The [sweep] section, which a file for trainer sweep may have beside those of a recipe; options of
// the command override it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/recipe/document.h"
#include "framework/recipe/fields.h"
#include "framework/sweep/plan.h"

namespace brim::sweep {

struct SweepConfig {
  std::vector<std::string> vary;
  std::optional<Search> search;   // nullopt: a grid where all keys have lists and trials is auto
  std::optional<int64_t> trials;  // nullopt: all of a grid
  int64_t seed = 0;
  bool asha = false;
  std::optional<int64_t> min_epochs;  // nullopt: to the first evaluation
  int64_t reduction = 3;
  int64_t per_device = 1;
  std::optional<int64_t> devices_per_trial;  // nullopt: one, or the recipe's ranks on the CPU
  int64_t keep_free = 0;
  void fields(recipe::Fields& f);
};

/// Takes [sweep] out of a document: what is left is a recipe. Throws Error(kRecipe) with every
/// problem of the section.
SweepConfig take_sweep(recipe::Value& document);

}  // namespace brim::sweep
