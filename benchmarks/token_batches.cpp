// How fast the loader fills batches from a token file, beside the memory limit: a plain copy of as
// many bytes, in pieces as long as a row, from random places of the same file (mapped, all of it in
// memory) to as many batches, by as many threads, without order, checks or locks.
//   token_batches [--json] [MIB [LENGTH [BATCH]]]
// MIB (1024): size of the file, made in the temporary folder and so in the page cache; LENGTH
// (1024): tokens of a row; BATCH (64): rows. Counted in GB/s (10^9 bytes) are the bytes of the
// batches, which hold int32: 4 a token, whatever the file has. Loader and copy run in turn, and the
// values are medians. --json: uint16 tokens and all cores alone, as one line of seconds per GB.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "framework/base/files.h"
#include "framework/base/machine.h"
#include "framework/base/random.h"
#include "framework/base/units.h"
#include "framework/data/loading/loader.h"
#include "framework/data/samplers/shuffled.h"
#include "framework/data/sources/tokens.h"

namespace brim::data {
namespace {

constexpr double kRound_s = 0.3;
constexpr int kRounds = 9;
constexpr int64_t kMib = 1 << 20;
constexpr uint16_t kVocabulary = 50'257;

struct Setup {
  int64_t file_bytes = 1024 * kMib;
  int64_t length = 1024;
  int64_t batch = 64;
};

/// Random tokens; a document has about 512.
void write_tokens(const std::filesystem::path& path, int64_t bytes, bool wide) {
  AtomicFile file(path);
  RandomStream random(1, 2, 3);
  std::vector<uint32_t> values(kMib / (wide ? 4 : 2));
  std::string text(kMib, '\0');
  for (uint32_t& value : values) {
    value = random.below(512) == 0 ? kVocabulary - 1 : static_cast<uint32_t>(random.below(50'000));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    std::memcpy(text.data() + i * (wide ? 4 : 2), &values[i], wide ? 4 : 2);
  }
  for (int64_t done = 0; done < bytes; done += kMib) file.write(text);
  file.commit();
}

/// A file's bytes, mapped, with all pages there.
class Mapping {
 public:
  Mapping(const std::filesystem::path& path, int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    void* place = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    ::close(fd);
    if (place == MAP_FAILED) throw Error(Exit::kResource, "{}: cannot be mapped", path.string());
    data_ = static_cast<const uint8_t*>(place);
  }
  ~Mapping() { ::munmap(const_cast<uint8_t*>(data_), bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  const uint8_t* data() const { return data_; }

 private:
  const uint8_t* data_ = nullptr;
  size_t bytes_;
};

/// Fills batches for kRound_s and gives GB/s.
double load_round(Loader& loader) {
  const double start_s = now_s();
  int64_t bytes = 0;
  double took_s = 0;
  while (took_s < kRound_s) {
    bytes += static_cast<int64_t>(loader.next()->pixels.size());
    took_s = now_s() - start_s;
  }
  return static_cast<double>(bytes) / 1e9 / took_s;
}

/// The same by copying rows of `row_bytes` from the places `rows`, each thread to three batches.
double copy_round(const Mapping& from, const std::vector<int64_t>& rows, int64_t row_bytes,
                  int64_t batch, int64_t threads) {
  std::atomic<int64_t> bytes = 0;
  const double start_s = now_s();
  {
    std::vector<std::jthread> pool;
    for (int64_t thread = 0; thread < threads; ++thread) {
      pool.emplace_back([&, thread] {
        std::vector<uint8_t> to(static_cast<size_t>(3 * batch * row_bytes), 1);
        size_t at = rows.size() / static_cast<size_t>(threads) * static_cast<size_t>(thread);
        for (int64_t slot = 0; now_s() - start_s < kRound_s; slot = (slot + 1) % 3) {
          for (int64_t row = 0; row < batch; ++row) {
            std::memcpy(to.data() + (slot * batch + row) * row_bytes,
                        from.data() + rows[at] * row_bytes, static_cast<size_t>(row_bytes));
            at = (at + 1) % rows.size();
          }
          bytes += batch * row_bytes;
        }
      });
    }
  }
  return static_cast<double>(bytes) / 1e9 / (now_s() - start_s);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Speeds {
  double loader = 0;  // GB/s
  double copy = 0;
  double ratio = 0;  // median of the rounds'
};

/// `threads`: the loader's own and the one that waits for batches, which decodes meanwhile.
Speeds measure(const std::filesystem::path& path, bool wide, Packing packing, int64_t threads,
               const Setup& setup) {
  TokensConfig config;
  config.train = path;
  config.type = wide ? TokenType::kUint32 : TokenType::kUint16;
  config.length = setup.length;
  config.packing = packing;
  const auto dataset = config.open_train({});
  Loader loader(*dataset, {.global_batch = setup.batch,
                           .micro_batch = setup.batch,
                           .workers = threads - 1,
                           .order = shuffled_order(*dataset, 1, {})});
  const Mapping mapping(path, setup.file_bytes);
  const int64_t row_bytes = dataset->sample_bytes();
  const KeyedPermutation order(1, 0, setup.file_bytes / row_bytes);
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < setup.file_bytes / row_bytes; ++i) rows.push_back(order(i));

  load_round(loader);
  copy_round(mapping, rows, row_bytes, setup.batch, threads);
  std::vector<double> loads, copies, ratios;
  for (int round = 0; round < kRounds; ++round) {
    loads.push_back(load_round(loader));
    copies.push_back(copy_round(mapping, rows, row_bytes, setup.batch, threads));
    ratios.push_back(loads.back() / copies.back());
  }
  return {median(loads), median(copies), median(ratios)};
}

void print_table(const std::filesystem::path& path, const Setup& setup) {
  fmt::print("{} MiB, {} tokens a row, {} rows a batch\n", setup.file_bytes / kMib, setup.length,
             setup.batch);
  fmt::print("{:<28}{:>10}{:>10}{:>8}\n", "GB/s", "loader", "copy", "ratio");
  for (const bool wide : {false, true}) {
    write_tokens(path, setup.file_bytes, wide);
    for (const Packing packing : {Packing::kStream, Packing::kDocuments}) {
      for (int64_t threads = 1; threads <= usable_cores(); threads *= 2) {
        const Speeds speeds = measure(path, wide, packing, threads, setup);
        fmt::print("{:<28}{:>10.2f}{:>10.2f}{:>8.2f}\n",
                   fmt::format("{} {}, {} threads", wide ? "uint32" : "uint16",
                               packing == Packing::kStream ? "stream" : "documents", threads),
                   speeds.loader, speeds.copy, speeds.ratio);
      }
    }
  }
}

int body(int count, char** words) {
  std::vector<std::string_view> arguments(words + 1, words + count);
  const bool as_json = std::erase(arguments, "--json") > 0;
  Setup setup;
  if (!arguments.empty()) setup.file_bytes = std::atoll(arguments[0].data()) * kMib;
  if (arguments.size() > 1) setup.length = std::atoll(arguments[1].data());
  if (arguments.size() > 2) setup.batch = std::atoll(arguments[2].data());
  const auto path =
      std::filesystem::temp_directory_path() / fmt::format("brim_tokens_{}.bin", ::getpid());
  if (as_json) {
    write_tokens(path, setup.file_bytes, /*wide=*/false);
    const Speeds speeds = measure(path, false, Packing::kStream, usable_cores(), setup);
    fmt::print("{{\"loader_s_per_gb\": {}, \"copy_s_per_gb\": {}}}\n", 1 / speeds.loader,
               1 / speeds.copy);
  } else {
    print_table(path, setup);
  }
  std::filesystem::remove(path);
  return 0;
}

}  // namespace
}  // namespace brim::data

int main(int count, char** words) { return brim::run_program(brim::data::body, count, words); }
