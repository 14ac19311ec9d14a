#include <fmt/format.h>

#include "framework/recipe/read.h"
#include "framework/recipe/registry.h"
#include "framework/recipe/text.h"

namespace brim::recipe {
namespace {

/// A table for each section, a component's tables right behind those of the section that holds it.
class ReferencePage final : public Fields {
 public:
  std::string text() const {
    std::string result = kOpening;
    for (const Block& block : blocks_) {
      if (block.rows.empty() && block.doc.empty()) continue;
      result += fmt::format("\n{}\n", block.heading);
      if (!block.doc.empty()) result += fmt::format("\n{}.\n", capitalised(block.doc));
      if (!block.rows.empty()) {
        result += "\n| key | type | default | range | meaning |\n|---|---|---|---|---|\n";
        result += block.rows;
      }
    }
    return result;
  }

  void component(std::string_view selector, ComponentSlot& slot, std::string_view doc) override {
    const std::vector<std::string_view> names = slot.names();
    const std::string_view selected = slot.selected();
    row({selector, doc}, words_text(names),
        selected.empty() ? "required" : code(toml_string(selected)));
    const std::string outer_condition = condition_;
    for (const std::string_view name : names) {
      condition_ = fmt::format("{} with {} = {}", outer_condition, selector, toml_string(name));
      begin_block(slot.doc(name));
      slot.make(name)->fields(*this);
      open_.pop_back();
    }
    condition_ = outer_condition;
  }

 protected:
  void visit(const Field& field, bool& v) override { add(field, "boolean", v); }
  void visit(const Field& field, int64_t& v) override { add(field, "integer", v); }
  void visit(const Field& field, double& v) override { add(field, "number", v); }
  void visit(const Field& field, std::string& v) override { add(field, "string", v); }
  void visit(const Field& field, std::filesystem::path& v) override { add(field, "path", v); }
  void visit(const Field& field, std::vector<std::string>& v) override {
    add(field, "list of strings", v);
  }
  void visit(const Field& field, std::vector<int64_t>& v) override {
    add(field, "list of integers", v);
  }
  void visit(const Field& field, std::vector<double>& v) override {
    add(field, "list of numbers", v);
  }
  void visit(const Field& field, std::optional<int64_t>& v) override {
    add(field, "integer or `\"auto\"`", v);
  }
  void visit(const Field& field, std::optional<bool>& v) override {
    add(field, "boolean or `\"auto\"`", v);
  }
  void visit_choice(const Field& field, std::span<const std::string_view> words,
                    size_t& index) override {
    row(field, words_text(words), code(toml_string(words[index])));
  }

  bool begin_section(const Field& field) override {
    outer_paths_.push_back(path_);
    path_ += fmt::format("{}{}", path_.empty() ? "" : ".", field.name);
    begin_block(field.doc);
    return true;
  }
  void end_section() override {
    path_ = outer_paths_.back();
    outer_paths_.pop_back();
    open_.pop_back();
  }

 private:
  struct Block {
    std::string heading;
    std::string doc;
    std::string rows;
  };

  static constexpr const char* kOpening =
      "# Keys of a recipe\n\n"
      "Made by `trainer recipe reference`; a test compares the two. A file may also begin with\n"
      "`extends = \"other.toml\"`: that file is read first, and this one overrides it. It is\n"
      "looked up beside the file that names it, then as `--recipe` is: `\"resnet50\"` will do.\n";

  static std::string code(const std::string& text) { return "`" + text + "`"; }
  static std::string capitalised(std::string text) {
    if (text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
    return text;
  }
  /// A bar would end the cell.
  static std::string cell(std::string_view text) {
    std::string result;
    for (const char c : text) {
      if (c == '|') result += '\\';
      result += c;
    }
    return result;
  }

  void begin_block(std::string_view doc) {
    open_.push_back(blocks_.size());
    const std::string_view level = condition_.empty() ? "##" : "###";
    blocks_.push_back({fmt::format("{} [{}]{}", level, path_, condition_), std::string(doc), ""});
  }

  template <class T>
  void add(const Field& field, const std::string& type, const T& v) {
    row(field, type, field.need == Need::kRequired ? "required" : code(value_text(v)));
  }

  void row(const Field& field, const std::string& type, const std::string& default_text) {
    blocks_[open_.back()].rows +=
        fmt::format("| `{}` | {} | {} | {} | {} |\n", field.name, cell(type), cell(default_text),
                    range_text(field.range), cell(field.doc));
  }

  std::vector<Block> blocks_ = {{"## Top level", "", ""}};
  std::vector<size_t> open_ = {0};  // blocks whose fields are being visited, the innermost last
  std::string path_;
  std::string condition_;  // " with name = "sgd"" inside a component
  std::vector<std::string> outer_paths_;
};

}  // namespace

std::string reference_page(Config& config) {
  ReferencePage page;
  config.fields(page);
  return page.text();
}

}  // namespace brim::recipe
