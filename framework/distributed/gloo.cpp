// Debian's headers of Gloo satisfy LibTorch's; only pointers to Gloo's types cross the line, and
// nothing of Debian's library is linked.
#include "framework/distributed/gloo.h"

#include <cstdlib>
#include <sstream>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupWrapper.hpp>

namespace brim::distributed {

c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int world, const std::string& address,
                                            std::chrono::milliseconds limit) {
  auto options = c10d::ProcessGroupGloo::Options::create(limit);
  const char* const variable = std::getenv("GLOO_SOCKET_IFNAME");
  std::istringstream names(variable == nullptr ? "" : variable);  // separated by commas
  for (std::string name; std::getline(names, name, ',');) {
    if (name.empty()) continue;
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(name));
  }
  if (options->devices.empty()) {
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
  }
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, world, options);
}

c10::intrusive_ptr<c10d::Backend> with_checks(const c10::intrusive_ptr<c10d::Backend>& backend,
                                              const c10::intrusive_ptr<c10d::Backend>& gloo) {
  return c10::make_intrusive<c10d::ProcessGroupWrapper>(backend, gloo);
}

}  // namespace brim::distributed
