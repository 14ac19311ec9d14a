// What a recipe can name, whole: for the program, and for tests that train without it.
#pragma once

#include "framework/data/sampler.h"
#include "framework/data/source.h"
#include "framework/optim/optimizer.h"
#include "framework/optim/schedule.h"
#include "framework/train/tasks/task.h"
#include "models/register.h"

namespace brim::cli {

/// Registers every model, data source, sampler, optimizer, schedule and task. Call once.
inline void register_all_components() {
  models::register_all();
  data::register_sources();
  data::register_samplers();
  optim::register_optimizers();
  optim::register_schedules();
  train::register_tasks();
}

}  // namespace brim::cli
