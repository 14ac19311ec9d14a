#include "framework/recipe/key_list.h"

#include "framework/recipe/registry.h"

namespace brim::recipe {
namespace {

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

}  // namespace brim::recipe
