#include <fmt/format.h>

#include <bit>
#include <nlohmann/json.hpp>

#include "framework/recipe/lookup.h"
#include "framework/recipe/read.h"
#include "framework/recipe/registry.h"

namespace brim::recipe {
namespace {

using Json = nlohmann::ordered_json;

Json object_schema(std::string_view doc) {
  Json schema = {{"type", "object"}, {"additionalProperties", false}};
  if (!doc.empty()) schema["description"] = doc;
  schema["properties"] = Json::object();
  return schema;
}

/// "model.library" is there and not empty.
Json has_key(std::string_view path) {
  const size_t dot = path.find('.');
  const std::string_view name = path.substr(0, dot);
  const Json inner =
      dot == std::string_view::npos ? Json{{"minLength", 1}} : has_key(path.substr(dot + 1));
  return {{"required", {name}}, {"properties", {{name, inner}}}};
}

/// At least half of these keys: fewer may be a layer over a recipe, which has the others.
Json is_whole(const std::vector<std::string>& required) {
  Json any = Json::array();
  for (uint64_t chosen = 1; chosen < uint64_t{1} << required.size(); ++chosen) {
    if (static_cast<size_t>(std::popcount(chosen)) != (required.size() + 1) / 2) continue;
    Json all = Json::array();
    for (size_t i = 0; i < required.size(); ++i) {
      if ((chosen >> i & 1) != 0) all.push_back(has_key(required[i]));
    }
    any.push_back({{"allOf", std::move(all)}});
  }
  return {{"anyOf", std::move(any)}};
}

/// Three trees are built side by side. `shape` says what each key looks like and holds for every
/// file; `known` says which components and keys of components there are, which a file with a
/// library of components need not heed; `needs` says which keys are required, which only a file
/// that is whole by itself must fulfil.
class SchemaWriter final : public Fields {
 public:
  explicit SchemaWriter(std::string_view library_key) : library_key_(library_key) {
    open_.push_back({.shape = object_schema("")});
  }

  Json finish() {
    Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                   {"title", "Brim recipe"}};
    const Level& root = open_.back();
    schema.update(root.shape);
    schema["properties"]["extends"] = {
        {"anyOf", Json::array({{{"enum", bundled_names("recipes")}}, {{"type", "string"}}})},
        {"description", "a recipe to start from, read first: a path, or a name as in --recipe"}};
    if (!root.needs.empty()) {
      const Json alone = {{"not", {{"required", {"extends"}}}}};
      schema["if"] =
          required_.empty() ? alone : Json{{"allOf", Json::array({alone, is_whole(required_)})}};
      schema["then"] = root.needs;
    }
    if (!root.known.empty()) {
      schema["allOf"] =
          Json::array({{{"if", {{"not", has_key(library_key_)}}}, {"then", root.known}}});
    }
    return schema;
  }

  void renamed(std::string_view old_name, std::string_view name) override {
    open_.back().shape["properties"][old_name] = {
        {"deprecated", true}, {"description", fmt::format("the old name of '{}'", name)}};
  }

  void component(std::string_view selector, ComponentSlot& slot, std::string_view doc) override {
    const std::vector<std::string_view> names = slot.names();
    Json choice = {{"type", "string"}, {"description", doc}};
    if (library_key_.empty()) choice = {{"enum", names}, {"description", doc}};
    if (slot.selected().empty()) {
      need(selector);
    } else {
      choice["default"] = slot.selected();
    }
    open_.back().shape["properties"][selector] = std::move(choice);

    std::map<std::string_view, Level> levels;
    // of all components; true: what it looks like depends on the component
    Json all_keys = Json::object();
    for (const std::string_view name : names) {
      open_.push_back({.shape = object_schema("")});
      slot.make(name)->fields(*this);
      for (const auto& [key, schema] : open_.back().shape["properties"].items()) {
        if (!all_keys.contains(key)) {
          all_keys[key] = schema;
        } else if (all_keys[key] != schema) {
          all_keys[key] = true;
        }
      }
      levels[name] = std::move(open_.back());
      open_.pop_back();
    }
    Level& here = open_.back();
    if (!library_key_.empty()) here.known["properties"][selector] = {{"enum", names}};
    Json& place = library_key_.empty() ? here.shape : here.known;
    for (const auto& [key, schema] : all_keys.items()) place["properties"][key] = schema;
    for (const std::string_view name : names) {
      add_branch(slot, selector, name, levels[name], all_keys);
    }
  }

 protected:
  void visit(const Field& field, bool& v) override { add(field, {{"type", "boolean"}}, v); }
  void visit(const Field& field, int64_t& v) override { add(field, number(field, "integer"), v); }
  void visit(const Field& field, double& v) override { add(field, number(field, "number"), v); }
  void visit(const Field& field, std::string& v) override { add(field, text(field), v); }
  void visit(const Field& field, std::filesystem::path& v) override {
    add(field, text(field), v.string());
  }
  void visit(const Field& field, std::vector<std::string>& v) override {
    add(field, {{"type", "array"}, {"items", {{"type", "string"}}}}, v);
  }
  void visit(const Field& field, std::vector<int64_t>& v) override {
    add(field, {{"type", "array"}, {"items", number(field, "integer")}}, v);
  }
  void visit(const Field& field, std::vector<double>& v) override {
    add(field, {{"type", "array"}, {"items", number(field, "number")}}, v);
  }
  void visit(const Field& field, std::optional<int64_t>& v) override {
    add(field, auto_or(number(field, "integer")), v ? Json(*v) : Json("auto"));
  }
  void visit(const Field& field, std::optional<bool>& v) override {
    add(field, auto_or({{"type", "boolean"}}), v ? Json(*v) : Json("auto"));
  }
  void visit_choice(const Field& field, std::span<const std::string_view> words,
                    size_t& index) override {
    add(field, {{"enum", words}}, words[index]);
  }

  bool begin_section(const Field& field) override {
    open_.push_back({.shape = object_schema(field.doc), .name = std::string(field.name)});
    return true;
  }
  void end_section() override {
    Level level = std::move(open_.back());
    open_.pop_back();
    if (level.has_parts() && !library_key_.empty()) {
      level.shape.erase("additionalProperties");
      for (const auto& [key, schema] : level.shape["properties"].items()) {
        if (!level.known["properties"].contains(key)) level.known["properties"][key] = true;
      }
      level.known["additionalProperties"] = false;
    }
    open_.back().shape["properties"][level.name] = level.shape;
    if (!level.known.empty()) open_.back().known["properties"][level.name] = level.known;
    if (level.needs.empty()) return;
    if (level.needs.contains("required")) need(level.name);
    open_.back().needs["properties"][level.name] = level.needs;
  }

 private:
  struct Level {
    Json shape;
    Json known = Json::object();
    Json needs = Json::object();
    std::string name = {};

    bool has_parts() const { return shape.contains("allOf"); }
  };

  static Json auto_or(Json schema) {
    return {{"anyOf", Json::array({{{"const", "auto"}}, std::move(schema)})}};
  }

  static Json number(const Field& field, std::string_view type) {
    Json schema = {{"type", type}};
    const Range none = any_number();
    const auto bound = [&](const char* key, double value) {
      schema[key] = value;
      if (type == "integer") schema[key] = static_cast<int64_t>(value);
    };
    if (field.range.low != none.low) {
      bound(field.range.low_open ? "exclusiveMinimum" : "minimum", field.range.low);
    }
    if (field.range.high != none.high) {
      bound(field.range.high_open ? "exclusiveMaximum" : "maximum", field.range.high);
    }
    return schema;
  }

  static Json text(const Field& field) {
    Json schema = {{"type", "string"}};
    if (field.need == Need::kRequired) schema["minLength"] = 1;
    return schema;
  }

  void add(const Field& field, Json schema, Json default_value) {
    if (field.need == Need::kRequired) {
      need(field.name);
    } else {
      schema["default"] = std::move(default_value);
    }
    schema["description"] = field.doc;
    open_.back().shape["properties"][field.name] = std::move(schema);
  }

  void need(std::string_view key) {
    open_.back().needs["required"].push_back(key);
    if (open_.size() == 2 && !open_.back().name.empty()) {  // of a section at the top
      required_.push_back(fmt::format("{}.{}", open_.back().name, key));
    }
  }

  /// What holds where `selector` is `name`: that component's keys, none of the other components',
  /// its needs.
  void add_branch(const ComponentSlot& slot, std::string_view selector, std::string_view name,
                  const Level& component, const Json& all_keys) {
    const Json condition = {{"properties", {{selector, {{"const", name}}}}},
                            {"required", {selector}}};
    Json keys = component.shape["properties"];
    for (const auto& [key, schema] : all_keys.items()) {
      if (!keys.contains(key)) keys[key] = false;
    }
    Json then = {{"properties", std::move(keys)}};
    if (component.shape.contains("allOf")) then["allOf"] = component.shape["allOf"];
    Level& here = open_.back();
    if (name == slot.selected()) {
      const Json left_out = {{"not", {{"required", {selector}}}}};
      here.needs["allOf"].push_back({{"if", left_out}, {"then", then}});
    }
    here.shape["allOf"].push_back({{"if", condition}, {"then", std::move(then)}});
    if (!component.needs.empty()) {
      here.needs["allOf"].push_back({{"if", condition}, {"then", component.needs}});
    }
  }

  std::string_view library_key_;       // empty: there is none, or its components are known
  std::vector<Level> open_;            // whose fields are being visited, the innermost last
  std::vector<std::string> required_;  // keys of the top sections, as in "model.name"
};

}  // namespace

std::string json_schema(Config& config, std::string_view library_key) {
  SchemaWriter writer(library_key);
  config.fields(writer);
  return writer.finish().dump(2);
}

}  // namespace brim::recipe
