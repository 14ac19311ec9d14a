// How fast the loader fills batches from a token file, beside a plain copy of memory:
//   token_batches [MIB [LENGTH [BATCH]]]
// MIB (1024): size of the file, made in the temporary folder and so in the page cache; LENGTH
// (1024): tokens of a row; BATCH (64): rows. Prints GB/s (10^9 bytes) of batches filled, and how
// many per second of CPU time, which says more where others use the machine.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include "framework/base/files.h"
#include "framework/base/random.h"
#include "framework/data/loader.h"
#include "framework/data/samplers/shuffled.h"
#include "framework/data/sources/tokens.h"

namespace brim::data {
namespace {

constexpr double kSeconds = 2.0;  // of each measurement
constexpr int64_t kMib = 1 << 20;
constexpr uint16_t kVocabulary = 50'257;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Of all threads together.
double cpu_s() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

/// Runs `fill`, which returns the bytes that it filled, for kSeconds and prints the rate.
template <class Fill>
void measure(const std::string& what, Fill fill) {
  fill();
  int64_t bytes = 0;
  const double start_s = now_s();
  const double start_cpu_s = cpu_s();
  double took_s = 0;
  while (took_s < kSeconds) {
    bytes += fill();
    took_s = now_s() - start_s;
  }
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  fmt::print("{:<32}{:>8.1f}{:>14.1f}\n", what, gigabytes / took_s,
             gigabytes / (cpu_s() - start_cpu_s));
}

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

/// Copies of a batch's bytes from places spread over a buffer, as a loader without any work would.
void measure_copy(int64_t buffer_bytes, int64_t row_bytes, int64_t batch) {
  const std::vector<uint8_t> from(static_cast<size_t>(buffer_bytes), 1);
  std::vector<uint8_t> to(static_cast<size_t>(3 * row_bytes * batch));
  int64_t position = 0;
  int64_t slot = 0;
  measure("copy of memory, 1 thread", [&] {
    for (int64_t row = 0; row < batch; ++row) {
      const KeyedPermutation order(1, 0, buffer_bytes / row_bytes);
      const int64_t sample = order(position++ % (buffer_bytes / row_bytes));
      std::memcpy(to.data() + (slot * batch + row) * row_bytes, from.data() + sample * row_bytes,
                  static_cast<size_t>(row_bytes));
    }
    slot = (slot + 1) % 3;
    return row_bytes * batch;
  });
}

int body(int count, char** words) {
  const int64_t bytes = (count > 1 ? std::atoll(words[1]) : 1024) * kMib;
  const int64_t length = count > 2 ? std::atoll(words[2]) : 1024;
  const int64_t batch = count > 3 ? std::atoll(words[3]) : 64;
  fmt::print("{} MiB, {} tokens a row, {} rows a batch\n", bytes / kMib, length, batch);
  fmt::print("{:<32}{:>8}{:>14}\n", "", "GB/s", "GB/CPU s");
  measure_copy(bytes, (length + 1) * 4, batch);
  const auto path =
      std::filesystem::temp_directory_path() / fmt::format("brim_tokens_{}.bin", now_s());
  for (const bool wide : {false, true}) {
    write_tokens(path, bytes, wide);
    for (const Packing packing : {Packing::kStream, Packing::kDocuments}) {
      TokensConfig config;
      config.train = path;
      config.type = wide ? TokenType::kUint32 : TokenType::kUint16;
      config.length = length;
      config.packing = packing;
      const auto dataset = config.open_train({});
      for (const int64_t workers : {0, 1, 2}) {
        Loader loader(*dataset, {.global_batch = batch,
                                 .micro_batch = batch,
                                 .workers = workers,
                                 .order = shuffled_order(*dataset, 1, {})});
        measure(fmt::format("{} {}, {} workers", wide ? "uint32" : "uint16",
                            packing == Packing::kStream ? "stream" : "documents", workers),
                [&] { return static_cast<int64_t>(loader.next()->pixels.size()); });
      }
    }
  }
  std::filesystem::remove(path);
  return 0;
}

}  // namespace
}  // namespace brim::data

int main(int count, char** words) { return brim::run_program(brim::data::body, count, words); }
