#include "framework/distributed/before_use.h"

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <utility>

namespace brim::distributed {
namespace {

thread_local const BeforeUse::What* current = nullptr;

void visit(const c10::IValue& value, const BeforeUse::What& what) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) what(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) visit(item, what);
  }
}

std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& call) {
  const BeforeUse::What* what = std::exchange(current, nullptr);  // not for what it calls itself
  if (what == nullptr) return nullptr;
  for (const c10::IValue& input : call.inputs()) visit(input, *what);
  current = what;
  return nullptr;
}

}  // namespace

BeforeUse::BeforeUse(What what)
    : what_(std::move(what)),
      handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(&on_operator)
                                             .needsInputs(true)
                                             .scopes({at::RecordScope::FUNCTION}))) {
  current = &what_;
}

BeforeUse::~BeforeUse() {
  current = nullptr;
  at::removeCallback(handle_);
}

}  // namespace brim::distributed
