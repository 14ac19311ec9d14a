// Any text is a bench or an Error; what is accepted can be compared with itself and is the same.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "framework/base/error.h"
#include "framework/experiment/bench/bench_file.h"
#include "framework/experiment/bench/comparison.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace brim::experiment;  // one function
  BenchRecord record;
  try {
    record = parse_bench({reinterpret_cast<const char*>(data), size}, "input");
  } catch (const brim::Error& error) {
    if (error.status() != brim::Exit::kData) std::abort();
    return 0;
  }
  const Comparison same = compare(record, record, 0.02);
  if (same.variants.empty() || !same.differences.empty()) std::abort();
  for (const ComparedVariant& variant : same.variants) {
    const Interval& interval = variant.ratio.interval;
    if (!(interval.low <= variant.ratio.value && variant.ratio.value <= interval.high)) {
      std::abort();
    }
  }
  if (report(same).empty()) std::abort();
  return 0;
}
