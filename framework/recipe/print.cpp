#include <fmt/format.h>

#include "framework/recipe/read.h"
#include "framework/recipe/registry.h"
#include "framework/recipe/text.h"

namespace brim::recipe {
namespace {

class Printer final : public Fields {
 public:
  /// Keys of the root first, then each section, in the order of the structs.
  std::string text() const {
    std::string result;
    for (const Block& block : blocks_) {
      if (block.lines.empty()) continue;
      if (!block.path.empty()) {
        result += fmt::format("{}[{}]\n", result.empty() ? "" : "\n", block.path);
      }
      result += block.lines;
    }
    return result;
  }

  void component(std::string_view selector, ComponentSlot& slot, std::string_view) override {
    Config* component = slot.component();
    line(selector, toml_string(slot.selected()));
    if (component != nullptr) component->fields(*this);
  }

 protected:
  void visit(const Field& field, bool& v) override { line(field.name, value_text(v)); }
  void visit(const Field& field, int64_t& v) override { line(field.name, value_text(v)); }
  void visit(const Field& field, double& v) override { line(field.name, value_text(v)); }
  void visit(const Field& field, std::string& v) override { line(field.name, value_text(v)); }
  void visit(const Field& field, std::filesystem::path& v) override {
    line(field.name, value_text(resolve(v, std::filesystem::current_path())));
  }
  void visit(const Field& field, std::vector<std::string>& v) override {
    line(field.name, value_text(v));
  }
  void visit(const Field& field, std::vector<int64_t>& v) override {
    line(field.name, value_text(v));
  }
  void visit(const Field& field, std::vector<double>& v) override {
    line(field.name, value_text(v));
  }
  void visit(const Field& field, std::optional<int64_t>& v) override {
    line(field.name, value_text(v));
  }
  void visit(const Field& field, std::optional<bool>& v) override {
    line(field.name, value_text(v));
  }
  void visit_choice(const Field& field, std::span<const std::string_view> words,
                    size_t& index) override {
    line(field.name, toml_string(words[index]));
  }

  bool begin_section(const Field& field) override {
    const std::string& outer = blocks_[open_.back()].path;
    open_.push_back(blocks_.size());
    blocks_.push_back({fmt::format("{}{}{}", outer, outer.empty() ? "" : ".", field.name), ""});
    return true;
  }
  void end_section() override { open_.pop_back(); }

 private:
  struct Block {
    std::string path;
    std::string lines;
  };

  void line(std::string_view name, const std::string& value) {
    blocks_[open_.back()].lines += fmt::format("{} = {}\n", name, value);
  }

  std::vector<Block> blocks_ = {{"", ""}};
  std::vector<size_t> open_ = {0};  // blocks whose fields are being visited, the innermost last
};

}  // namespace

std::string print(Config& config) {
  Printer printer;
  config.fields(printer);
  return printer.text();
}

}  // namespace brim::recipe
