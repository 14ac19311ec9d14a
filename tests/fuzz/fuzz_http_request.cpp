// Any bytes are a request's head, the beginning of one, or refused; what is said of a beginning
// holds for the whole.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "framework/telemetry/http/http_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using State = brim::telemetry::HttpRequest::State;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto whole = brim::telemetry::read_request(bytes);
  if (whole.state == State::kWhole) {
    const char* end = bytes.data() + bytes.size();
    for (const std::string_view part : {whole.method, whole.path}) {
      if (part.empty() || part.data() < bytes.data() || part.data() + part.size() > end) abort();
      if (std::ranges::any_of(part, [](char c) { return c <= ' ' || c >= 0x7f; })) abort();
    }
    for (const std::string_view part : {whole.query, whole.host}) {
      if (part.empty()) continue;
      if (part.data() < bytes.data() || part.data() + part.size() > end) abort();
      if (part.find('\n') != std::string_view::npos) abort();
    }
  }
  if (whole.state == State::kUnfinished && size >= brim::telemetry::kLongestHead) abort();
  // As the bytes arrive: refused once is refused for good, and whole only at its end.
  const size_t cut = size == 0 ? 0 : data[0] % size;
  const auto begun = brim::telemetry::read_request(bytes.substr(0, cut));
  if (begun.state != State::kUnfinished && begun.state != whole.state) abort();
  return 0;
}
