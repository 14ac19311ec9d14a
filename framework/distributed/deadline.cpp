#include "framework/distributed/deadline.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "framework/base/torchelastic.h"

namespace brim::distributed {
namespace {

std::mutex last_mutex;
std::function<void()> last_call;

}  // namespace

void before_end_of_process(std::function<void()> last) {
  const std::lock_guard lock(last_mutex);
  last_call = std::move(last);
}

void end_process(const Error& error) {
  const auto status = static_cast<int>(error.status());
  {
    const std::lock_guard lock(last_mutex);
    if (last_call) last_call();
  }
  print_error(error);
  write_torchelastic_error(fmt::format("error[{}]: {}", exit_name(error.status()), error.what()),
                           status);
  std::fflush(nullptr);
  std::_Exit(status);
}

Deadline::Deadline(std::chrono::milliseconds limit, std::string message)
    : thread_([this, limit, message = std::move(message)](const std::stop_token& stop) {
        std::unique_lock lock(mutex_);
        wake_.wait_for(lock, stop, limit, [] { return false; });
        if (!stop.stop_requested()) end_process(Error(Exit::kDistributed, message));
      }) {}

}  // namespace brim::distributed
