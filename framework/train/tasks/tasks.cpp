#include "framework/base/error.h"
#include "framework/train/input_shape.h"
#include "framework/train/tasks/classification.h"
#include "framework/train/tasks/language_modeling.h"
#include "framework/train/tasks/task.h"

namespace brim::train {
namespace {

/// The one that fits the data.
struct AutoTask final : TaskConfig {
  void fields(recipe::Fields&) override {}
  bool takes(nn::InputKind) const override { return true; }
  std::unique_ptr<Task> build(const TaskOptions& options) const override {
    const std::string_view name =
        options.input.kind() == nn::InputKind::kTokens ? "language_modeling" : "classification";
    return recipe::registry<TaskConfig>().make(name)->build(options);
  }
};

}  // namespace

void register_tasks() {
  auto& tasks = recipe::registry<TaskConfig>();
  tasks.add<AutoTask>("auto",
                      "the task that fits the data: images are classified, tokens predicted");
  tasks.add<ClassificationConfig>("classification", "images into classes, by cross-entropy");
  tasks.add<LanguageModelingConfig>("language_modeling",
                                    "each token from those before it, by cross-entropy");
}

}  // namespace brim::train
