#include "framework/device/memory/advice.h"

#include <utility>

namespace brim::device {
namespace {

std::string& rule_advice() {
  static std::string advice;
  return advice;
}

}  // namespace

std::string more_memory() {
  return rule_advice().empty() ? "give the job more memory (device.memory_gib)" : rule_advice();
}

void set_memory_rule(std::string advice) { rule_advice() = std::move(advice); }

}  // namespace brim::device
