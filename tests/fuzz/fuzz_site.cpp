// Any bytes as the rules of a machine: only brim::Error may come out.
#include <cstddef>
#include <cstdint>
#include <string>

#include "framework/base/error.h"
#include "framework/site/limits.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace brim::site;  // one function
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const Limits limits(parse_site(text, "site.toml"), {.user = "ann", .groups = {"students"}});
    (void)limits.forbids(Device());
    (void)limits.quiet(Devices(1), std::tm{});
    for (const Rule& rule : limits.rules()) (void)limits.site().cite(rule, "at_most");
  } catch (const brim::Error&) {
  }
  return 0;
}
