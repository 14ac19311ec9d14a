#include "framework/base/stop.h"

#include <unistd.h>

#include <csignal>
#include <string_view>

namespace brim {
namespace {

volatile std::sig_atomic_t requests = 0;

void on_signal(int signal) {
  requests = requests + 1;
  if (requests == 1) {
    constexpr std::string_view kNote =
        "\nbrim: stopping after this step; a second signal stops at once\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kNote.data(), kNote.size());
    return;
  }
  ::_exit(128 + signal);
}

}  // namespace

void install_stop_handlers() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGXFSZ, SIG_IGN);
}

bool stop_requested() { return requests > 0; }

}  // namespace brim
