// What trainer eval says of single classes.
#pragma once

#include <string>
#include <vector>

#include "framework/train/tasks/task.h"

namespace brim::cli {

/// A table of the classes with the lowest accuracy and what their samples were taken for; "" where
/// every sample is correct or the task has no classes. `names` has one for
/// each.
std::string hardest_classes(const std::vector<train::ClassResult>& results,
                            const std::vector<std::string>& names);

}  // namespace brim::cli
