#include "framework/data/loading/stages.h"

#include "framework/base/units.h"

namespace brim::data {
namespace {

thread_local StageClock* current = nullptr;

}  // namespace

StageClock::StageClock() : since_s_(now_s()) { current = this; }

StageClock::~StageClock() { current = nullptr; }

void StageClock::enter(Stage stage) {
  const double now = now_s();
  seconds_[static_cast<size_t>(stage_)] += now - since_s_;
  stage_ = stage;
  since_s_ = now;
}

void enter_stage(Stage stage) {
  if (current != nullptr) current->enter(stage);
}

}  // namespace brim::data
