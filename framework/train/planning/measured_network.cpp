#include "framework/train/planning/measured_network.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>

#include "framework/base/units.h"

namespace brim::train {
namespace {

constexpr const char* kMeasurement = "the measurement of the network";
constexpr int64_t kFew = 4 << 10, kMany = 8 << 20;  // bytes
constexpr int64_t kRoom = 8;  // times as much memory: half of it holds what is measured
constexpr int kRepeats = 3;
constexpr double kBackwardShare = 2.0 / 3;  // as in benchmarks/scaling_model.py

/// Seconds of the fastest of some collectives of so many bytes, after one that warms up.
double fastest_s(distributed::Group& group, const device::Memory& memory,
                 const std::function<void()>& collective) {
  double best_s = 0;
  for (int i = 0; i <= kRepeats; ++i) {
    group.barrier(kMeasurement);
    const double start_s = now_s();
    collective();
    memory.synchronize();
    const double taken_s = now_s() - start_s;
    if (i > 0) best_s = best_s > 0 ? std::min(best_s, taken_s) : taken_s;
  }
  const at::Tensor slowest = at::full({1}, best_s, at::kDouble);
  group.all_reduce(slowest, distributed::Reduce::kMax, kMeasurement);
  return slowest.item<double>();
}

/// The ring whose times are these; `times` as in step_time.cpp.
plan::Link link_of(int64_t world, double times, int64_t many, double few_s, double many_s) {
  const auto ranks = static_cast<double>(world);
  const double bytes = times * (ranks - 1) / ranks * static_cast<double>(many - kFew);
  return {.bytes_per_s = bytes / std::max(1e-9, many_s - few_s),
          .hop_s = few_s / (times * (ranks - 1))};
}

}  // namespace

plan::Network measure_network(distributed::Group& group, c10::Device device,
                              const device::Memory& memory, int64_t cap_bytes) {
  plan::Network network;
  const int64_t world = group.world();
  network.ranks_of_machine = world;  // what was measured is of all of them
  if (group.is_single_rank()) return network;
  const at::NoGradGuard no_grad;
  const auto options = at::device(device).dtype(at::kFloat);
  const int64_t many = std::clamp(cap_bytes / kRoom, 2 * kFew, kMany);
  const auto measure = [&](double times, const std::function<void(const at::Tensor&)>& run) {
    const auto seconds = [&](int64_t bytes) {
      const at::Tensor rows = at::zeros({world, bytes / 4 / world}, options);
      return fastest_s(group, memory, [&] { run(rows); });
    };
    const double few_s = seconds(kFew);
    return link_of(world, times, many, few_s, seconds(many));
  };
  network.all_reduce = measure(2, [&](const at::Tensor& rows) {
    group.all_reduce(rows, distributed::Reduce::kSum, kMeasurement);
  });
  network.gather = measure(1, [&](const at::Tensor& rows) {
    group.start_all_gather(rows, kMeasurement).wait();
    at::empty_like(rows).copy_(rows);
  });
  network.scatter = measure(1, [&](const at::Tensor& rows) {
    const at::Tensor sent = at::empty_like(rows).copy_(rows);
    const at::Tensor parts = at::empty({group.parts_of_sum(device), rows.size(1)}, options);
    group.start_reduce_scatter(parts, sent, kMeasurement).wait();
    parts.sum(0);
  });
  network.machines = network.all_reduce;
  network.hidden_share = device.is_cpu() ? 0 : kBackwardShare;
  return network;
}

}  // namespace brim::train
