// trainer data bench: how fast a recipe's training data can be loaded, and what bounds it.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/machine.h"
#include "framework/base/units.h"
#include "framework/base/words.h"
#include "framework/cli/commands.h"
#include "framework/cli/options.h"
#include "framework/data/loading/throughput.h"
#include "framework/data/sources/image_dataset.h"
#include "framework/data/transfer/copy_stage.h"
#include "framework/device/choice.h"
#include "framework/device/memory/allocator.h"
#include "framework/train/inputs.h"
#include "framework/train/job.h"

namespace brim::cli {
namespace {

using nlohmann::json;

/// "0,1,2".
std::vector<int64_t> worker_counts(std::string_view text) {
  std::vector<int64_t> counts;
  for (const std::string_view word : split(text)) {
    int64_t count = -1;
    const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), count);
    if (code != std::errc() || end != word.data() + word.size() || count < 0 || count > 1024) {
      throw UsageError("--workers: expected numbers from 0 to 1024 such as 0,1,2, found '{}'",
                       word);
    }
    counts.push_back(count);
  }
  return counts;
}

/// 0, 1, 2, 4, … up to the cores.
std::vector<int64_t> usual_worker_counts() {
  std::vector<int64_t> counts = {0};
  const int64_t cores = usable_cores();
  for (int64_t count = 1; count < cores; count *= 2) counts.push_back(count);
  counts.push_back(cores);
  return counts;
}

/// What makes the stage cheaper, of the keys that this recipe uses.
std::string_view advice(data::Stage slowest, const data::DataConfig& config, bool has_gpu) {
  const std::string_view kind = config.source.selected();
  const bool reads_files = kind == "image_folder" || kind == "webdataset";
  const data::ImageOptions* const images = config.source->image_options();
  const data::AugmentConfig& augment = config.augment;
  const bool changes_images = augment.flip || augment.crop != data::Crop::kNone ||
                              augment.policy.automatic != data::AutoAugment::kNone ||
                              augment.policy.jitters();
  const bool changes_batches = augment.mix.mixes() || augment.mix.erase > 0;
  switch (slowest) {
    case data::Stage::kRead:
      if (!reads_files) break;
      return "a faster disk, data.cache = \"encoded\", or tar shards (trainer data pack)";
    case data::Stage::kDecode:
      if (images != nullptr && images->on_gpu) return "smaller files (trainer data pack --resize)";
      if (images != nullptr && has_gpu) {
        return "data.decode = \"gpu\", data.fast_decode = true (both of JPEG files), data.cache = "
               "\"decoded\", or smaller files (trainer data pack --resize)";
      }
      return "data.fast_decode = true (of JPEG files), data.cache = \"decoded\", or smaller files "
             "(trainer data pack --resize)";
    case data::Stage::kResize:
      return "smaller files (trainer data pack --resize) or a smaller data.image_size";
    case data::Stage::kAugment:
      if (!changes_images) break;
      return "cheaper data.augment";
    case data::Stage::kCopy:
      if (changes_batches) {
        return "less of data.augment that works on batches (erase, mixup, cutmix)";
      }
      if (!reads_files) break;
      return "a smaller data.image_size";
  }
  return "no key of this recipe makes it cheaper";
}

struct Report {
  std::vector<int64_t> workers;
  std::vector<data::Throughput> loaded;  // by workers
  std::vector<double> stage_s;           // by data::Stage
  std::string device;
};

void print_json(const Report& report) {
  json out = {{"workers", json::array()}, {"stages_s_per_sample", json::object()}};
  for (size_t i = 0; i < report.workers.size(); ++i) {
    out["workers"].push_back({{"workers", report.workers[i]},
                              {"samples", report.loaded[i].samples},
                              {"samples_per_s", report.loaded[i].samples_per_s},
                              {"cpu_s_per_sample", report.loaded[i].cpu_s_per_sample}});
  }
  for (size_t i = 0; i < report.stage_s.size(); ++i) {
    out["stages_s_per_sample"][std::string(data::kStageNames[i])] = report.stage_s[i];
  }
  out["device"] = report.device;
  fmt::print("{}\n", out.dump());
}

void print_text(const Report& report, const data::DataConfig& config, bool has_gpu) {
  fmt::print("workers   samples/s   CPU per sample\n");
  for (size_t i = 0; i < report.workers.size(); ++i) {
    fmt::print("{:>7}   {:>9.0f}   {:>11} ms\n", report.workers[i], report.loaded[i].samples_per_s,
               format_number(1e3 * report.loaded[i].cpu_s_per_sample));
  }
  double all = 0;
  for (const double s : report.stage_s) all += s;
  fmt::print("one thread, per sample, to {}:", report.device);
  for (size_t i = 0; i < report.stage_s.size(); ++i) {
    fmt::print(" {} {} ms ({:.0f} %){}", data::kStageNames[i],
               format_number(1e3 * report.stage_s[i]), 100 * report.stage_s[i] / all,
               i + 1 < report.stage_s.size() ? "," : "\n");
  }
  const auto slowest =
      static_cast<size_t>(std::ranges::max_element(report.stage_s) - report.stage_s.begin());
  fmt::print("bounded by {}: {}\n", data::kStageNames[slowest],
             advice(static_cast<data::Stage>(slowest), config, has_gpu));
}

int bench_data(const cxxopts::ParseResult& parsed, std::span<char* const> /*argv*/) {
  const auto samples = parsed["samples"].as<int64_t>();
  if (samples < 1) {
    throw UsageError("--samples: expected a number from 1 on, found {}", samples);
  }
  Report report;
  report.workers = parsed.count("workers") != 0 ? worker_counts(parsed["workers"].as<std::string>())
                                                : usual_worker_counts();

  train::JobConfig job = train::read_job(load_document(parsed));
  if (!job.batch.global) job.batch.global = train::BatchConfig{}.global;  // loading is the same
  auto dataset = job.data.open_train();
  const auto empty_cache = [&] {  // each measurement reads its images
    if (job.data.source->cache_bytes() > 0) dataset = job.data.open_train();
  };
  data::LoaderOptions loading = job.data.train_options();
  loading.seed = static_cast<uint64_t>(job.run.seed);
  loading.global_batch = *job.batch.global;
  loading.micro_batch = job.batch.micro_or_all();
  loading.order = job.data.order(*dataset, {loading.seed, loading.global_batch});
  loading.adapt_workers = false;
  const at::Device device = device::choose_device(job.device);
  if (device.is_cpu()) device::install_cpu_allocator();
  if (dataset->samples_together() > 1) loading.draw_jpegs = data::jpeg_decoder(device);
  const int64_t warmup = std::min(samples, int64_t{8} * loading.micro_batch);
  for (const int64_t workers : report.workers) {
    loading.workers = workers;
    empty_cache();
    report.loaded.push_back(data::measure_loader(*dataset, loading, warmup, samples));
  }
  report.device = device.str();
  empty_cache();
  const auto stages = data::measure_stages(*dataset, loading, samples);
  report.stage_s.assign(stages.begin(), stages.begin() + static_cast<int>(data::Stage::kCopy));
  const auto input =
      train::input_options(job.data, *dataset, device, job.precision.channels_last, at::kFloat);
  report.stage_s.push_back(data::measure_copy(*dataset, loading, input, device, samples));
  parsed.count("json") != 0 ? print_json(report) : print_text(report, job.data, device.is_cuda());
  return 0;
}

}  // namespace

Command data_bench_command() {
  return {.name = "data bench",
          .arguments = "RECIPE",
          .summary = "how fast a recipe's data load",
          .details =
              "How fast a recipe's training data can be loaded, by number of threads and by "
              "stage.",
          .add_options =
              [](cxxopts::Options& options) {
                add_job_options(options);
                options.add_options()(
                    "workers", "numbers of threads, such as 0,1,2; without it, up to the cores",
                    cxxopts::value<std::string>(),
                    "LIST")("samples", "samples that are timed, for each number",
                            cxxopts::value<int64_t>()->default_value("2000"), "N");
                add_json_option(options);
              },
          .positional = {"recipe"},
          .examples = {{"trainer data bench digits --workers 0,1,2", "with 0, 1 and 2 threads"}},
          .run = bench_data};
}

}  // namespace brim::cli
