// What the rules of a machine mean for one user. Where several rules bind, the strictest counts;
// what no rule limits has no limit.
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "framework/device/config.h"
#include "framework/device/gpus/selection.h"
#include "framework/site/device.h"
#include "framework/site/rules.h"

namespace brim::site {

struct Person {
  std::string user;
  std::vector<std::string> groups;
};
/// Who runs this process.
Person current_person();

/// A limit and the rule that sets it, as in "rule 'students' (/etc/brim/site.toml:7)".
struct Bound {
  double value;
  std::string rule;
};

using Devices = std::vector<Device>;
using Gpus = std::vector<device::GpuReading>;

class Limits {
 public:
  Limits() = default;  // none
  Limits(Site site, Person person);

  const Site& site() const { return site_; }
  const Person& person() const { return person_; }
  /// Those that bind this user.
  const std::vector<Rule>& rules() const { return rules_; }
  /// "ask gpus@example.org": the end of a refusal.
  std::string ask() const { return "ask " + site_.contact; }

  /// Why this user may not use the device at all; "": they may.
  std::string forbids(const Device& device) const;
  /// Throws Error(kResource) for a device that may not be used, and where `held`, all that the user
  /// would hold, is more than a rule gives. `says_held` tells what of it they hold already.
  void require(const Devices& wanted, const Devices& held, const std::string& says_held) const;
  /// Why no training may run on these devices at this time of the day, and until when; "": it may.
  std::string quiet(const Devices& devices, const std::tm& local) const;
  /// What training on these devices has to leave them to, of what is there; "": nothing.
  std::string yields(const Devices& devices, const Gpus& gpus) const;
  bool has_quiet_hours() const;
  bool has_yields(const Devices& devices) const;
  /// The strictest limit of one kind, which `key` names.
  std::optional<Bound> least(double Rule::*limit, std::string_view key,
                             const Devices& devices) const;

  /// Tightens what `config` calls idle among these devices.
  void bound_idle(device::DeviceConfig& config, const Devices& devices) const;
  /// Bounds what a job takes of these devices. Throws Error(kResource) where `config` names more.
  void bound_memory(device::DeviceConfig& config, const Devices& devices) const;
  /// The GPUs that this user may not use, or, with `is_training`, that training has to leave, get a
  /// `trouble` that says so, and are not chosen. Returns the last thing that training yields to.
  std::string keep_off(device::Census& census, bool is_training) const;

 private:
  static bool is_about(const Rule& rule, const Devices& devices);

  Site site_;
  Person person_;
  std::vector<Rule> rules_;
};

/// The rules of this machine for this process's user; read at the first call. Throws
/// Error(kRecipe).
const Limits& limits();

/// The local time.
std::tm local_time();

}  // namespace brim::site
