#include "framework/site/rules.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/user.h"
#include "framework/recipe/parse_toml.h"
#include "framework/recipe/read.h"
#include "framework/recipe/text.h"
#include "framework/site/device.h"

namespace brim::site {
namespace fs = std::filesystem;
namespace {

constexpr const char* kUsualFile = "/etc/brim/site.toml";
constexpr int64_t kMaxBytes = 1 << 20;

/// The file but for [defaults], whose keys are a recipe's.
struct SiteConfig final : recipe::Config {
  struct Rules {
    std::vector<Rule> all;
    void fields(recipe::Fields& f) {
      for (Rule& rule : all) f.section(rule.name, rule, "limits for some users on some devices");
    }
  };

  std::string contact;
  Rules rules;

  void fields(recipe::Fields& f) override {
    f.value("contact", contact, "whom to ask about these rules", recipe::Need::kRequired);
    f.section("rules", rules, "a table for each rule");
  }
};

/// The checks that need more than one key or the whole file.
class Checker {
 public:
  explicit Checker(const recipe::Value& document) : document_(document) {}

  void check(Rule& rule) {
    rule_ = &rule;
    check_list("users", rule.users, "a user's name", [](auto) { return true; });
    check_list("groups", rule.groups, "a group's name", [](auto) { return true; });
    check_list("devices", rule.devices, "\"cpu\", a GPU's index, or the beginning of its UUID",
               is_device_name);
    if (is_given("yields_to") && rule.yields_to.empty()) problem("yields_to", kAtLeastOne);
    for (const std::string& name : rule.yields_to) {
      const bool is_file = name.find('/') != std::string::npos;
      if (name.empty() || (is_file && !fs::path(name).is_absolute())) {
        problem("yields_to",
                fmt::format("expected a program's name or a file's whole path, found {}",
                            recipe::toml_string(name)));
      }
    }
    if (is_given("quiet_hours")) {
      rule.quiet = parse_daily_hours(rule.quiet_hours);
      if (!rule.quiet) {
        problem("quiet_hours", fmt::format("expected two times of the day, as in \"22:00-07:00\", "
                                           "found {}",
                                           recipe::toml_string(rule.quiet_hours)));
      }
    }
    constexpr std::array kLimits = {"at_most",          "memory_gib",      "hours",
                                    "quiet_hours",      "yields_to",       "idle_minutes",
                                    "idle_utilisation", "idle_free_memory"};
    if (std::ranges::none_of(kLimits, [this](const char* key) { return is_given(key); })) {
      add(place(""),
          "it limits nothing: expected one of at_most, memory_gib, hours, "
          "quiet_hours, yields_to, idle_minutes, idle_utilisation, idle_free_memory");
    }
  }

  void add(const recipe::Location& where, std::string message) {
    problems_.push_back({where, std::move(message)});
  }
  void finish() {
    if (!problems_.empty()) recipe::throw_problems(std::move(problems_));
  }

 private:
  static constexpr const char* kAtLeastOne = "expected at least one name, found none";

  template <class IsGood>
  void check_list(std::string_view key, const std::vector<std::string>& list, const char* expected,
                  IsGood is_good) {
    if (is_given(key) && list.empty()) problem(key, kAtLeastOne);
    for (const std::string& name : list) {
      const std::string_view bare = std::string_view(name).substr(name.starts_with('!') ? 1 : 0);
      if (!bare.empty() && is_good(bare)) continue;
      problem(key, fmt::format("expected {}, or one with '!' before it, found {}", expected,
                               recipe::toml_string(name)));
    }
  }

  recipe::Location place(std::string_view key) const {
    const std::string table = "rules." + rule_->name;
    return recipe::place_of(document_, key.empty() ? table : fmt::format("{}.{}", table, key));
  }
  bool is_given(std::string_view key) const { return place(key).line != 0; }
  void problem(std::string_view key, const std::string& message) {
    add(place(key), fmt::format("'{}' in [rules.{}]: {}", key, rule_->name, message));
  }

  const recipe::Value& document_;
  const Rule* rule_ = nullptr;
  std::vector<recipe::Problem> problems_;
};

/// Rules without their limits, by the names of their tables.
std::vector<Rule> named_rules(const recipe::Value& document, Checker& checker) {
  std::vector<Rule> rules;
  const auto& entries = std::get<recipe::Table>(document.data).entries;
  const auto found = entries.find("rules");
  if (found == entries.end()) return rules;
  const auto* tables = std::get_if<recipe::Table>(&found->second.data);
  if (tables == nullptr) return rules;  // the reader says so
  for (const auto& [name, value] : tables->entries) {
    const bool is_plain = !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '_' || c == '-';
    });
    if (is_plain) {
      rules.push_back({.name = name});
    } else {
      checker.add(value.key_location,
                  fmt::format("{} is no rule's name: expected letters, digits, '_' and '-'",
                              recipe::toml_string(name)));
    }
  }
  return rules;
}

std::optional<recipe::Value> take_defaults(recipe::Value& document, Checker& checker) {
  auto& entries = std::get<recipe::Table>(document.data).entries;
  const auto found = entries.find("defaults");
  if (found == entries.end()) return std::nullopt;
  if (!std::holds_alternative<recipe::Table>(found->second.data)) {
    checker.add(found->second.location, "'defaults': expected a section [defaults]");
  }
  recipe::Value defaults = std::move(found->second);
  entries.erase(found);
  return defaults;
}

/// Who else may write to a file or folder could give rules to everyone.
void require_kept_by_root_or_user(const struct stat& status, const std::string& path,
                                  bool is_sticky_enough) {
  const bool is_sticky = is_sticky_enough && (status.st_mode & S_ISVTX) != 0;
  const bool may_others =
      (status.st_mode & S_IWOTH) != 0 || ((status.st_mode & S_IWGRP) != 0 && status.st_gid != 0);
  if (may_others && !is_sticky) {
    throw Error(Exit::kRecipe,
                "{}: others may write to it (mode {:03o}), and so could give everyone rules: take "
                "that right from them, with chmod go-w",
                path, static_cast<unsigned>(status.st_mode) & 0777U);
  }
  if (status.st_uid != 0 && status.st_uid != ::geteuid()) {
    throw Error(Exit::kRecipe, "{}: expected a file of root's or {}'s, found {}'s: chown it", path,
                user_name(::geteuid()), user_name(status.st_uid));
  }
}

std::string read_text(std::FILE* file, const std::string& path) {
  std::string text(kMaxBytes + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  if (std::ferror(file) != 0) throw Error(Exit::kRecipe, "{}: it can't be read", path);
  if (text.size() > kMaxBytes) {
    throw Error(Exit::kRecipe, "{}: expected at most {} bytes, found more", path, kMaxBytes);
  }
  return text;
}

Site read_site_file(const fs::path& file, bool is_named) {
  const FileStream stream = open_stream(file, Exit::kRecipe);
  if (stream == nullptr && !is_named) return {};
  if (stream == nullptr) {
    throw Error(Exit::kRecipe, "{}: BRIM_SITE names this file, and it is not there", file.string());
  }
  struct stat status {};
  ::fstat(::fileno(stream.get()), &status);
  require_kept_by_root_or_user(status, file.string(), /*is_sticky_enough=*/false);
  const fs::path folder = fs::canonical(file).parent_path();
  if (::stat(folder.c_str(), &status) == 0) {
    require_kept_by_root_or_user(status, folder.string(), /*is_sticky_enough=*/true);
  }
  return parse_site(read_text(stream.get(), file.string()), file);
}

}  // namespace

void Rule::fields(recipe::Fields& f) {
  f.value("users", users, "whom it is for");
  f.value("groups", groups, "whom it is for");
  f.value("devices", devices, "what it is about");
  f.value("at_most", at_most, "devices that a user holds at once", recipe::between(0, 1024));
  f.value("memory_gib", memory_gib, "GiB of a job on each device", recipe::above(0));
  f.value("hours", hours, "that a run holds devices at a stretch", recipe::above(0));
  f.value("quiet_hours", quiet_hours, "when nothing trains");
  f.value("yields_to", yields_to, "programs or files before which training leaves a device");
  f.value("idle_minutes", idle_minutes, "after which a device that is held is called idle",
          recipe::at_least(0));
  f.value("idle_utilisation", idle_utilisation, "as device.idle_utilisation, at most",
          recipe::between(0, 1));
  f.value("idle_free_memory", idle_free_memory, "as device.idle_free_memory, at least",
          recipe::between(0, 1));
}

std::string Site::cite(const Rule& rule, std::string_view key) const {
  const auto place = recipe::place_of(document, fmt::format("rules.{}.{}", rule.name, key));
  return fmt::format("rule '{}' ({}:{})", rule.name, file.string(), place.line);
}

Site parse_site(const std::string& text, const fs::path& file) {
  std::vector<recipe::Problem> problems;
  const fs::path folder = fs::absolute(file).parent_path().lexically_normal();
  auto document = recipe::parse_toml(text, {file.string(), folder}, problems);
  if (!document) recipe::throw_problems(std::move(problems));
  Site site;
  site.file = file;
  Checker checker(*document);
  site.defaults = take_defaults(*document, checker);
  SiteConfig config;
  config.rules.all = named_rules(*document, checker);
  checker.finish();
  recipe::read(*document, config);
  for (Rule& rule : config.rules.all) checker.check(rule);
  checker.finish();
  site.contact = config.contact;
  site.rules = std::move(config.rules.all);
  site.document = std::move(*document);
  return site;
}

Site read_site() {
  const char* named = std::getenv("BRIM_SITE");
  const bool is_named = named != nullptr && *named != '\0';
  const fs::path file = is_named ? named : kUsualFile;
  try {
    return read_site_file(file, is_named);
  } catch (const Error& error) {
    throw Error(Exit::kRecipe,
                "{}\n{}: the rules of this machine; nothing trains here until whoever keeps this "
                "file has corrected it",
                error.what(), file.string());
  }
}

}  // namespace brim::site
