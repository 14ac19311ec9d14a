// The half of `trainer predict` that continues text; the other one is in predict_command.cpp.
#pragma once

#include <string>
#include <vector>

#include "framework/cli/options.h"
#include "framework/train/inference/trained_model.h"

namespace brim::cli {

/// Prints how each prompt or file continues. Warns of bad files and returns their names.
std::vector<std::string> continue_texts(train::TrainedModel& trained,
                                        const std::vector<std::string>& files,
                                        const cxxopts::ParseResult& options, int64_t batch);

}  // namespace brim::cli
