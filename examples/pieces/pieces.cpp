// Pieces of Brim, each in a loop of its own around LibTorch's modules and optimizers.
// usage: pieces mixed_precision | data_loader | data_parallel | batch_search | checkpoint | phases

#include <brim/amp/autocast.h>
#include <brim/amp/grad_scaler.h>
#include <brim/base/error.h>
#include <brim/base/timeline.h>
#include <brim/checkpoint/store.h>
#include <brim/data/loading/loader.h>
#include <brim/data/samplers/shuffled.h>
#include <brim/device/memory/memory.h>
#include <brim/distributed/data_parallel.h>
#include <brim/nn/model.h>
#include <brim/train/observe/profiler.h>
#include <brim/tune/batch_search.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <string>

namespace {

using namespace brim;
using torch::nn::Linear;
using torch::optim::SGD;

// [mixed_precision]
void mixed_precision() {
  Linear model(4, 1);
  SGD optimizer(model->parameters(), /*lr=*/0.1);
  const auto fp16 = amp::resolve(amp::PrecisionMode::kFp16, at::kCPU, amp::cpu_abilities());
  amp::GradScaler scaler(at::kCPU, {}, fp16.scaler);
  const at::Tensor inputs = at::randn({64, 4}), targets = inputs.sum(1, /*keepdim=*/true);
  at::Tensor loss;
  for (int step = 0; step < 100; ++step) {
    {
      const amp::Autocast autocast(at::kCPU, fp16);
      loss = at::mse_loss(model->forward(inputs), targets);
    }
    scaler.scale(loss).backward();
    scaler.step(optimizer);  // leaves the step out where a gradient is not finite
    scaler.update();
    optimizer.zero_grad();
  }
  std::printf("loss %.4f, scale %.0f\n", loss.item<float>(), scaler.read_scale());
}
// [mixed_precision]

// [data_loader]
struct Digits final : data::Dataset {  // read by several threads at once
  int64_t size() const override { return 1000; }
  int64_t sample_bytes() const override { return 16; }
  std::string name(int64_t index) const override { return "digits[" + std::to_string(index) + "]"; }
  int64_t read(int64_t index, RandomStream* random, std::span<uint8_t> bytes) const override {
    std::ranges::fill(bytes, static_cast<uint8_t>(index % 10));
    if (random != nullptr) bytes[0] = static_cast<uint8_t>(random->below(256));  // a transform
    return index % 10;
  }
};

void data_loader() {
  const Digits digits;
  data::LoaderOptions options{.global_batch = 64, .micro_batch = 64, .workers = 2, .seed = 1};
  options.order = data::shuffled_order(digits, options.seed, {});
  options.augment = true;
  options.epochs = 2;
  data::Loader loader(digits, options);
  int64_t samples = 0;
  while (const data::Batch* batch = loader.next()) {  // pixels [count, 16], labels [count]
    samples += static_cast<int64_t>(batch->labels.size());
  }
  std::printf("%ld samples\n", static_cast<long>(samples));
}
// [data_loader]

// [data_parallel]
void data_parallel() {
  const auto group = distributed::Group::connect(
      distributed::read_ranks(), at::kCPU, distributed::Backend::kAuto, std::chrono::seconds(60));
  at::manual_seed(1);  // the same model on every rank
  Linear model(4, 1);
  distributed::DataParallel parallel(group, *model, {});
  SGD optimizer(model->parameters(), /*lr=*/0.1);
  at::manual_seed(2 + group->rank());  // and samples of its own
  for (int step = 0; step < 20; ++step) {
    const at::Tensor inputs = at::randn({8, 4});
    parallel.before_forward(/*sums=*/true);
    const at::Tensor loss =
        at::mse_loss(model->forward(inputs), inputs.sum(1, true)) / group->world();
    parallel.backward(loss, /*sums=*/true, [&] { loss.backward(); });
    optimizer.step();
    optimizer.zero_grad();
  }
  std::printf("rank %ld: bias %.9g\n", static_cast<long>(group->rank()), model->bias.item<float>());
  group->finish();
}
// [data_parallel]

// [batch_search]
void batch_search() {
  device::DeviceConfig config;
  config.memory_gib = 0.25;  // a cap that holds: tensors beyond it are out of memory
  const auto memory = device::memory_of(at::kCPU, config);
  Linear model(256, 256);
  const auto probe = [&](int64_t size) {
    memory->release_cached();
    memory->reset_peak();
    tune::Probe result{.size = size};
    result.fits = device::fits([&] { model->forward(at::rand({size, 256})).sum().backward(); });
    result.peak_bytes = memory->stats().peak_bytes;
    result.cap_bytes = memory->stats().cap_bytes;
    return result;
  };
  const tune::SearchResult found = tune::search_batch({.largest = 1 << 20}, probe);
  const int64_t peak = tune::probe_of(found, found.size)->peak_bytes;
  std::printf("batch %ld, %.0f MiB, in %zu probes\n", static_cast<long>(found.size),
              static_cast<double>(peak) / (1 << 20), found.probes.size());
}
// [batch_search]

// [checkpoint]
void checkpoint() {
  Linear model(4, 1);
  brim::checkpoint::Store store("checkpoints", /*keep=*/2);
  brim::checkpoint::Snapshot snapshot;
  snapshot.step = 100;
  snapshot.tensors["model"] = nn::named_tensors(*model);
  snapshot.state = {{"epoch", 3}};
  store.save(std::move(snapshot), /*is_best=*/true);  // copies; a thread writes
  store.wait();

  const auto saved = store.load(*store.latest());  // verified
  auto tensors = nn::named_tensors(*model);
  brim::checkpoint::copy_into(saved.tensors.at("model"), tensors, "checkpoints");
  std::printf("step %ld, epoch %d\n", static_cast<long>(saved.step),
              saved.state["epoch"].get<int>());
}
// [checkpoint]

// [phases]
void phases() {
  Timeline timeline;
  train::Profiler profiler(timeline, at::kCPU);
  const auto memory = device::memory_of(at::kCPU, {});
  profiler.record({.first = 2, .last = 3}, "trace.json", *memory);
  Linear model(64, 64);
  for (int step = 1; step <= 3; ++step) {
    profiler.before(step);
    timeline.enter(Phase::kForward);
    const at::Tensor loss = model->forward(at::rand({32, 64})).sum();
    timeline.enter(Phase::kBackward);
    loss.backward();
    timeline.enter(Phase::kOther);
    profiler.after(step);
    const auto seconds = timeline.take();  // by phase; they sum to the step's wall time
    std::printf("step %d: forward %.1f µs\n", step,
                1e6 * seconds[static_cast<size_t>(Phase::kForward)]);
  }
}
// [phases]

int run(int argc, char** argv) {
  const std::map<std::string, std::function<void()>> pieces = {
      {"mixed_precision", mixed_precision}, {"data_loader", data_loader},
      {"data_parallel", data_parallel},     {"batch_search", batch_search},
      {"checkpoint", checkpoint},           {"phases", phases}};
  const auto piece = pieces.find(argc > 1 ? argv[1] : "");
  if (piece == pieces.end()) throw UsageError("expected the name of a piece; see pieces.cpp");
  at::manual_seed(1);
  piece->second();
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return brim::run_program(run, argc, argv); }
