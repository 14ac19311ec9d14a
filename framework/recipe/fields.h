// One visit per config struct serves the TOML reader, validation, the printed recipe, the reference
// page and the JSON Schema. A config struct is an aggregate with defaults and one member:
//
//   struct MlpConfig : nn::ModelConfig {
//     int64_t hidden = 128;
//     void fields(recipe::Fields& f) override {
//       f.value("hidden", hidden, "width of each hidden layer", recipe::at_least(1));
//     }
//   };
//
// fields() must visit the same keys whatever the values are (except through component()), each
// once; a component's are beside those of its section.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace brim::recipe {

class ComponentSlot;

/// What a number must lie in; NaN and infinities are always refused.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;   // low itself is refused
  bool high_open = false;  // high itself is refused
};
inline Range any_number() { return {}; }
inline Range at_least(double low) { return {.low = low}; }
inline Range above(double low) { return {.low = low, .low_open = true}; }
inline Range between(double low, double high) { return {.low = low, .high = high}; }
inline Range between_open_high(double low, double high) {
  return {.low = low, .high = high, .high_open = true};
}

/// Whether a recipe may leave a key out. Required keys have no usable default.
enum class Need { kOptional, kRequired };

/// A key as the visitors see it.
struct Field {
  std::string_view name;
  std::string_view doc;  // one line, no full stop; units included
  Range range = {};
  Need need = Need::kOptional;
};

/// The visitor. Implementations: Reader, Printer, ReferencePage, SchemaWriter (recipe/*.cpp).
class Fields {
 public:
  virtual ~Fields() = default;

  // What config structs call.
  void value(std::string_view name, bool& v, std::string_view doc) { visit({name, doc}, v); }
  void value(std::string_view name, int64_t& v, std::string_view doc, Range range = {}) {
    visit({name, doc, range}, v);
  }
  void value(std::string_view name, double& v, std::string_view doc, Range range = {}) {
    visit({name, doc, range}, v);
  }
  void value(std::string_view name, std::string& v, std::string_view doc,
             Need need = Need::kOptional) {
    visit({name, doc, {}, need}, v);
  }
  /// A relative path in a recipe belongs to the file that wrote it; here it arrives absolute.
  /// An empty path is "not given".
  void value(std::string_view name, std::filesystem::path& v, std::string_view doc,
             Need need = Need::kOptional) {
    visit({name, doc, {}, need}, v);
  }
  void value(std::string_view name, std::vector<std::string>& v, std::string_view doc) {
    visit({name, doc}, v);
  }
  /// The range holds for each element.
  void value(std::string_view name, std::vector<int64_t>& v, std::string_view doc,
             Range range = {}) {
    visit({name, doc, range}, v);
  }
  void value(std::string_view name, std::vector<double>& v, std::string_view doc,
             Range range = {}) {
    visit({name, doc, range}, v);
  }
  /// An integer or "auto"; nullopt is "auto".
  void auto_or(std::string_view name, std::optional<int64_t>& v, std::string_view doc,
               Range range = {}) {
    visit({name, doc, range}, v);
  }
  /// A boolean or "auto"; nullopt is "auto".
  void auto_or(std::string_view name, std::optional<bool>& v, std::string_view doc) {
    visit({name, doc}, v);
  }
  /// One of a few words; words[i] stands for the enumerator with value i.
  template <class Enum>
  void choice(std::string_view name, Enum& v, std::span<const std::string_view> words,
              std::string_view doc) {
    auto index = static_cast<size_t>(v);
    visit_choice({name, doc}, words, index);
    v = static_cast<Enum>(index);
  }
  /// To be called before the key `name`, which was called `old_name`: a recipe that uses the old
  /// name still reads, with a warning.
  virtual void renamed(std::string_view /*old_name*/, std::string_view /*name*/) {}
  /// A sub-table with a config struct of its own.
  template <class Section>
  void section(std::string_view name, Section& s, std::string_view doc) {
    if (!begin_section({name, doc})) return;
    s.fields(*this);
    end_section();
  }
  /// A registered component chosen by the key `selector` ("name", "kind"); the component's own keys
  /// follow in the same table. See component.h.
  virtual void component(std::string_view selector, ComponentSlot& slot, std::string_view doc) = 0;

 protected:
  virtual void visit(const Field& field, bool& v) = 0;
  virtual void visit(const Field& field, int64_t& v) = 0;
  virtual void visit(const Field& field, double& v) = 0;
  virtual void visit(const Field& field, std::string& v) = 0;
  virtual void visit(const Field& field, std::filesystem::path& v) = 0;
  virtual void visit(const Field& field, std::vector<std::string>& v) = 0;
  virtual void visit(const Field& field, std::vector<int64_t>& v) = 0;
  virtual void visit(const Field& field, std::vector<double>& v) = 0;
  virtual void visit(const Field& field, std::optional<int64_t>& v) = 0;
  virtual void visit(const Field& field, std::optional<bool>& v) = 0;
  virtual void visit_choice(const Field& field, std::span<const std::string_view> words,
                            size_t& index) = 0;
  /// False: skip the section's fields (and don't call end_section).
  virtual bool begin_section(const Field& field) = 0;
  virtual void end_section() = 0;
};

/// Anything with fields(): the root of a recipe is one.
class Config {
 public:
  virtual ~Config() = default;
  virtual void fields(Fields& f) = 0;
};

}  // namespace brim::recipe
