#include "framework/data/shards/inspect.h"

#include <algorithm>
#include <atomic>

#include "framework/base/error.h"
#include "framework/base/parallel.h"
#include "framework/base/stop.h"
#include "framework/data/image/image.h"

namespace brim::data {
namespace {

constexpr int64_t kReportEvery = 256;  // images

/// What is known of an image; negative: not to be had.
struct Seen {
  int64_t bytes = -1;
  int64_t height = -1;
  int64_t width = -1;
  std::string problem;
};

Seen look(const EncodedImages& images, int64_t index) {
  thread_local std::vector<uint8_t> buffer;
  Seen seen;
  try {
    const auto bytes = images.bytes(index, buffer);
    seen.bytes = static_cast<int64_t>(bytes.size());
    const Image image = decode_image(bytes, images.name(index));
    seen.height = image.height;
    seen.width = image.width;
  } catch (const Error& error) {
    seen.problem = error.what();
  }
  return seen;
}

Spread spread(const std::vector<Seen>& all, int64_t Seen::*member) {
  std::vector<int64_t> values;
  for (const Seen& seen : all) {
    if (seen.*member >= 0) values.push_back(seen.*member);
  }
  if (values.empty()) return {};
  std::ranges::sort(values);
  return {values.front(), values[values.size() / 2], values.back()};
}

}  // namespace

Inspection inspect(const EncodedImages& images, int64_t threads,
                   const std::function<void(int64_t)>& report) {
  std::vector<Seen> all(static_cast<size_t>(images.size()));
  std::atomic<int64_t> done = 0;
  parallel_for(images.size(), threads, [&](int64_t i) {
    if (stop_requested()) throw Error(Exit::kStopped, "stopped after {} images", done.load());
    all[static_cast<size_t>(i)] = look(images, i);
    const int64_t now = ++done;
    if (report && now % kReportEvery == 0) report(now);
  });

  Inspection result;
  result.images = images.size();
  for (std::string& name : images.class_names()) result.classes.push_back({std::move(name), 0});
  for (int64_t i = 0; i < images.size(); ++i) {
    const Seen& seen = all[static_cast<size_t>(i)];
    result.bytes += std::max<int64_t>(seen.bytes, 0);
    ++result.classes[static_cast<size_t>(images.label(i))].images;
    if (!seen.problem.empty()) result.broken.push_back(seen.problem);
  }
  result.file_bytes = spread(all, &Seen::bytes);
  result.height = spread(all, &Seen::height);
  result.width = spread(all, &Seen::width);
  return result;
}

}  // namespace brim::data
