// Components that a recipe chooses by name: models, datasets, optimizers, schedules. A component's
// config struct derives from a base of its kind that also builds it, and is registered by one line:
//
//   registry<nn::ModelConfig>().add<MlpConfig>("mlp", "fully connected layers with ReLU");
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/recipe/fields.h"

namespace brim::recipe {

/// The components of one kind. Base derives from Config. Filled once at program start, then read
/// only.
template <class Base>
class Registry {
 public:
  /// Throws Error(kRecipe) for a name that is empty or that another component of this kind has.
  template <class ComponentConfig>
  void add(std::string name, std::string doc) {
    if (name.empty() || entries_.contains(name)) {
      throw Error(
          Exit::kRecipe,
          "expected a name of its own for each component, found \"{}\"{}; choose another one "
          "(a program that has the library inside needs none: --set 'model.library=\"\"')",
          name, name.empty() ? "" : ", which is taken");
    }
    entries_[std::move(name)] = {std::move(doc), []() -> std::unique_ptr<Base> {
                                   return std::make_unique<ComponentConfig>();
                                 }};
  }

  /// In alphabetical order.
  std::vector<std::string_view> names() const {
    std::vector<std::string_view> result;
    for (const auto& [name, entry] : entries_) result.push_back(name);
    return result;
  }
  std::string_view doc(std::string_view name) const { return find(name).doc; }
  /// A config with its defaults.
  std::unique_ptr<Base> make(std::string_view name) const { return find(name).make(); }

 private:
  struct Entry {
    std::string doc;
    std::unique_ptr<Base> (*make)();
  };
  const Entry& find(std::string_view name) const {
    const auto found = entries_.find(name);
    if (found == entries_.end())
      throw Error(Exit::kBug, "no component is registered as '{}'", name);
    return found->second;
  }
  std::map<std::string, Entry, std::less<>> entries_;
};

/// The one registry of components with base Base.
template <class Base>
Registry<Base>& registry() {
  static Registry<Base> instance;
  return instance;
}

/// Where a config struct keeps its chosen component, as the visitors see it.
class ComponentSlot {
 public:
  virtual ~ComponentSlot() = default;
  virtual std::vector<std::string_view> names() const = 0;
  virtual std::string_view doc(std::string_view name) const = 0;
  /// Makes `name` the chosen component, with its defaults. `name` is one of names().
  virtual void select(std::string_view name) = 0;
  /// The chosen name; before select() the default one, or "".
  virtual std::string_view selected() const = 0;
  virtual Config* component() = 0;  // the default component, or null, before select()
  /// A component with its defaults, for those who describe components rather than choose one.
  virtual std::unique_ptr<Config> make(std::string_view name) const = 0;
};

/// A ComponentSlot for components with base Base. An empty default_name makes the selector a
/// required key.
template <class Base>
class Slot final : public ComponentSlot {
 public:
  explicit Slot(std::string_view default_name = "") : default_name_(default_name) {}

  std::vector<std::string_view> names() const override { return registry<Base>().names(); }
  std::string_view doc(std::string_view name) const override { return registry<Base>().doc(name); }
  void select(std::string_view name) override {
    config_ = registry<Base>().make(name);
    name_ = name;
  }
  /// The same where the caller knows the component's type.
  template <class ComponentConfig>
  ComponentConfig& select_as(std::string_view name) {
    auto made = std::make_unique<ComponentConfig>();
    ComponentConfig& chosen = *made;
    config_ = std::move(made);
    name_ = name;
    return chosen;
  }
  std::string_view selected() const override { return name_.empty() ? default_name_ : name_; }
  Config* component() override {
    if (config_ == nullptr && !default_name_.empty()) select(default_name_);
    return config_.get();
  }
  std::unique_ptr<Config> make(std::string_view name) const override {
    return registry<Base>().make(name);
  }

  const Base& operator*() const { return *config_; }
  const Base* operator->() const { return config_.get(); }
  Base* operator->() { return config_.get(); }

 private:
  std::string default_name_;
  std::string name_;
  std::unique_ptr<Base> config_;
};

}  // namespace brim::recipe
