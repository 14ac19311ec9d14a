#include "framework/optim/schedule.h"

#include <nlohmann/json.hpp>

namespace brim::optim {

void Schedule::observe(const Evaluation&) {}

nlohmann::json Schedule::state() const { return nlohmann::json::object(); }

void Schedule::load(const nlohmann::json& state) {
  if (state.is_object() && state.empty()) return;
  throw Error(Exit::kCheckpoint,
              "the checkpoint holds the state of another schedule: expected {{}}, found {}",
              state.dump());
}

}  // namespace brim::optim
