// A run's recipe in its event file: as text, and as hyperparameters by which TensorBoard compares
// runs. Messages: tensorboard/plugins/hparams/plugin_data.proto.
#pragma once

#include <cstdint>
#include <string>

#include "framework/telemetry/tensorboard/event_file.h"

namespace brim::telemetry {

/// The text "recipe", and every number, word and truth value of it as a hyperparameter named by its
/// keys ("optimizer.learning_rate"). A recipe that can't be read is there as text alone.
void add_recipe(EventFile& events, int64_t step, const std::string& recipe);

/// The run has come to its end.
void add_recipe_end(EventFile& events, int64_t step);

}  // namespace brim::telemetry
