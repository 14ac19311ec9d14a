// For tests that train: every model, data source, optimizer and so on that a recipe can name.
#pragma once

#include "framework/data/sampler.h"
#include "framework/data/source.h"
#include "framework/optim/optimizer.h"
#include "framework/optim/schedule.h"
#include "framework/train/tasks/task.h"
#include "models/register.h"

namespace brim::testing {

/// Once in a process.
inline void register_all_parts() {
  models::register_all();
  data::register_sources();
  data::register_samplers();
  optim::register_optimizers();
  optim::register_schedules();
  train::register_tasks();
}

}  // namespace brim::testing
