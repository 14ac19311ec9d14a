// The rules of a machine that several people share: /etc/brim/site.toml, or the file that the
// environment variable BRIM_SITE names. What they mean for one user is limits.h's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/recipe/document.h"
#include "framework/recipe/fields.h"
#include "framework/site/daily_hours.h"

namespace brim::site {

/// A table [rules.NAME]: limits for some users on some devices. Of each list a name with "!" before
/// it is left out; a list without other names is of all.
struct Rule {
  static constexpr double kNone = std::numeric_limits<double>::infinity();

  std::string name;
  std::vector<std::string> users = {}, groups = {};  // of either, where both have names
  std::vector<std::string> devices = {};
  int64_t at_most = std::numeric_limits<int64_t>::max();  // devices of a user at once
  double memory_gib = kNone;                              // of a job on each device
  double hours = kNone;                                   // that a run holds devices at a stretch
  std::string quiet_hours = {};                           // empty: none
  std::vector<std::string> yields_to = {};                // programs, or paths of files
  double idle_utilisation = kNone;                        // at most; of the keys of [device]
  double idle_free_memory = -kNone;                       // at least
  double idle_minutes = kNone;  // after which trainer devices names a device that is held
  std::optional<DailyHours> quiet = {};

  void fields(recipe::Fields& f);
};

struct Site {
  std::filesystem::path file;                  // empty: there is none
  std::string contact;                         // whom to ask
  std::vector<Rule> rules;                     // by name
  std::optional<recipe::Value> defaults = {};  // the table [defaults]
  recipe::Value document = {};

  /// "rule 'students' (/etc/brim/site.toml:7)", the line being the key's.
  std::string cite(const Rule& rule, std::string_view key) const;
};

/// Nothing where there is no file and BRIM_SITE names none. Throws Error(kRecipe) with every
/// problem and its line; also for a file that others than root and this user may write to.
Site read_site();

/// The same of a text.
Site parse_site(const std::string& text, const std::filesystem::path& file);

}  // namespace brim::site
