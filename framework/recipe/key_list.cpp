#include "framework/recipe/key_list.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "framework/recipe/registry.h"

namespace brim::recipe {
namespace {

/// Our keys by the names that they have in PyTorch, Lightning, timm and transformers.
constexpr std::pair<std::string_view, std::string_view> kForeignNames[] = {
    {"lr", "optimizer.learning_rate"},
    {"wd", "optimizer.weight_decay"},
    {"batch_size", "batch.global"},
    {"micro_batch_size", "batch.micro"},
    {"grad_clip", "train.clip_norm"},
    {"clip_grad", "train.clip_norm"},
    {"gradient_clip_val", "train.clip_norm"},
    {"max_grad_norm", "train.clip_norm"},
    {"max_epochs", "train.epochs"},
    {"num_epochs", "train.epochs"},
    {"num_train_epochs", "train.epochs"},
    {"max_steps", "train.steps"},
    {"ema_decay", "train.ema"},
    {"gradient_checkpointing", "train.recompute"},
    {"warmup_steps", "schedule.warmup"},
    {"warmup_epochs", "schedule.warmup"},
    {"num_workers", "data.workers"},
    {"dtype", "precision.mode"},
    {"find_unused_parameters", "distributed.unused_parameters"},
};

class KeyList final : public Fields {
 public:
  std::set<std::string, std::less<>> keys;

  void component(std::string_view selector, ComponentSlot& slot, std::string_view) override {
    add(selector);
    for (const std::string_view name : slot.names()) slot.make(name)->fields(*this);
  }

  void renamed(std::string_view old_name, std::string_view) override { add(old_name); }

 protected:
  void visit(const Field& field, bool&) override { add(field.name); }
  void visit(const Field& field, int64_t&) override { add(field.name); }
  void visit(const Field& field, double&) override { add(field.name); }
  void visit(const Field& field, std::string&) override { add(field.name); }
  void visit(const Field& field, std::filesystem::path&) override { add(field.name); }
  void visit(const Field& field, std::vector<std::string>&) override { add(field.name); }
  void visit(const Field& field, std::vector<int64_t>&) override { add(field.name); }
  void visit(const Field& field, std::vector<double>&) override { add(field.name); }
  void visit(const Field& field, std::optional<int64_t>&) override { add(field.name); }
  void visit(const Field& field, std::optional<bool>&) override { add(field.name); }
  void visit_choice(const Field& field, std::span<const std::string_view>, size_t&) override {
    add(field.name);
  }
  bool begin_section(const Field& field) override {
    add(field.name);
    lengths_.push_back(prefix_.size());
    prefix_ += std::string(field.name) + ".";
    return true;
  }
  void end_section() override {
    prefix_.resize(lengths_.back());
    lengths_.pop_back();
  }

 private:
  void add(std::string_view name) { keys.insert(prefix_ + std::string(name)); }

  std::string prefix_;           // of the sections being visited, "stem."
  std::vector<size_t> lengths_;  // of prefix_ before each of them
};

}  // namespace

std::set<std::string, std::less<>> key_list(Config& config) {
  KeyList list;
  config.fields(list);
  return std::move(list.keys);
}

std::string_view key_by_foreign_name(std::string_view name) {
  const auto* const found =
      std::ranges::find(kForeignNames, name, &std::pair<std::string_view, std::string_view>::first);
  return found == std::end(kForeignNames) ? std::string_view() : found->second;
}

}  // namespace brim::recipe
